// SPDX-License-Identifier: Apache-2.0
// The one way to spdlog. Include it before everything else: fmt 9 and headers that bring in
// simdjson, CLI11 or Boost clash over std::byte.
#pragma once

#include <spdlog/spdlog.h>
