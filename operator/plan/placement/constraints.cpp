// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/constraints.hpp"

#include <algorithm>
#include <charconv>

namespace paceline::plan {
namespace {

using nlohmann::json;

std::string text(const json& object, const char* key) {
  const auto it = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

const json& child(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

Requirement read_requirement(const json& value, bool field) {
  Requirement requirement{text(value, "key"), text(value, "operator"), {}, field};
  for (const json& entry : child(value, "values")) {
    if (entry.is_string()) requirement.values.push_back(entry.get<std::string>());
  }
  return requirement;
}

bool number_of(const std::string& text, std::int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool holds(const Requirement& requirement, const observe::NodeView& node) {
  if (requirement.field && requirement.key != "metadata.name") return false;
  const std::string* value = requirement.field ? &node.meta.name : node.label(requirement.key);
  const bool listed =
      value != nullptr && std::find(requirement.values.begin(), requirement.values.end(), *value) !=
                              requirement.values.end();
  if (requirement.op == "In") return listed;
  if (requirement.op == "NotIn") return !listed;
  if (requirement.op == "Exists") return value != nullptr;
  if (requirement.op == "DoesNotExist") return value == nullptr;
  if (requirement.op == "Gt" || requirement.op == "Lt") {
    std::int64_t have = 0;
    std::int64_t bound = 0;
    if (value == nullptr || requirement.values.size() != 1 || !number_of(*value, have) ||
        !number_of(requirement.values[0], bound))
      return false;
    return requirement.op == "Gt" ? have > bound : have < bound;
  }
  return false;
}

bool meets(const NodeTerms& terms, const observe::NodeView& node) {
  // A term without requirements selects no node, as in the API.
  return terms.empty() || std::any_of(terms.begin(), terms.end(), [&](const auto& term) {
           return !term.empty() && std::all_of(term.begin(), term.end(), [&](const Requirement& r) {
             return holds(r, node);
           });
         });
}

bool tolerates(const Toleration& toleration, const observe::Taint& taint) {
  if (!toleration.effect.empty() && toleration.effect != taint.effect) return false;
  if (toleration.op == "Exists") return toleration.key.empty() || toleration.key == taint.key;
  return toleration.key == taint.key && toleration.value == taint.value;
}

}  // namespace

NodeTerms read_terms(const json& node_selector) {
  NodeTerms terms;
  for (const json& term : child(node_selector, "nodeSelectorTerms")) {
    auto& requirements = terms.emplace_back();
    for (const json& value : child(term, "matchExpressions"))
      requirements.push_back(read_requirement(value, false));
    for (const json& value : child(term, "matchFields"))
      requirements.push_back(read_requirement(value, true));
  }
  return terms;
}

Constraints read_constraints(const json& pod_spec) {
  Constraints constraints;
  const json& selector = child(pod_spec, "nodeSelector");
  if (selector.is_object()) {
    for (const auto& [key, value] : selector.items())
      constraints.selector.emplace_back(key, value.is_string() ? value.get<std::string>() : "");
  }
  const json& required = child(child(child(pod_spec, "affinity"), "nodeAffinity"),
                               "requiredDuringSchedulingIgnoredDuringExecution");
  constraints.terms = read_terms(required);
  for (const json& value : child(pod_spec, "tolerations")) {
    constraints.tolerations.push_back(
        {text(value, "key"), text(value, "operator"), text(value, "value"), text(value, "effect")});
  }
  return constraints;
}

namespace {

json write_term(const std::vector<Requirement>& requirements) {
  json term = json::object();
  for (const Requirement& requirement : requirements) {
    json entry = {{"key", requirement.key}, {"operator", requirement.op}};
    if (!requirement.values.empty()) entry["values"] = requirement.values;
    term[requirement.field ? "matchFields" : "matchExpressions"].push_back(std::move(entry));
  }
  return term;
}

/// The alternatives of both lists, each with each.
NodeTerms both(const NodeTerms& a, const NodeTerms& b) {
  if (a.empty()) return b;
  NodeTerms product;
  for (const auto& first : a) {
    for (const auto& second : b) {
      product.push_back(first);
      product.back().insert(product.back().end(), second.begin(), second.end());
    }
  }
  return b.empty() ? a : product;
}

/// Admission adds these to every pod, with a time after which they end.
bool is_default(const Toleration& toleration) {
  return toleration.effect == "NoExecute" && (toleration.key == "node.kubernetes.io/not-ready" ||
                                              toleration.key == "node.kubernetes.io/unreachable");
}

}  // namespace

json write_constraints(const Constraints& constraints) {
  json spec = json::object();
  for (const auto& [key, value] : constraints.selector) spec["nodeSelector"][key] = value;
  NodeTerms terms = constraints.terms;
  for (const NodeTerms& volume : constraints.volumes) terms = both(terms, volume);
  for (const std::string& node : constraints.excluded)
    terms = both(terms, {{{"metadata.name", "NotIn", {node}, true}}});
  if (!terms.empty()) {
    json& list = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                     ["nodeSelectorTerms"];
    for (const auto& term : terms) list.push_back(write_term(term));
  }
  for (const Toleration& toleration : constraints.tolerations) {
    if (is_default(toleration)) continue;
    json& entry = spec["tolerations"].emplace_back(json::object());
    for (const auto& [field, value] : {std::pair{"key", &toleration.key},
                                       {"operator", &toleration.op},
                                       {"value", &toleration.value},
                                       {"effect", &toleration.effect}}) {
      if (!value->empty()) entry[field] = *value;
    }
  }
  return spec;
}

bool keeps_off(const observe::Taint& taint, const Constraints& constraints) {
  return taint.effect != "PreferNoSchedule" &&
         std::ranges::none_of(constraints.tolerations,
                              [&](const Toleration& t) { return tolerates(t, taint); });
}

std::string refusal(const Constraints& constraints, const observe::NodeView& node,
                    const observe::FabricView* fabric) {
  if (!node.ready) return "not ready";
  if (node.unschedulable) return "cordoned";
  for (const observe::Taint& taint : node.taints) {
    if (keeps_off(taint, constraints)) return "taint " + taint.key;
  }
  for (const auto& [key, value] : constraints.selector) {
    const std::string* label = node.label(key);
    if (label == nullptr || *label != value) return "node selector";
  }
  if (!meets(constraints.terms, node)) return "node affinity";
  for (const NodeTerms& volume : constraints.volumes) {
    if (!meets(volume, node)) return "out of reach of a volume";
  }
  if (std::ranges::find(constraints.excluded, node.meta.name) != constraints.excluded.end())
    return "where this job failed";
  if (constraints.gpu_direct && (fabric == nullptr || fabric->gpu_direct_reason.empty()))
    return "without a living agent's word on GPUDirect";
  if (constraints.gpu_direct && fabric->gpu_direct != observe::Verdict::kTrue)
    return "not GpuDirectReady (" + fabric->gpu_direct_reason + ")";
  return "";
}

}  // namespace paceline::plan
