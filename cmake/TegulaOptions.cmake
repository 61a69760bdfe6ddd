# Compiler flags and options shared by every target.
option(TEGULA_TESTS "Build the tests" ON)
option(TEGULA_BENCH "Build the benchmarks" OFF)
# Off for users: another compiler warns of something else. On in the presets of developers and in .ci/run.
option(TEGULA_WERROR "Warnings are errors" OFF)
option(TEGULA_CUDA "Build the CUDA plug-in and the tests that need a GPU" OFF)
option(TEGULA_FUZZ "Build the fuzz targets with libFuzzer, which needs clang" OFF)
option(TEGULA_COVERAGE "Count the lines that tests reach" OFF)
set(TEGULA_SANITIZE "" CACHE STRING "Sanitizers: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # base_dir and nohashdir let clones of the repository share one cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()
find_package(Threads REQUIRED)

add_library(tegula_flags INTERFACE)
# Multiply-add contracts only where code says fma: bits are a contract. psabi: GCC notes that wide
# vectors of the portable kernels are passed as they were not before 4.6; no call across a library
# passes one.
target_compile_options(tegula_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers -Wno-psabi
                       -ffp-contract=off -fno-math-errno)
if(TEGULA_WERROR)
  target_compile_options(tegula_flags INTERFACE -Werror)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -fno-omit-frame-pointer")
if(TEGULA_SANITIZE)
  target_compile_options(tegula_flags INTERFACE -fsanitize=${TEGULA_SANITIZE})
  target_link_options(tegula_flags INTERFACE -fsanitize=${TEGULA_SANITIZE})
  if(TEGULA_SANITIZE MATCHES undefined)
    target_compile_options(tegula_flags INTERFACE -fno-sanitize-recover=undefined)
  else()
    # GCC 12 takes instrumented moves of attributes for reads of what was never written.
    target_compile_options(tegula_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
endif()
if(TEGULA_FUZZ)
  target_compile_options(tegula_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(TEGULA_COVERAGE)
  target_compile_options(tegula_flags INTERFACE --coverage)
  target_link_options(tegula_flags INTERFACE --coverage)
endif()
# Where there is an MPI, the plug-in is built that carries frames by it.
find_package(MPI QUIET COMPONENTS CXX)
option(TEGULA_MPI "Build the MPI plug-in" ${MPI_CXX_FOUND})
if(TEGULA_MPI AND NOT MPI_CXX_FOUND)
  message(FATAL_ERROR "TEGULA_MPI is on, and CMake finds no MPI: install one (script/bootstrap --mpi), or "
                      "configure with -DTEGULA_MPI=OFF")
endif()
if(TEGULA_CUDA AND NOT EXISTS ${CMAKE_SOURCE_DIR}/tegula/kernels/cuda/CMakeLists.txt)
  message(FATAL_ERROR "TEGULA_CUDA is on, but this tree has no CUDA kernels (tegula/kernels/cuda): "
                      "configure with -DTEGULA_CUDA=OFF")
endif()
