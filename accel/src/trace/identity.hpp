// SPDX-License-Identifier: Apache-2.0
// What a rank claims about itself in its ring's header, read from its environment and /proc.
// Stateless; may be called from any thread while nobody changes the environment. Nothing fails:
// what cannot be read is marked unknown.
#pragma once

#include <cstdint>

#include "paceline/paceline.h"

namespace paceline::trace {

/// Injected, so that tests give their own environment.
using Getenv = const char* (*)(const char*);

const char* process_environment(const char* name);

paceline_ring_header identify(Getenv environment, const paceline_options& options,
                              std::uint32_t ring_epoch);

/// A whole number in [low, high] from the first of the named variables that holds one, else
/// `fallback`.
std::int32_t number_from(Getenv environment, const char* first, const char* second,
                         std::int32_t low, std::int32_t high, std::int32_t fallback);

std::uint64_t monotonic_ns();

}  // namespace paceline::trace
