# Installs into WORK/first, moves that to WORK/moved, and builds and runs the consumer there: with find_package, then with pkg-config.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGV}: ${result}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first --component ccl)
file(RENAME ${WORK}/first ${WORK}/moved)
set(oneccl ${WORK}/moved/${LIBDIR}/trireme/oneccl)

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${WORK}/build -DoneCCL_DIR=${oneccl}/cmake
  -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${FLAGS}")
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer threads 2)

find_program(pkg_config pkg-config REQUIRED)
set(ENV{PKG_CONFIG_PATH} ${oneccl}/pkgconfig)
execute_process(COMMAND ${pkg_config} --cflags --libs ccl OUTPUT_VARIABLE ccl_flags COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(ccl_flags UNIX_COMMAND "${ccl_flags}")
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
run(${CXX} ${flags} -std=c++11 ${CMAKE_CURRENT_LIST_DIR}/events.cpp -o ${WORK}/consumer ${ccl_flags} -pthread)
run(${WORK}/consumer processes 2)
