# SPDX-License-Identifier: Apache-2.0
# Run by CPack on what it has installed for the packages.
file(GLOB_RECURSE pages ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/gigabar*.1 ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/gaspi_run.1)
if(pages)
  execute_process(COMMAND ${CPACK_GIGABAR_GZIP} -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
