// SPDX-License-Identifier: Apache-2.0
// The handle behind the opaque paceline_shards, for the exported functions that take one.
#pragma once

#include <memory>

#include "loader/shards/shards.hpp"

struct paceline_shards {
  std::unique_ptr<paceline::loader::Shards> it;
};
