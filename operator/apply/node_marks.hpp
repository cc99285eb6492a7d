// SPDX-License-Identifier: Apache-2.0
// Labels of a node that say what its agent found, and a taint on one whose GPUs or fabric are at
// fault: for the schedulers and people who do not read NodeFabrics. Both are off unless asked for.
// The operator writes them, so that no agent needs leave to change Nodes.
//
// `marked` is pure. `mark_node` reads the node and writes it back only where something differs, on
// the version that it read; what others wrote stays.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "common/kube/api/api.hpp"
#include "operator/observe/views.hpp"

namespace paceline::apply {

struct MarkSettings {
  bool labels =
      // paceline.dev/gpu-healthy, fabric-healthy, gpu-direct-ready: "true" or "false"; unknown has
      // none
      false;
  bool taint = false;  // paceline.dev/unhealthy:NoSchedule while a GPU or the fabric is at fault
};

/// The merge patch that makes the Node say what the fabric says; null: it does.
nlohmann::json marked(const nlohmann::json& node, const observe::FabricView& fabric,
                      const MarkSettings& settings);

/// True when that took a write. A node that is gone needs none.
Result<bool> mark_node(kube::Api& api, const observe::FabricView& fabric,
                       const MarkSettings& settings);

}  // namespace paceline::apply
