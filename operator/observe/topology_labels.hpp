// SPDX-License-Identifier: Apache-2.0
// Which domain of each level of the network a node is in, as its labels say. Cloud providers,
// NVIDIA's GPU operator and Topograph set such labels; paceline.dev/leaf and its like are for
// clusters where nothing does. Pure.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/training_job.hpp"

namespace paceline::observe {

/// A node's label, or nullptr where it has none of that key.
using Label = std::function<const std::string*(std::string_view key)>;

/// Empty if no label says it. Of several labels, the one that an administrator set wins.
std::string domain_by_labels(const Label& label, api::TopologyLevel level);

/// By api::TopologyLevel; empty: no label.
using LevelLabels = std::array<std::string, api::kTopologyLevels.size()>;

/// Which of an administrator's labels names which level, beside those that domain_by_labels reads.
/// `labels` go from the widest to the closest. Between labels that are read anyway, the closest one
/// names the closest level that is left: Leaf, Spine or Zone. A label without a level left names
/// none, and neither does the node's own name.
LevelLabels levels_of(const std::vector<std::string>& labels);

/// Which of an administrator's labels, from the widest, names the level: one that domain_by_labels
/// reads for it, or one of levels_of. Empty: none.
std::string label_of_level(const std::vector<std::string>& labels, api::TopologyLevel level);

}  // namespace paceline::observe
