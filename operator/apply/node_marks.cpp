// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/node_marks.hpp"

#include <algorithm>
#include <utility>

#include "common/contract/labels.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;
using observe::Verdict;

json told(Verdict verdict) {
  if (verdict == Verdict::kUnknown) return nullptr;
  return verdict == Verdict::kTrue ? "true" : "false";
}

json changed_labels(const json& node, const observe::FabricView& fabric) {
  const json labels = node.value("/metadata/labels"_json_pointer, json::object());
  json changes = json::object();
  for (const auto& [label, verdict] :
       {std::pair{contract::kLabelGpuHealthy, fabric.gpu_healthy},
        std::pair{contract::kLabelFabricHealthy, fabric.fabric_healthy},
        std::pair{contract::kLabelGpuDirectReady, fabric.gpu_direct}}) {
    const std::string name(label);
    const json wanted = told(verdict);
    if (labels.value(name, json()) != wanted) changes[name] = wanted;
  }
  return changes;
}

/// The whole list, as the API expects it; null: no change.
json changed_taints(const json& node, bool wanted) {
  json taints = node.value("/spec/taints"_json_pointer, json::array());
  const auto ours = [](const json& taint) {
    return taint.value("key", "") == contract::kUnhealthyTaint &&
           taint.value("effect", "") == "NoSchedule";
  };
  const auto found = std::find_if(taints.begin(), taints.end(), ours);
  if ((found != taints.end()) == wanted) return nullptr;
  if (wanted) {
    taints.push_back({{"key", contract::kUnhealthyTaint}, {"effect", "NoSchedule"}});
  } else {
    taints.erase(found);
  }
  return taints;
}

}  // namespace

json marked(const json& node, const observe::FabricView& fabric, const MarkSettings& settings) {
  json patch;
  if (settings.labels) {
    if (json labels = changed_labels(node, fabric); !labels.empty())
      patch["metadata"]["labels"] = std::move(labels);
  }
  if (settings.taint) {
    if (json taints = changed_taints(node, fabric.ailing()); !taints.is_null())
      patch["spec"]["taints"] = std::move(taints);
  }
  if (!patch.is_null())
    patch["metadata"]["resourceVersion"] =
        node.value("/metadata/resourceVersion"_json_pointer, std::string());
  return patch;
}

Result<bool> mark_node(kube::Api& api, const observe::FabricView& fabric,
                       const MarkSettings& settings) {
  const std::string& name = fabric.meta.name;
  const auto found = api.get(kube::kNodes, "", name);
  if (!found && found.error().code == Code::kNotFound) return false;
  if (!found) return std::unexpected(found.error());
  const json node = json::parse(*found, nullptr, false);
  if (!node.is_object())
    return fail(Code::kInvalid, Origin::kProtocol, "Node " + name + " is not a JSON object");
  const json patch = marked(node, fabric, settings);
  if (patch.is_null()) return false;
  if (const auto written = api.patch(kube::kNodes, "", name, patch.dump()); !written)
    return std::unexpected(written.error());
  return true;
}

}  // namespace paceline::apply
