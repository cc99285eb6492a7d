// SPDX-License-Identifier: Apache-2.0
#include "operator/api/fingerprint.hpp"

#include <algorithm>

namespace paceline::api {
namespace {

/// What the job itself says of acceleration; empty: nothing.
nlohmann::json asked_of(const AccelerationChoice& choice) {
  nlohmann::json asked = nlohmann::json::object();
  if (choice.mode) asked["mode"] = static_cast<int>(*choice.mode);
  if (choice.numerics) asked["numerics"] = to_string(*choice.numerics);
  for (std::size_t i = 0; i < choice.features.size(); ++i) {
    if (choice.features[i]) asked[std::string(contract::kFeatures[i].name)] = *choice.features[i];
  }
  return asked;
}

/// No digit of a hash, with which earlier fingerprints begin.
constexpr char kPresentForm = 'v';

/// The template with its containers in the order of their names: the API server takes another order
/// for no change.
nlohmann::json ordered(nlohmann::json pod_template) {
  const nlohmann::json::json_pointer where("/spec/containers");
  if (!pod_template.is_object() || !pod_template.contains(where)) return pod_template;
  if (!pod_template[where].is_array()) return pod_template;
  auto& containers = pod_template[where].get_ref<nlohmann::json::array_t&>();
  std::ranges::sort(containers, {}, [](const nlohmann::json& container) {
    const auto name = container.is_object() ? container.find("name") : container.end();
    const bool known = name != container.end() && name->is_string();
    return known ? name->get<std::string>() : std::string();
  });
  return pod_template;
}

/// What fingerprints have been made of from the first operator on.
nlohmann::json roles_and_framework(const Spec& spec, bool orders) {
  nlohmann::json parts = {to_string(spec.framework.type), to_string(spec.framework.launcher),
                          spec.framework.processes_per_replica.value_or(0)};
  if (spec.network.gpu_direct) parts.push_back(to_string(*spec.network.gpu_direct));
  for (const Role& role : spec.roles) {
    const bool elastic = spec.elastic && &role == &spec.roles[spec.elastic->role];
    parts.push_back({role.name, elastic ? 0 : role.replicas,
                     orders ? ordered(role.pod_template) : role.pod_template});
    // A role without these has the fingerprint that an operator before them gave it.
    if (role.kind != RoleKind::kWorker || role.processes || !role.start_after.empty())
      parts.push_back(
          {contract::to_string(role.kind), role.processes.value_or(0), role.start_after});
    if (role.spares > 0) parts.push_back(role.spares);
  }
  // The PodGroup says these, too.
  if (const Backend backend = backend_of(spec); backend != Backend::kNative)
    parts.push_back(
        {to_string(backend), spec.scheduling.queue, spec.scheduling.priority_class_name});
  return parts;
}

std::string hash_of(const nlohmann::json& parts) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : parts.dump()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, hash >>= 4)
    *digit = "0123456789abcdef"[hash & 15];
  return digits;
}

}  // namespace

std::string fingerprint(const Spec& spec) {
  nlohmann::json parts = roles_and_framework(spec, true);
  // Left out where they are unset: a new field changes the fingerprint of no job without it.
  if (const auto& most = spec.scheduling.pods_per_node) parts.push_back({"podsPerNode", *most});
  if (const auto level = spec.required_topology)
    parts.push_back({"topology", kTopologyLevels.at(static_cast<std::size_t>(*level))});
  if (spec.success_policy != SuccessPolicy::kAllRanks)
    parts.push_back({"successPolicy", to_string(spec.success_policy)});
  if (!spec.runtime_profile.empty()) parts.push_back({"runtimeProfile", spec.runtime_profile});
  if (nlohmann::json asked = asked_of(spec.acceleration); !asked.empty())
    parts.push_back(std::move(asked));
  return kPresentForm + hash_of(parts).substr(1);
}

bool is_former_fingerprint(const std::string& recorded, const Spec& spec) {
  return !recorded.starts_with(kPresentForm) &&
         recorded == hash_of(roles_and_framework(spec, false));
}

bool is_former_sized_fingerprint(const std::string& recorded, const Spec& spec) {
  if (!spec.elastic) return is_former_fingerprint(recorded, spec);
  const std::string size = "-" + std::to_string(spec.elastic->replicas);
  return recorded.ends_with(size) &&
         is_former_fingerprint(recorded.substr(0, recorded.size() - size.size()), spec);
}

}  // namespace paceline::api
