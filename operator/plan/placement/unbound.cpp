// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/unbound.hpp"

#include <algorithm>

#include "operator/api/template/containers.hpp"

namespace paceline::plan {
namespace {

using nlohmann::json;
using nlohmann::literals::operator""_json_pointer;

/// What stands there, or null.
json at(const json& object, const json::json_pointer& where) {
  return object.is_object() && object.contains(where) ? object.at(where) : json();
}

json text_or(const json& object, const json::json_pointer& where, const char* otherwise) {
  const json found = at(object, where);
  return found.is_string() ? found : json(otherwise);
}

bool holds_all(const json& volume_modes, const json& claim_modes) {
  return std::ranges::all_of(claim_modes, [&](const json& mode) {
    return std::ranges::find(volume_modes, mode) != volume_modes.end();
  });
}

/// A volume without a claim, or one that is kept for this claim.
bool is_free_for(const json& claim, const json& volume) {
  const json kept_for = at(volume, "/spec/claimRef"_json_pointer);
  if (kept_for.is_null()) return at(volume, "/status/phase"_json_pointer) == "Available";
  const json uid = at(kept_for, "/uid"_json_pointer);
  // That of a claim which is gone keeps the volume from a new one of the same name.
  const bool of_another =
      uid.is_string() && uid != "" && uid != at(claim, "/metadata/uid"_json_pointer);
  return !of_another && at(claim, "/metadata"_json_pointer).is_object() &&
         at(kept_for, "/name"_json_pointer) == at(claim, "/metadata/name"_json_pointer) &&
         at(kept_for, "/namespace"_json_pointer) == at(claim, "/metadata/namespace"_json_pointer);
}

bool is_large_enough(const json& claim, const json& volume) {
  const auto asked =
      api::parse_quantity_milli(at(claim, "/spec/resources/requests/storage"_json_pointer));
  const auto has = api::parse_quantity_milli(at(volume, "/spec/capacity/storage"_json_pointer));
  return has.value_or(0) >= asked.value_or(0);
}

bool has_labels(const json& claim, const json& volume) {
  const json wanted = at(claim, "/spec/selector/matchLabels"_json_pointer);
  const json labels = at(volume, "/metadata/labels"_json_pointer);
  return std::ranges::all_of(wanted.items(), [&](const auto& label) {
    return labels.is_object() && labels.contains(label.key()) &&
           labels[label.key()] == label.value();
  });
}

}  // namespace

bool makes_volumes(const json& storage_class) {
  const json provisioner = text_or(storage_class, "/provisioner"_json_pointer, "");
  return provisioner != "" && provisioner != "kubernetes.io/no-provisioner";
}

NodeTerms allowed_nodes(const json& storage_class) {
  NodeTerms terms;
  for (const json& term : at(storage_class, "/allowedTopologies"_json_pointer)) {
    std::vector<Requirement>& requirements = terms.emplace_back();
    for (const json& label : at(term, "/matchLabelExpressions"_json_pointer)) {
      Requirement requirement{label.value("key", ""), "In", {}};
      for (const json& value : label.value("values", json::array()))
        requirement.values.push_back(value.get<std::string>());
      requirements.push_back(std::move(requirement));
    }
  }
  return terms;
}

bool may_take(const json& claim, const json& volume) {
  const auto storage_class = "/spec/storageClassName"_json_pointer;
  const auto mode = "/spec/volumeMode"_json_pointer;
  const auto access = "/spec/accessModes"_json_pointer;
  return at(volume, storage_class) == at(claim, storage_class) &&
         at(volume, "/metadata/deletionTimestamp"_json_pointer).is_null() &&
         text_or(volume, mode, "Filesystem") == text_or(claim, mode, "Filesystem") &&
         holds_all(at(volume, access), at(claim, access)) && is_free_for(claim, volume) &&
         is_large_enough(claim, volume) && has_labels(claim, volume);
}

NodeTerms any_of(const std::vector<NodeTerms>& volumes) {
  NodeTerms all;
  for (const NodeTerms& terms : volumes) {
    if (terms.empty()) return {};  // every node reaches this one
    for (const auto& term : terms) {
      // Local volumes differ in the name of the node. One list of names stays short where terms
      // are multiplied: a pod may mount several volumes.
      const auto like = std::ranges::find_if(all, [&](const auto& known) {
        return term.size() == 1 && known.size() == 1 && term[0].op == "In" && known[0].op == "In" &&
               term[0].key == known[0].key && term[0].field == known[0].field;
      });
      if (like == all.end()) {
        all.push_back(term);
        continue;
      }
      for (const std::string& value : term[0].values) {
        std::vector<std::string>& values = like->front().values;
        if (std::ranges::find(values, value) == values.end()) values.push_back(value);
      }
    }
  }
  return all;
}

json expected_volume(const json& claim, const json& storage_class) {
  if (!makes_volumes(storage_class)) return {};
  return {{"spec",
           {{"accessModes", at(claim, "/spec/accessModes"_json_pointer)},
            {"csi", {{"driver", storage_class.at("provisioner")}}}}}};
}

Waiting no_free_volume(const ClaimUse& use, const std::string& storage_class, bool found) {
  const std::string claim =
      use.name.empty() ? "the claim of a new pod" : "PersistentVolumeClaim \"" + use.name + "\"";
  const std::string none = found ? "makes no volumes" : "does not exist";
  return {"NoFreeVolume", use.path + ": StorageClass \"" + storage_class + "\" " + none +
                              ", and no PersistentVolume of it is free for " + claim +
                              "; create one that fits, or name another StorageClass"};
}

}  // namespace paceline::plan
