# Optimises a target less: code that runs once a command, and whose loops nobody waits for. It compiles
# in less time, and executes as many instructions (tools/instructions.py).
function(tegula_o1 target)
  # GCC's guess of what may be uninitialised is made for -O2, and wrong about std::variant at -O1.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endfunction()

# One static library per folder of tegula/, so that the linker knows the layers too.
#   tegula_layer(NAME [O1] [DEPS folder...] [LIBS library...])
# compiles every .cpp of the folder; a layer may only depend on layers below it. O1: see tegula_o1.
function(tegula_layer name)
  cmake_parse_arguments(ARG "O1" "" "DEPS;LIBS;EXTRA" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/isa/|/kernels/cuda/|/comm/mpi/")
  set(target tegula_${name})
  add_library(${target} STATIC ${sources} ${ARG_EXTRA})
  add_library(tegula::${name} ALIAS ${target})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tegula_flags>)
  if(ARG_O1)
    tegula_o1(${target})
  endif()
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PUBLIC tegula_${dep})
  endforeach()
  target_link_libraries(${target} PUBLIC Threads::Threads ${ARG_LIBS})
  set_property(GLOBAL APPEND PROPERTY TEGULA_LAYERS ${target})
endfunction()

# tegula_table(OUT folder NAMESPACE ns TYPE type FUNCTION accessor HEADER header [SUFFIX suffix]
#              [DECLARATIONS header] [FOLDERS])
# writes a table of every `constinit const TYPE <stem><suffix>` of the folder, one per .cpp file, and
# with DECLARATIONS a header that declares them. With FOLDERS, files of its folders count as well, but
# for those in common.
function(tegula_table out folder)
  cmake_parse_arguments(ARG "FOLDERS" "NAMESPACE;TYPE;FUNCTION;HEADER;SUFFIX;DECLARATIONS" "EXCLUDE" ${ARGN})
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  if(ARG_FOLDERS)
    file(GLOB in_folders CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*/*.cpp)
    list(FILTER in_folders EXCLUDE REGEX "/common/")
    list(APPEND files ${in_folders})
  endif()
  set(stems "")
  foreach(file IN LISTS files)
    get_filename_component(stem ${file} NAME_WE)
    list(APPEND stems ${stem})
  endforeach()
  list(REMOVE_ITEM stems "" ${ARG_EXCLUDE})
  list(SORT stems)
  set(externs "")
  set(entries "")
  foreach(stem IN LISTS stems)
    string(APPEND externs "extern const ${ARG_TYPE} ${stem}${ARG_SUFFIX};\n")
    string(APPEND entries "    &${ARG_NAMESPACE}::${stem}${ARG_SUFFIX},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${out} @ONLY CONTENT
"// Generated from the file names of tegula/${folder}; do not edit.
#include \"${ARG_HEADER}\"

namespace ${ARG_NAMESPACE} {
${externs}}

namespace tegula {
static constexpr const ${ARG_TYPE}* kTable[] = {
${entries}};
std::span<const ${ARG_TYPE}* const> ${ARG_FUNCTION}() { return kTable; }
}  // namespace tegula
")
  if(ARG_DECLARATIONS)
    file(CONFIGURE OUTPUT ${ARG_DECLARATIONS} @ONLY CONTENT
"// Generated from the file names of tegula/${folder}; do not edit.
#pragma once

#include \"${ARG_HEADER}\"

namespace ${ARG_NAMESPACE} {
${externs}}
")
  endif()
endfunction()
