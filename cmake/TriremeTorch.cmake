# torch, as it lies in a Python environment: the one of Python_EXECUTABLE, else .venv, else the first python3. Sets TRIREME_TORCH_VERSION and
# makes the target trireme::torch (libtorch_cpu and libc10, no Python) and trireme::torch_python. Where there is no torch, or another
# version than the one that this code is written for, it says so and sets TRIREME_HAVE_TORCH to false.

set(TRIREME_TORCH_SERIES 2.13)

if(Python_EXECUTABLE)
  set(TRIREME_PYTHON ${Python_EXECUTABLE})
elseif(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(TRIREME_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python)
else()
  find_program(TRIREME_PYTHON python3)
endif()

# Without importing it: that takes seconds.
set(TRIREME_HAVE_TORCH FALSE)
execute_process(
  COMMAND ${TRIREME_PYTHON} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '', end='')"
  OUTPUT_VARIABLE TRIREME_TORCH_DIR ERROR_QUIET)
if(NOT TRIREME_TORCH_DIR)
  message(STATUS "torch: not found by ${TRIREME_PYTHON}; trireme/torch_ext is not built. It needs: pip install torch==${TRIREME_TORCH_SERIES}.0+cpu")
  return()
endif()
file(STRINGS ${TRIREME_TORCH_DIR}/version.py version_line REGEX "^__version__")
string(REGEX MATCH "[0-9][^'\"]*" TRIREME_TORCH_VERSION "${version_line}")
if(NOT TRIREME_TORCH_VERSION MATCHES "^${TRIREME_TORCH_SERIES}\\.")
  message(STATUS "torch: ${TRIREME_TORCH_VERSION} in ${TRIREME_TORCH_DIR}; trireme/torch_ext is not built: it is written for ${TRIREME_TORCH_SERIES}")
  return()
endif()
message(STATUS "torch: ${TRIREME_TORCH_VERSION} in ${TRIREME_TORCH_DIR}")
set(TRIREME_HAVE_TORCH TRUE)

add_library(trireme::torch INTERFACE IMPORTED)
target_include_directories(trireme::torch SYSTEM INTERFACE ${TRIREME_TORCH_DIR}/include ${TRIREME_TORCH_DIR}/include/torch/csrc/api/include)
target_link_libraries(trireme::torch INTERFACE ${TRIREME_TORCH_DIR}/lib/libtorch_cpu.so ${TRIREME_TORCH_DIR}/lib/libc10.so)
add_library(trireme::torch_python INTERFACE IMPORTED)
target_link_libraries(trireme::torch_python INTERFACE trireme::torch ${TRIREME_TORCH_DIR}/lib/libtorch_python.so)
