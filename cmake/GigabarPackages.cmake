# SPDX-License-Identifier: Apache-2.0
# `cpack -G DEB` in the build folder makes four Debian packages: the program; libgigabar.so.1 and what it starts; headers and what links
# against both libraries; and libgdrapi.so.2, which takes the place of GDRCopy's.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR Gigabar)
set(CPACK_PACKAGE_CONTACT "Gigabar's maintainers <maintainers@gigabar.invalid>" CACHE STRING "Maintainer field of the packages")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL library development gdrapi)
if(GIGABAR_TOOLS)
  list(APPEND CPACK_COMPONENTS_ALL program)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# dpkg-shlibdeps reads what the files need. The libraries of vendors are opened at run time: those that Debian has are suggested.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")  # else packages of programs would need exactly the version they were built with
set(opened_at_run_time "libhwloc15, libibverbs1, librdmacm1, libucx0, libpmix2, libssl3 | libssl3t64, libarchive13 | libarchive13t64")

# Debian asks for the licence and a changelog in each package. They are in no other installation. Files of other projects are inside the
# binaries, and their licences ask for their notices beside each copy. Licences that every Debian has are named by their files there.
file(READ ${PROJECT_SOURCE_DIR}/NOTICE notice)
file(
  WRITE ${PROJECT_BINARY_DIR}/copyright
  "${notice}
On Debian systems the text of the Apache License, Version 2.0, is in /usr/share/common-licenses/Apache-2.0, and that of the GNU General
Public License, version 3, in /usr/share/common-licenses/GPL-3.
")
# With it dpkg renews the loader's cache, once for all packages that it installs.
file(WRITE ${PROJECT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/triggers)
set(CPACK_DEBIAN_GDRAPI_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/triggers)
string(TIMESTAMP package_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(
  WRITE ${PROJECT_BINARY_DIR}/changelog.Debian
  "gigabar (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Built from the sources, whose CHANGELOG.md says what is new.

 -- ${CPACK_PACKAGE_CONTACT}  ${package_date}
")
find_program(GIGABAR_GZIP gzip)
if(NOT GIGABAR_GZIP)
  gigabar_without(gzip "no Debian packages")
  return()
endif()
execute_process(COMMAND ${GIGABAR_GZIP} -9nf ${PROJECT_BINARY_DIR}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)

# gigabar_package(COMPONENT NAME SECTION SUMMARY LINE...): the lines are the description's paragraph.
macro(gigabar_package component name section summary)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  string(JOIN "\n" paragraph ${ARGN})
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}\n${paragraph}")
  install(FILES ${PROJECT_BINARY_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${PROJECT_BINARY_DIR}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name} COMPONENT ${component} EXCLUDE_FROM_ALL)
endmacro()

gigabar_package(
  program gigabar utils "measure and explain the paths of GPU memory"
  "The program gigabar measures copies, transfer streams and communication"
  "between ranks, shows a machine's topology and explains slow or missing paths.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "${opened_at_run_time}, python3, python3-matplotlib")  # the last two: gigabar report

gigabar_package(
  library libgigabar1 libs "shortest paths to, from and between GPUs - library"
  "CPU mappings of GPU memory, copies, and communication between ranks over"
  "NVLink, PCIe, RDMA networks and TCP. This package has the shared library.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS ${opened_at_run_time})

gigabar_package(
  development libgigabar-dev libdevel "shortest paths to, from and between GPUs - development files"
  "Headers for C, C++ and CUDA, a CMake package and pkg-config files.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libgigabar1 (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}), libgdrapi2-gigabar (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_CONFLICTS libgdrapi-dev)  # which has gdrapi.h too

# The link without a version is in it as well: NCCL and libfabric open libgdrapi.so.
gigabar_package(
  gdrapi libgdrapi2-gigabar libs "GDRCopy's interface without a kernel module"
  "Programs written for GDRCopy run unchanged with this libgdrapi.so.2, which"
  "needs an NVIDIA driver and no kernel module of its own.")
set(CPACK_DEBIAN_GDRAPI_PACKAGE_PROVIDES "libgdrapi (= 2.6)")  # without a version it satisfies no package that asks for one
set(CPACK_DEBIAN_GDRAPI_PACKAGE_CONFLICTS libgdrapi)
set(CPACK_DEBIAN_GDRAPI_PACKAGE_REPLACES libgdrapi)

# Debian has manual pages compressed.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/GigabarCompressPages.cmake)
set(CPACK_GIGABAR_GZIP ${GIGABAR_GZIP})
include(CPack)
