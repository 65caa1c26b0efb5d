# One target per folder: its sources, its unit tests (*_test.cpp) and its micro-benchmarks (*_bench.cpp) lie side by side.

find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TRIREME_CCACHE})
endif()

# Says which Debian package brings what is missing.
macro(trireme_require package debian)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${package} was not found. On Debian: apt-get install ${debian}")
  endif()
endmacro()

function(trireme_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter -Werror
    # g++ 12 warns about std::string inside the standard library (GCC bug 105329).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
endfunction()

# trireme_folder(name [DEPENDS targets...]): the library trireme_<name> of this folder, its tests and benchmarks.
function(trireme_folder name)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  file(GLOB tests CONFIGURE_DEPENDS *_test.cpp)
  file(GLOB benches CONFIGURE_DEPENDS *_bench.cpp)
  file(GLOB fuzzers CONFIGURE_DEPENDS *_fuzz.cpp)
  list(REMOVE_ITEM sources ${tests} ${benches} ${fuzzers} "")

  add_library(trireme_${name} STATIC ${sources})
  target_include_directories(trireme_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(trireme_${name} PUBLIC ${ARG_DEPENDS} Threads::Threads)
  trireme_warnings(trireme_${name})

  if(TRIREME_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE trireme_${name} GTest::gtest_main GTest::gmock)
    target_compile_options(${name}_test PRIVATE ${TRIREME_TEST_FLAGS})
    trireme_warnings(${name}_test)
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. PROPERTIES TIMEOUT 120 DISCOVERY_TIMEOUT 30)
  endif()
  if(TRIREME_BENCHMARKS AND benches)
    add_executable(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE trireme_${name} benchmark::benchmark_main)
    trireme_warnings(${name}_bench)
  endif()
  if(TRIREME_FUZZ)
    foreach(fuzzer ${fuzzers})
      get_filename_component(fuzz_name ${fuzzer} NAME_WE)
      add_executable(${fuzz_name} ${fuzzer})
      target_link_libraries(${fuzz_name} PRIVATE trireme_${name})
      target_link_options(${fuzz_name} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()
