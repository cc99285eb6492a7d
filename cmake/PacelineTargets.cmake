# SPDX-License-Identifier: Apache-2.0
# How every target of Paceline is built: warnings are errors, includes start at the repository root,
# third-party headers are SYSTEM (imported targets are), ccache where it is installed.
find_package(Threads REQUIRED)
find_program(CCACHE ccache)
if(CCACHE)
  # Paths below the checkout count as relative, so that every checkout shares the cache; a
  # precompiled header is known by its content. Not in depend mode: it takes paths as they are.
  set(ccache_call ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${ccache_call})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_call})
endif()

add_library(paceline_options INTERFACE)
target_include_directories(paceline_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(paceline_options INTERFACE -Wall -Wextra -Wpedantic -Werror)
target_compile_definitions(paceline_options INTERFACE PACELINE_VERSION="${PROJECT_VERSION}")
target_link_libraries(paceline_options INTERFACE Threads::Threads)
if(PACELINE_SHARED_JSON)
  # See cmake/json/nlohmann/json.hpp. Linked by every target, so that it comes last.
  add_library(paceline_json_instances STATIC ${CMAKE_SOURCE_DIR}/cmake/json/instances.cpp)
  target_include_directories(paceline_json_instances SYSTEM PUBLIC ${CMAKE_SOURCE_DIR}/cmake/json)
  if(PACELINE_SANITIZE)
    target_compile_options(paceline_json_instances PRIVATE -fsanitize=${PACELINE_SANITIZE} -fno-omit-frame-pointer)
  endif()
  target_link_libraries(paceline_options INTERFACE paceline_json_instances)
endif()
if(PACELINE_SANITIZE)
  target_compile_options(paceline_options INTERFACE -fsanitize=${PACELINE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(paceline_options INTERFACE -fsanitize=${PACELINE_SANITIZE})
  if(PACELINE_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # TSan does not model fences, which Asio has beside its locks.
    target_compile_options(paceline_options INTERFACE -Wno-tsan)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Boost 1.74 does not recognise the coroutines of clang 19 by itself.
  target_compile_definitions(paceline_options INTERFACE BOOST_ASIO_HAS_CO_AWAIT BOOST_ASIO_HAS_STD_COROUTINE)
endif()

# In unity builds several sources are one translation unit, so log.hpp must come before the first of
# them, not before each. Names in unnamed namespaces are then unique within a library. The presets
# of CI build so, since headers cost more than our code: the operator's libraries took 115 s at -O2
# on two cores, and 283 s source by source.
function(paceline_unity_order name)
  get_target_property(unity ${name} UNITY_BUILD)
  if(NOT unity)
    return()
  endif()
  foreach(source IN LISTS ARGN)
    if(IS_ABSOLUTE ${source} OR NOT source MATCHES "\\.cpp$")
      continue()
    endif()
    file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/${source} logs REGEX "common/base/log\\.hpp" LIMIT_COUNT 1)
    if(logs)
      set_target_properties(${name} PROPERTIES UNITY_BUILD_CODE_BEFORE_INCLUDE "#include \"common/base/log.hpp\"")
      return()
    endif()
  endforeach()
endfunction()

# paceline_add_library(NAME SOURCES… [LINK libraries…])
function(paceline_add_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  paceline_unity_order(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC paceline_options ${ARG_LINK})
endfunction()

# paceline_add_executable(NAME SOURCES… [LINK libraries…])
function(paceline_add_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  paceline_unity_order(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE paceline_options ${ARG_LINK})
endfunction()

# What ctest needs, and no program beside it: every unit test, and those of code that runs in several
# threads, which alone are worth building with ThreadSanitizer. No test is part of `all`: unit tests
# run sanitized (preset asan), so the preset release would compile them for nothing.
add_custom_target(paceline_unit_tests)
add_custom_target(paceline_threaded_tests)
if(BUILD_TESTING AND NOT PACELINE_ACCEL_ONLY)
  add_dependencies(paceline_unit_tests accel_test)
  add_dependencies(paceline_threaded_tests accel_test)
endif()

# paceline_add_test(NAME [THREADED] [LABEL label] [SECONDS limit] SOURCES… [LINK libraries…]): one
# GoogleTest executable, every case known to ctest. With a LABEL it is no unit test.
function(paceline_add_test name)
  cmake_parse_arguments(ARG "THREADED" "SECONDS;LABEL" "SOURCES;LINK" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SOURCES})
  # The preset `release` optimises what is shipped; its tests are compiled lightly.
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O1)
  endif()
  paceline_unity_order(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE paceline_options ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE PACELINE_SOURCE_DIR="${CMAKE_SOURCE_DIR}" PACELINE_BINARY_DIR="${CMAKE_BINARY_DIR}")
  # One label each: gtest_discover_tests takes no list.
  set(label unit)
  if(ARG_LABEL)
    set(label ${ARG_LABEL})
  else()
    add_dependencies(paceline_unit_tests ${name})
  endif()
  if(ARG_THREADED)
    set(label threads)
    add_dependencies(paceline_threaded_tests ${name})
  endif()
  # A sanitized test is several times slower.
  set(limit 60)
  if(ARG_SECONDS)
    set(limit ${ARG_SECONDS})
  elseif(PACELINE_SANITIZE)
    set(limit 300)
  endif()
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES LABELS ${label} TIMEOUT ${limit})
endfunction()
