# SPDX-License-Identifier: Apache-2.0
# gigabar_device_code(SOURCE IMAGE DEPENDS header...): compiles SOURCE.cu of this folder to a fat binary that the translation unit IMAGE
# embeds. Not CMake's own way of compiling device code: the library needs the fat binary alone, without CUDA's run-time. Without nvcc IMAGE is
# compiled without the definition GIGABAR_DEVICE_CODE.
function(gigabar_device_code source image)
  cmake_parse_arguments(CODE "" "" "DEPENDS" ${ARGN})
  if(NOT GIGABAR_NVCC)
    return()
  endif()
  get_filename_component(name ${source} NAME_WE)
  set(binary ${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin)
  # The compiler whose headers and types device code sees: in a cross build not this machine's.
  separate_arguments(code_flags UNIX_COMMAND "${CMAKE_CUDA_FLAGS}")
  if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND code_flags -ccbin ${CMAKE_CUDA_HOST_COMPILER})
  endif()
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    string(REGEX MATCH "^[0-9]+[a-z]?" number ${architecture})
    if(NOT architecture MATCHES "-virtual$")
      list(APPEND code_flags -gencode arch=compute_${number},code=sm_${number})
    endif()
    if(NOT architecture MATCHES "-real$")
      list(APPEND code_flags -gencode arch=compute_${number},code=compute_${number})
    endif()
  endforeach()
  add_custom_command(
    OUTPUT ${binary}
    COMMAND ${CMAKE_CUDA_COMPILER} -std=c++20 -O3 -fatbin -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include ${code_flags} ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o
            ${binary}
    DEPENDS ${source} ${CODE_DEPENDS}
    VERBATIM)
  set_source_files_properties(${image} PROPERTIES COMPILE_DEFINITIONS GIGABAR_DEVICE_CODE="${binary}" OBJECT_DEPENDS ${binary})
endfunction()
