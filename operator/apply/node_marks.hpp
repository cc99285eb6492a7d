// SPDX-License-Identifier: Apache-2.0
// Node labels that say what the node's agent found, and a taint for nodes whose GPUs or fabric are
// faulty. They serve schedulers and people who do not read NodeFabrics. Both are off by default.
// The operator writes them, so that agents need no permission to change Nodes.
//
// `marked` is pure. `mark_node` reads the node and, if something differs, writes it back on the
// version that it read. Labels and taints of others stay.
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
