# SPDX-License-Identifier: Apache-2.0
# How a component, a test program and a warning level are declared; used by every CMakeLists.txt below.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# A file is compiled as soon as its own headers are there, not behind the components below it.
set(CMAKE_OPTIMIZE_DEPENDENCIES ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(Threads REQUIRED)

# GCC's optimiser sees writes beyond libstdc++'s strings that never happen, in each version at other places; clang, clang-tidy and the
# sanitizers look at the same code.
add_library(gigabar_options INTERFACE)
target_compile_options(
  gigabar_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow>
                            $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-maybe-uninitialized;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>
                            $<$<AND:$<BOOL:${GIGABAR_WARNINGS_AS_ERRORS}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>)
if(GIGABAR_SANITIZE)
  # What of clang's GCC does not look at stays out: types of functions and enumerations of C interfaces, which tests break on purpose, and
  # types of objects, for which it needs descriptors where tests leave none.
  add_compile_options(-fsanitize=${GIGABAR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                      $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function$<COMMA>vptr$<COMMA>enum>)
  add_link_options(-fsanitize=${GIGABAR_SANITIZE})
  # For tests that cannot hold under one: compilers have no common word for it.
  string(TOUPPER "${GIGABAR_SANITIZE}" sanitizers)
  string(REPLACE "," ";" sanitizers "${sanitizers}")
  list(TRANSFORM sanitizers PREPEND GIGABAR_SANITIZE_ OUTPUT_VARIABLE sanitizer_definitions)
  add_compile_definitions(${sanitizer_definitions})
endif()

# gigabar_without(WHAT LOST): says once that a library, or its headers, is not here and what is lost; ./run shows these lines.
function(gigabar_without what lost)
  message(STATUS "without ${what}: ${lost}")
endfunction()

# Precompiled headers. ccache takes part only if the preprocessed text names the precompiled header in place of its content, and, of
# clang's, if no time of day is in it.
set(gigabar_precompiled_options $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>
                                "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")

# gigabar_precompiled(NAME <header>...): the target NAME, which compiles these headers once; gigabar_use_precompiled(TARGET NAME) has TARGET
# begin with them. Both are compiled with the same options. Only headers of the system and of libraries: with one of the project's own
# everything would be compiled again when it changes.
function(gigabar_precompiled name)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp "")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_compile_options(${name} PRIVATE ${gigabar_precompiled_options})
  target_link_libraries(${name} PRIVATE gigabar_options)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
function(gigabar_use_precompiled target name)
  target_compile_options(${target} PRIVATE ${gigabar_precompiled_options})
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()

# gigabar_component(NAME [SOURCES file...] [HEADERS header...] [DEPENDS component...]): the objects of gigabar_NAME, or only what its
# headers need. Inside the project, headers are named from src/ ("memory/runtime.hpp") and from include/ ("gigabar/memory.hpp"). HEADERS
# are the public ones that it implements. DEPENDS are the components whose headers its files include, no more and no fewer: the test
# components.includes compares them. All components together are the static library gigabar_internal (src/gigabar).
function(gigabar_component name)
  cmake_parse_arguments(COMPONENT "" "" "SOURCES;HEADERS;DEPENDS" ${ARGN})
  list(TRANSFORM COMPONENT_DEPENDS PREPEND gigabar_ OUTPUT_VARIABLE below)
  if(COMPONENT_SOURCES)
    add_library(gigabar_${name} OBJECT ${COMPONENT_SOURCES})
    target_include_directories(gigabar_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(gigabar_${name} PUBLIC Threads::Threads ${below} PRIVATE gigabar_options)
    gigabar_use_precompiled(gigabar_${name} gigabar_system_headers)
  else()
    add_library(gigabar_${name} INTERFACE)
    target_link_libraries(gigabar_${name} INTERFACE ${below})
  endif()
  set_property(GLOBAL APPEND PROPERTY GIGABAR_COMPONENTS gigabar_${name})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR})
  string(JOIN "\t" line ${name} ${folder} "${COMPONENT_HEADERS}" "${COMPONENT_DEPENDS}")
  set_property(GLOBAL APPEND_STRING PROPERTY GIGABAR_COMPONENT_LINES "${line}\n")
endfunction()

# gigabar_test(NAME SOURCES file... [LINK target...] [LABEL unit|fault|conformance|gpu] [TIMEOUT seconds] [FILTER filter]): a GoogleTest
# program over the components and the fakes, one ctest entry per TEST, or per one that GoogleTest's FILTER names.
function(gigabar_test name)
  cmake_parse_arguments(TEST "" "LABEL;TIMEOUT;FILTER" "SOURCES;LINK" ${ARGN})
  if(NOT TEST_LABEL)
    set(TEST_LABEL unit)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 120)
  endif()
  gigabar_test_program(${name} SOURCES ${TEST_SOURCES} LINK gigabar_internal gigabar_test_support ${TEST_LINK})
  if(NOT TEST_FILTER)
    set(TEST_FILTER *)
  endif()
  gtest_discover_tests(${name} TEST_FILTER ${TEST_FILTER} PROPERTIES LABELS ${TEST_LABEL} TIMEOUT ${TEST_TIMEOUT} DISCOVERY_TIMEOUT 60)
endfunction()

# gigabar_test_program(NAME SOURCES file... [LINK target...]): as gigabar_test, without ctest entries, and over nothing but LINK.
function(gigabar_test_program name)
  cmake_parse_arguments(TEST "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE gigabar_test_main ${TEST_LINK} gigabar_options GTest::gtest)
  gigabar_use_precompiled(${name} gigabar_test_headers)
endfunction()

# gigabar_test_sealed(NAME LABEL FILTER): those of a program's tests that GoogleTest's filter names once more, as sealed.*: over
# encrypted connections of tcp.
function(gigabar_test_sealed name label filter)
  gtest_discover_tests(${name} TEST_PREFIX sealed. TEST_FILTER ${filter} TEST_LIST ${name}_sealed
                       PROPERTIES LABELS ${label} TIMEOUT 120 ENVIRONMENT GIGABAR_TCP_PROTECTION=sealed DISCOVERY_TIMEOUT 60)
endfunction()

# gigabar_test_with_lanes(NAME COUNT LABEL FILTER): those of a program's tests that GoogleTest's filter names once more, as
# lanesCOUNT.*: with so many connections of tcp for large writes, whatever this machine's default is.
function(gigabar_test_with_lanes name count label filter)
  gtest_discover_tests(${name} TEST_PREFIX lanes${count}. TEST_FILTER ${filter} TEST_LIST ${name}_lanes${count}
                       PROPERTIES LABELS ${label} TIMEOUT 120 ENVIRONMENT GIGABAR_TCP_CONNECTIONS=${count} DISCOVERY_TIMEOUT 60)
endfunction()
