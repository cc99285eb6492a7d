// SPDX-License-Identifier: Apache-2.0
// Collects one trace from all launchers of a job. It measures their clocks, agrees on a step that
// no rank has reached, and asks all ranks. It waits until they are done or the time is over, and
// passes on step records and files. At the end, and after a failure, it takes the request back
// everywhere.
//
// Blocks; uses a few threads while it asks many launchers. Memory: a piece of one file at a time.
// Failure: an Error for the person who asked. A rank that does not take part is no failure; it is
// named in its `rank` line.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/net/address.hpp"

namespace paceline::traces {

struct TraceOptions {
  std::uint64_t steps = 5;
  bool records_only = false;
  std::optional<std::chrono::seconds> time_limit{};  // for the ranks to finish
  std::string by = "somebody";
};

struct Launchers {
  std::vector<net::Address> addresses;  // node rank 0 first
  std::string token;
};

/// Takes one line of the output; an Error if nobody reads it any more.
using TraceSink = std::function<Status(const nlohmann::json&)>;

Status collect(const Launchers& launchers, const TraceOptions& options, const TraceSink& sink);

}  // namespace paceline::traces
