# SPDX-License-Identifier: Apache-2.0
# Builds what the user's processes load so that it loads in images as old as glibc 2.28, whatever
# this machine has.
set(CMAKE_SYSTEM_NAME Linux)
# CMake asks nobody when the system is named: without it no instruction set is chosen.
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_HOST_SYSTEM_PROCESSOR})
set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig/cc)
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig/c++)
set(CMAKE_AR ${CMAKE_CURRENT_LIST_DIR}/zig/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${CMAKE_CURRENT_LIST_DIR}/zig/ranlib CACHE FILEPATH "")
# It asks its C++ library for the function std::unexpected of C++14, which hides the class of C++23.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-U_LIBCPP_ENABLE_CXX17_REMOVED_UNEXPECTED_FUNCTIONS>)
