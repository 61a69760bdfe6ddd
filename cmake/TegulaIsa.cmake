# Compiles kernels/cpu/isa/*.cpp once per instruction set and links each set into one object with
# one global symbol, the accessor of its table.
#
# A namespace per set is not enough: std:: templates and other inline functions compiled with wide
# instructions are weak symbols, and the linker may pick those copies for baseline code, which then
# dies on an older machine. So each set's objects are joined by `ld -r` (which also dissolves their
# COMDAT groups, lest the final link drop a group by name) and every symbol but one is made local.
# Sanitizer builds do the same: instrumentation calls are undefined symbols and stay global.
# prefetchw does nothing on the few processors with AVX2 that lack it; without it, a line fetched to
# be written may come shared, and the store waits for it again.
set(TEGULA_ISA_AVX2_FLAGS -mavx2 -mfma -mf16c -mprfchw)
set(TEGULA_ISA_AVX512_FLAGS ${TEGULA_ISA_AVX2_FLAGS} -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -mprefer-vector-width=512
    # GCC 12's own header reads a deliberately undefined vector (GCC bug 105593).
    -Wno-uninitialized $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)

# AMX's kernels use AVX-512 for all else; machines with AMX have bf16 conversions there, too.
set(TEGULA_ISA_AMX_FLAGS ${TEGULA_ISA_AVX512_FLAGS} -DTEGULA_ISA_AVX512 -mavx512bf16 -mamx-tile
    -mamx-bf16)
set(TEGULA_ISA_AMX_SOURCES "/(table|[a-z0-9_]*_amx)\\.cpp$")  # the others are AVX-512's
# No plan asks for tiles where there are none: tests do, and AVX2's emulation serves them.
set(TEGULA_ISA_AVX512_LACKS "_amx\\.cpp$")

# Portable code of x86-64 calls a function for every multiply-add (isa/vec.h): what -O2 adds to the
# loops around these calls is not to be seen, but for a third of the compiler's time. Products of
# bytes make no calls.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(TEGULA_ISA_PORTABLE_FLAGS $<$<CONFIG:Release>:-O1>)
  set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/kernels/cpu/isa/dot_i8.cpp
                              PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O2>)
endif()

set(all_isas portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND all_isas avx2 avx512 amx)
endif()
set(TEGULA_ISAS "${all_isas}" CACHE STRING "Instruction sets to compile kernels for: all, or portable alone")
if(NOT TEGULA_ISAS STREQUAL all_isas)
  if(NOT TEGULA_ISAS STREQUAL portable)
    message(FATAL_ERROR "TEGULA_ISAS is ${TEGULA_ISAS}: choose ${all_isas}, or portable alone")
  endif()
  add_compile_definitions(TEGULA_ONLY_PORTABLE)
endif()

# CMake takes lld where clang compiles and lld is installed, but only GNU ld joins groups in a relocatable object.
find_program(TEGULA_LD NAMES ${CMAKE_CXX_LIBRARY_ARCHITECTURE}-ld.bfd ld.bfd ld REQUIRED)

# tegula_isa_objects(OUT folder): OUT lists one relocatable object per instruction set.
function(tegula_isa_objects out folder)
  file(GLOB all CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  set(objects "")
  foreach(isa IN LISTS TEGULA_ISAS)
    string(TOUPPER ${isa} upper)
    set(sources ${all})
    if(TEGULA_ISA_${upper}_SOURCES)
      list(FILTER sources INCLUDE REGEX ${TEGULA_ISA_${upper}_SOURCES})
    endif()
    if(TEGULA_ISA_${upper}_LACKS)
      list(FILTER sources EXCLUDE REGEX ${TEGULA_ISA_${upper}_LACKS})
    endif()
    set(target tegula_isa_${isa})
    add_library(${target} OBJECT ${sources})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${target} PRIVATE tegula_flags)
    target_compile_definitions(${target} PRIVATE TEGULA_ISA_${upper})
    # A unique symbol would be one more global; unwinding tables are kept for debuggers.
    target_compile_options(${target} PRIVATE ${TEGULA_ISA_${upper}_FLAGS}
                           $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
    set(joined ${CMAKE_CURRENT_BINARY_DIR}/isa_${isa}_joined.o)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/isa_${isa}.o)
    add_custom_command(
      OUTPUT ${object}
      BYPRODUCTS ${joined}
      COMMAND ${TEGULA_LD} -r --force-group-allocation -o ${joined} $<TARGET_OBJECTS:${target}>
      COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=tegula_isa_table_${isa} ${joined} ${object}
      DEPENDS ${target} $<TARGET_OBJECTS:${target}>
      COMMAND_EXPAND_LISTS VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${object})
    if(TEGULA_TESTS)
      set(check ${PROJECT_SOURCE_DIR}/tools/check_isa_symbols.sh)
      add_test(NAME isa_symbols_${isa} COMMAND ${check} ${object} tegula_isa_table_${isa})
      # The check must see the symbols that the joined object still has.
      add_test(NAME isa_symbols_${isa}_planted COMMAND ${check} ${joined} tegula_isa_table_${isa})
      set_tests_properties(isa_symbols_${isa}_planted PROPERTIES WILL_FAIL TRUE)
      set_tests_properties(isa_symbols_${isa} isa_symbols_${isa}_planted PROPERTIES LABELS kernels)
    endif()
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
