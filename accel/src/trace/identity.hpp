// SPDX-License-Identifier: Apache-2.0
// What a rank claims about itself in the header of its ring, read from its environment and /proc.
// Stateless. Any thread may call while no thread changes the environment. Nothing fails: values
// that cannot be read are marked unknown.
#pragma once

#include <cstdint>

#include "paceline/paceline.h"

namespace paceline::trace {

/// Injected, so that tests can pass an environment.
using Getenv = const char* (*)(const char*);

const char* process_environment(const char* name);

paceline_ring_header identify(Getenv environment, const paceline_options& options,
                              std::uint32_t ring_epoch);

/// Returns the number from the first of the named variables that holds a whole number in [low,
/// high], else `fallback`.
std::int32_t number_from(Getenv environment, const char* first, const char* second,
                         std::int32_t low, std::int32_t high, std::int32_t fallback);

}  // namespace paceline::trace
