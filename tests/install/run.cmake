# Installs BUILD_DIR into a fresh prefix below WORK_DIR, then builds and runs examples/xor, which
# knows of Tegula only what find_package(tegula) tells.
#   cmake -DSOURCE_DIR=… -DBUILD_DIR=… -DWORK_DIR=… -DCXX_FLAGS=… -DGENERATOR=… -P run.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " command "${ARGN}")
    message(FATAL_ERROR "${command}: exit ${status}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/xor -B ${WORK_DIR}/build -G ${GENERATOR}
    -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
    -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
foreach(example xor xor_compiled)
  run(${WORK_DIR}/build/${example})
  message("${output}")
endforeach()
file(GLOB_RECURSE leaked ${WORK_DIR}/prefix/include/*/isa/*)
if(leaked)
  message(FATAL_ERROR "internals were installed: ${leaked}")
endif()
if(EXISTS ${WORK_DIR}/prefix/bin/tegula)
  run(${WORK_DIR}/prefix/bin/tegula --version)
endif()
