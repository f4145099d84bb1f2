# How a room, a unit test and a warning level are declared; used by every CMakeLists.txt below.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
find_package(Threads REQUIRED)

add_library(gigabar_options INTERFACE)
target_compile_options(
  gigabar_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow>
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

# gigabar_room(NAME SOURCES file... [DEPENDS room...]): the static library gigabar_NAME. Inside the project, headers are named from
# src/ ("memory/window.hpp") and from include/ ("gigabar/memory.hpp").
function(gigabar_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(gigabar_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(gigabar_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(gigabar_${name} PUBLIC Threads::Threads PRIVATE gigabar_options)
  foreach(below IN LISTS ROOM_DEPENDS)
    target_link_libraries(gigabar_${name} PUBLIC gigabar_${below})
  endforeach()
endfunction()

# gigabar_test(NAME SOURCES file... LINK target... [LABEL unit|fault|conformance|gpu] [TIMEOUT seconds]): a GoogleTest program,
# one ctest entry per TEST.
function(gigabar_test name)
  cmake_parse_arguments(TEST "" "LABEL;TIMEOUT" "SOURCES;LINK" ${ARGN})
  if(NOT TEST_LABEL)
    set(TEST_LABEL unit)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 60)
  endif()
  add_executable(${name} ${TEST_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${TEST_LINK} gigabar_options gigabar_test_main GTest::gtest)
  gtest_discover_tests(${name} PROPERTIES LABELS ${TEST_LABEL} TIMEOUT ${TEST_TIMEOUT} DISCOVERY_TIMEOUT 60)
endfunction()

# gigabar_test_with_lanes(NAME COUNT LABEL FILTER): those of a program's tests that GoogleTest's filter names once more, as
# lanesCOUNT.*: with so many connections of ucx for large writes, whatever this machine's default is.
function(gigabar_test_with_lanes name count label filter)
  gtest_discover_tests(${name} TEST_PREFIX lanes${count}. TEST_FILTER ${filter} TEST_LIST ${name}_lanes${count}
                       PROPERTIES LABELS ${label} TIMEOUT 120 ENVIRONMENT GIGABAR_UCX_CONNECTIONS=${count} DISCOVERY_TIMEOUT 60)
endfunction()
