// SPDX-License-Identifier: Apache-2.0
// Versions in the JSON of an object or a bookmark. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace paceline::kube {

/// metadata.resourceVersion of an object as a number; 0 if it is absent or not a number.
std::uint64_t version_of(std::string_view object);
/// True if the object of a bookmark says that the initial list is complete.
bool ends_initial_events(std::string_view bookmark);

}  // namespace paceline::kube
