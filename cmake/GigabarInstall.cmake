# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: headers, the libraries, a CMake package, pkg-config files and the licence (the program
# `gigabar` sees to itself). No installed file names the prefix, so that it can be moved.
include(CMakePackageConfigHelpers)

set(gigabar_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/gigabar)

# Components are the packages of GigabarPackages.cmake. NCCL and libfabric open libgdrapi.so by that name, so that link belongs to the
# library and not to its headers.
set(gigabar_libraries gigabar)
if(TARGET gaspi)
  list(APPEND gigabar_libraries gaspi)
endif()
install(
  TARGETS ${gigabar_libraries}
  EXPORT gigabar
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(
  TARGETS gdrapi
  EXPORT gigabar
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT gdrapi NAMELINK_COMPONENT gdrapi
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

install(EXPORT gigabar NAMESPACE gigabar:: FILE gigabarTargets.cmake DESTINATION ${gigabar_package_folder} COMPONENT development)
# A project without C++ uses the C interface of the same target, and has no compiler to ask for C++20.
file(
  WRITE ${PROJECT_BINARY_DIR}/gigabarConfig.cmake
  [[include(${CMAKE_CURRENT_LIST_DIR}/gigabarTargets.cmake)
get_property(gigabar_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(CXX IN_LIST gigabar_languages)
  set_property(TARGET gigabar::gigabar APPEND PROPERTY INTERFACE_COMPILE_FEATURES cxx_std_20)
endif()
unset(gigabar_languages)
]])
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gigabarConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gigabarConfig.cmake ${PROJECT_BINARY_DIR}/gigabarConfigVersion.cmake
        DESTINATION ${gigabar_package_folder} COMPONENT development)

# From <prefix>/<lib>/pkgconfig back to <prefix>, however many folders <lib> has.
file(RELATIVE_PATH pkgconfig_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})

function(gigabar_pkgconfig name version library description)
  file(
    WRITE ${PROJECT_BINARY_DIR}/${name}.pc
    "prefix=\${pcfiledir}/${pkgconfig_to_prefix}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
Name: ${name}
Description: ${description}
Version: ${version}
Cflags: -I\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
Libs: -L\${libdir} -l${library}
")
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endfunction()
gigabar_pkgconfig(gigabar ${PROJECT_VERSION} gigabar "${PROJECT_DESCRIPTION}")
# GDRCopy's version, which programs ask pkg-config for.
gigabar_pkgconfig(gdrapi 2.6 gdrapi "Gigabar's implementation of the gdrapi interface")
# Under its own name, and under GPI-2's for build files that link -lGPI2.
if(TARGET gaspi)
  gigabar_pkgconfig(gaspi 17.1 gigabar_gaspi "Gigabar's implementation of GASPI")
  gigabar_pkgconfig(GPI2 1.6.0 GPI2 "Gigabar's implementation of GASPI, for programs written for GPI-2")
  file(CREATE_LINK libgigabar_gaspi.so ${PROJECT_BINARY_DIR}/libGPI2.so SYMBOLIC)
  install(FILES ${PROJECT_BINARY_DIR}/libGPI2.so DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/scripts/gaspi_run DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()
# Everything that has to be built for it, which ./run builds. The last three are not in every build.
add_custom_target(gigabar_installed)
foreach(target IN ITEMS gigabar gdrapi gigabar_probe gaspi gigabar_program gigabar_pages)
  if(TARGET ${target})
    add_dependencies(gigabar_installed ${target})
  endif()
endforeach()
if(PROJECT_IS_TOP_LEVEL)
  include(GigabarPackages)
endif()
