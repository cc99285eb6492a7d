// SPDX-License-Identifier: Apache-2.0
// The nodes of a gang, and their short form: the common start and end of the names, and between
// them what differs, with the number of pods where it is not 1: "gpu-{001,002*8,003}.local". The
// list of a gang on 10,000 nodes would not fit into a status.
//
// Pure. Node names contain none of the characters that separate the parts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace paceline::api {

/// Neighbours in node-rank order on the same node.
struct PlacedNode {
  std::string name;
  int pods = 0;
  bool operator==(const PlacedNode&) const = default;
};

std::string placement_text(const std::vector<PlacedNode>& placement);

/// Empty if the text has another form.
std::vector<PlacedNode> parse_placement_text(std::string_view text);

}  // namespace paceline::api
