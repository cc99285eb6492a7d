// SPDX-License-Identifier: Apache-2.0
// What the fake cluster refuses: bad names, unknown fields, changed pod specs, exceeded quotas.
#include <algorithm>
#include <cctype>
#include <cstdio>

#include "common/kube/fake/model.hpp"

namespace paceline::kube {
namespace {

bool is_dns_name(std::string_view name) {
  if (name.empty() || name.size() > 253) return false;
  const auto edge = [](char c) {
    return std::islower(static_cast<unsigned char>(c)) != 0 ||
           std::isdigit(static_cast<unsigned char>(c)) != 0;
  };
  return edge(name.front()) && edge(name.back()) &&
         std::ranges::all_of(name, [&](char c) { return edge(c) || c == '-' || c == '.'; });
}

bool same_but_images(const Document& before, const Document& after) {
  if (!before.is_array() || !after.is_array() || before.size() != after.size())
    return before == after;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    Document a = before[i];
    Document b = after[i];
    a.erase("image");
    b.erase("image");
    if (a != b) return false;
  }
  return true;
}

/// True if all fields of `before` that may not change are the same in `after`.
bool pod_spec_kept(const Document& before, const Document& after, bool was_gated) {
  for (const auto& [key, value] : before.items()) {
    if (key == "schedulingGates" || key == "tolerations" || key == "activeDeadlineSeconds")
      continue;
    // a gated pod may tighten them
    if (was_gated && (key == "nodeSelector" || key == "affinity")) continue;
    const auto now = after.find(key);
    const bool containers = key == "containers" || key == "initContainers";
    if (now == after.end() || !(containers ? same_but_images(value, *now) : value == *now))
      return false;
  }
  return true;
}

std::string join(const std::vector<std::string>& fields) {
  std::string text;
  for (const auto& field : fields)
    text += (text.empty() ? "unknown field \"" : ", unknown field \"") + field + "\"";
  return text;
}

}  // namespace

std::string string_at(const Document& object, const char* first, const char* second) {
  const auto outer = object.find(first);
  if (outer == object.end() || !outer->is_object()) return {};
  const auto inner = outer->find(second);
  return inner != outer->end() && inner->is_string() ? inner->get<std::string>() : std::string();
}

std::vector<std::string> gates_of(const Document& pod) {
  std::vector<std::string> gates;
  const auto& spec = pod["spec"];
  if (!spec.contains("schedulingGates") || !spec["schedulingGates"].is_array()) return gates;
  for (const auto& gate : spec["schedulingGates"]) gates.push_back(gate.value("name", ""));
  return gates;
}

Outcome<bool> check_pod_update(const Document& before, const Document& after) {
  const auto old_gates = gates_of(before);
  for (const auto& gate : gates_of(after)) {
    if (std::ranges::find(old_gates, gate) == old_gates.end()) {
      return refuse(422, "Invalid",
                    "Pod \"" + string_at(after, "metadata", "name") +
                        "\" is invalid: spec.schedulingGates: Forbidden: only deletion is allowed, "
                        "but found new "
                        "scheduling gate '" +
                        gate + "'");
    }
  }
  const bool gated = !old_gates.empty();
  const Document& a = before["spec"];
  const Document& b = after["spec"];
  if (!pod_spec_kept(a, b, gated) || !pod_spec_kept(b, a, gated)) {
    return refuse(
        422, "Invalid",
        "Pod \"" + string_at(after, "metadata", "name") +
            "\" is invalid: spec: Forbidden: pod updates may not change fields other than "
            "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`"
            ",`spec."
            "tolerations` (only additions to existing "
            "tolerations),`spec.terminationGracePeriodSeconds` "
            "(allow it to be set to 1 if it was previously negative)");
  }
  return true;
}

Outcome<bool> FakeModel::check_new(const Resource& resource, std::string_view ns, Document& object,
                                   bool strict) {
  if (!object.is_object() || object.value("kind", "") != resource.kind ||
      object.value("apiVersion", "") != resource.api_version()) {
    return refuse(400, "BadRequest",
                  "the object provided is not a " + resource.api_version() + " " +
                      std::string(resource.kind));
  }
  if (!object.contains("metadata") || !object["metadata"].is_object())
    object["metadata"] = Document::object();
  auto& meta = object["metadata"];
  if (resource.namespaced) {
    const std::string named = meta.value("namespace", "");
    if (!named.empty() && named != ns) {
      return refuse(
          400, "BadRequest",
          "the namespace of the provided object does not match the namespace sent on the request");
    }
    meta["namespace"] = ns;
  } else {
    meta.erase("namespace");
  }
  if (strict) {
    if (const auto unknown = unknown_fields(resource, object); !unknown.empty()) {
      return refuse(400, "BadRequest",
                    std::string(resource.kind) + " in version \"" + std::string(resource.version) +
                        "\" cannot be handled as a " + std::string(resource.kind) +
                        ": strict decoding error: " + join(unknown));
    }
  }
  if (meta.value("name", "").empty() && !meta.value("generateName", "").empty()) {
    char suffix[16];
    std::snprintf(suffix, sizeof suffix, "%05llx",
                  static_cast<unsigned long long>(next_uid * 2654435761U % 0xFFFFF));
    meta["name"] = meta["generateName"].get<std::string>() + suffix;
  }
  const std::string name = meta.value("name", "");
  if (!is_dns_name(name)) {
    return refuse(422, "Invalid",
                  std::string(resource.kind) + " \"" + name +
                      "\" is invalid: metadata.name: Invalid value: \"" + name +
                      "\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
                      "characters, '-' or "
                      "'.', and must start and end with an alphanumeric character");
  }
  if (resource.plural == kPods.plural &&
      (!object.contains("spec") || !object["spec"].contains("containers") ||
       object["spec"]["containers"].empty())) {
    return refuse(422, "Invalid",
                  "Pod \"" + name + "\" is invalid: spec.containers: Required value");
  }
  return true;
}

Outcome<bool> FakeModel::check_quota(std::string_view ns) const {
  const auto quotas = collections.find(kResourceQuotas.plural);
  if (quotas == collections.end()) return true;
  for (const auto& [key, quota] : quotas->second) {
    if (quota.object["metadata"].value("namespace", "") != ns) continue;
    const auto& hard = quota.object["spec"]["hard"];
    const auto limit = hard.find("pods");
    if (limit == hard.end()) continue;
    const long allowed =
        limit->is_string() ? std::stol(limit->get<std::string>()) : limit->get<long>();
    long used = 0;
    if (const auto pods = collections.find(kPods.plural); pods != collections.end()) {
      for (const auto& [pod_key, pod] : pods->second) {
        const std::string phase = string_at(pod.object, "status", "phase");
        used += pod.object["metadata"].value("namespace", "") == ns && phase != "Succeeded" &&
                        phase != "Failed"
                    ? 1
                    : 0;
      }
    }
    if (used + 1 > allowed) {
      return refuse(403, "Forbidden",
                    "exceeded quota: " + quota.object["metadata"].value("name", "") +
                        ", requested: pods=1, used: pods=" + std::to_string(used) +
                        ", limited: pods=" + std::to_string(allowed));
    }
  }
  return true;
}

}  // namespace paceline::kube
