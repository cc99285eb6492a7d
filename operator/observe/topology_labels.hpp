// SPDX-License-Identifier: Apache-2.0
// Which domain of each level of the network a node is in, as its labels say. Cloud providers,
// NVIDIA's GPU operator and Topograph set such labels; paceline.dev/leaf and its like are for
// clusters where nothing does. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "operator/api/training_job.hpp"

namespace paceline::observe {

/// A node's label, or nullptr where it has none of that key.
using Label = std::function<const std::string*(std::string_view key)>;

/// Empty if no label says it. Of several labels, the one that an administrator set wins.
std::string domain_by_labels(const Label& label, api::TopologyLevel level);

}  // namespace paceline::observe
