// SPDX-License-Identifier: Apache-2.0
// The headers that all files of this folder include and that take most of their build time.
#pragma once

#include <utility>

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
