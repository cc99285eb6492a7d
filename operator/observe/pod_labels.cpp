// SPDX-License-Identifier: Apache-2.0
#include "operator/observe/pod_labels.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include <nlohmann/json.hpp>

#include "common/contract/env.hpp"
#include "common/contract/labels.hpp"

namespace paceline::observe {
namespace {

using kube::at;
using kube::items;
using simdjson::dom::element;

/// Foreign authors write labels, too: what is no number from 0 on counts as absent.
int number(std::string_view digits, int otherwise) {
  int value = otherwise;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value < 0 ? otherwise : value;
}

/// The launcher's settings, which a pod's spec keeps for its whole life.
nlohmann::json settings_of(const element& pod) {
  for (const element container : items(at(pod, "spec", "containers"))) {
    for (const element variable : items(at(container, "env"))) {
      if (text(at(variable, "name")) == env::kSettings.name)
        return nlohmann::json::parse(text(at(variable, "value")), nullptr, false);
    }
  }
  return {};
}

}  // namespace

int label_number(const element& pod, std::string_view label, int otherwise) {
  return number(text(at(pod, "metadata", "labels", label)), otherwise);
}

int node_rank_of(const element& pod) {
  const int labelled = label_number(pod, contract::kLabelNodeRank, -1);
  if (labelled >= 0) return labelled;
  const nlohmann::json settings = settings_of(pod);
  const auto rank = settings.is_object() ? settings.find("NODE_RANK") : settings.end();
  if (!settings.is_object() || rank == settings.end() || !rank->is_string()) return -1;
  return number(rank->get_ref<const std::string&>(), -1);
}

int incarnation_of(const element& pod) {
  const std::string_view name = text(at(pod, "metadata", "name"));
  const int named = number(name.substr(name.rfind('-') + 1), 0);
  return label_number(pod, contract::kLabelIncarnation, std::max(0, named));
}

}  // namespace paceline::observe
