# cmake --install: the tool, every layer as tegula::<folder>, their headers, and a package that
# find_package(tegula) finds, whose target tegula::tegula links all layers. cpack makes an archive of
# that (script/package), which works wherever it is unpacked and moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY TEGULA_LAYERS)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tegula)
install(TARGETS ${layers} EXPORT tegula_layers ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tegula_layers NAMESPACE tegula:: DESTINATION ${package_dir}
        FILE tegula-layers.cmake)
# What is below isa/ is compiled once per instruction set and is nobody's interface.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tegula ${PROJECT_BINARY_DIR}/generated/tegula DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN isa EXCLUDE)
if(TARGET tegula)
  install(TARGETS tegula RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET tegula_mpi)
  install(TARGETS tegula_mpi LIBRARY DESTINATION lib)
endif()
if(TARGET tegula_cuda)
  install(TARGETS tegula_cuda LIBRARY DESTINATION lib)  # where the tool looks: ../lib
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# A user of the package must find each package that a layer links, by the name before its "::".
set(packages "")
set(names "")
foreach(layer IN LISTS layers)
  string(REPLACE tegula_ "" name ${layer})
  set_target_properties(${layer} PROPERTIES EXPORT_NAME ${name})
  list(APPEND names tegula::${name})
  get_target_property(libraries ${layer} LINK_LIBRARIES)
  foreach(library IN LISTS libraries)
    if(library MATCHES "^([A-Za-z0-9_]+)::" AND NOT CMAKE_MATCH_1 STREQUAL tegula)
      list(APPEND packages ${CMAKE_MATCH_1})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES packages)
list(SORT packages)
set(TEGULA_FIND_DEPENDENCIES "")
foreach(package IN LISTS packages)
  string(APPEND TEGULA_FIND_DEPENDENCIES "find_dependency(${package})\n")
endforeach()
string(REPLACE ";" " " TEGULA_LAYER_TARGETS "${names}")

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tegula-config.cmake.in
                              ${PROJECT_BINARY_DIR}/tegula-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tegula-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tegula-config.cmake
              ${PROJECT_BINARY_DIR}/tegula-config-version.cmake
        DESTINATION ${package_dir})

# The tool links nothing but the C and C++ runtime, which every Debian has (apt needs them), so they stay
# shared; the plug-in, which other programs may load, has its own.
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME tegula)
string(TOLOWER ${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR} system)
set(CPACK_PACKAGE_FILE_NAME tegula-${PROJECT_VERSION}-${system})
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
