// SPDX-License-Identifier: Apache-2.0
// The only header that includes spdlog. Include it before all other headers: fmt 9 clashes over
// std::byte with headers that include simdjson, CLI11 or Boost.
#pragma once

#include <spdlog/spdlog.h>
