// SPDX-License-Identifier: Apache-2.0
// What a rank's Python says of the exception that ends it, at once, while ending may take long (paceline/_failure.py writes it). It comes from the user's
// process: a short plain file or nothing.
#pragma once

#include <filesystem>
#include <optional>

#include "common/base/clock.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::process {

struct Raised {
  rendezvous::Cause cause = rendezvous::Cause::kOwn;  // kOwn or kPeer
  SteadyTime at;
};

/// Nothing where there is no such file, or one that is not as it must be: "MONOTONIC_NANOSECONDS own|peer". A time after `now` is `now`.
std::optional<Raised> read_raised(const std::filesystem::path& file, SteadyTime now);

}  // namespace paceline::process
