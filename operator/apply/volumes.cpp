// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/volumes.hpp"

#include <algorithm>
#include <map>

namespace paceline::apply {
namespace {

using nlohmann::json;

/// The object, or null if it does not exist.
std::expected<json, Done> read(kube::Api& api, const kube::Resource& resource,
                               const std::string& ns, const std::string& name) {
  const auto found = api.get(resource, ns, name);
  if (found) return json::parse(*found, nullptr, false);
  if (found.error().code == Code::kNotFound) return json();
  Done failure;
  if (found.error().code == Code::kForbidden) {
    failure.refusal = plan::Waiting{"VolumeUnreadable", found.error().message};
  } else {
    failure.error = found.error();
  }
  return std::unexpected(std::move(failure));
}

/// Which nodes the claim's volume allows, no alternatives meaning every node, and who may share it.
struct VolumeFacts {
  plan::NodeTerms terms;
  plan::Sharing sharing = plan::Sharing::kAny;
};

std::expected<plan::Sharing, Done> sharing_of(kube::Api& api, const json& claim,
                                              const json& volume) {
  const plan::Sharing sharing = plan::sharing_of(claim, volume, json());
  const std::string name = plan::driver_of(volume);
  if (sharing != plan::Sharing::kOneNode || name.empty()) return sharing;
  const auto driver = api.get(kube::kCsiDrivers, "", name);
  if (driver) return plan::sharing_of(claim, volume, json::parse(*driver, nullptr, false));
  if (driver.error().code == Code::kNotFound) return sharing;
  // An older chart does not allow this read. What is not known refuses nothing.
  if (driver.error().code == Code::kForbidden) return plan::Sharing::kAny;
  Done failure;
  failure.error = driver.error();
  return std::unexpected(std::move(failure));
}

std::expected<VolumeFacts, Done> facts_of(kube::Api& api, const api::TrainingJob& job,
                                          const plan::ClaimUse& use) {
  const std::string& ns = job.metadata.name_space;
  const auto claim = read(api, kube::kPersistentVolumeClaims, ns, use.name);
  if (!claim) return std::unexpected(claim.error());
  json storage_class;
  if (const std::string name = plan::class_that_binds(*claim); !name.empty()) {
    auto found = read(api, kube::kStorageClasses, "", name);
    if (!found) return std::unexpected(found.error());
    storage_class = std::move(*found);
  }
  if (auto refused = plan::claim_refusal(use, ns, *claim, storage_class)) {
    Done failure;
    failure.refusal = std::move(refused);
    return std::unexpected(std::move(failure));
  }
  const std::string name = claim->value("/spec/volumeName"_json_pointer, std::string());
  if (name.empty()) return VolumeFacts{};
  const auto volume = read(api, kube::kPersistentVolumes, "", name);
  if (!volume) return std::unexpected(volume.error());
  const auto sharing = sharing_of(api, *claim, *volume);
  if (!sharing) return std::unexpected(sharing.error());
  if (!volume->is_object()) return VolumeFacts{{}, *sharing};
  return VolumeFacts{
      plan::read_terms(volume->value("/spec/nodeAffinity/required"_json_pointer, json())),
      *sharing};
}

}  // namespace

bool mounts_claims(const api::Spec& spec) {
  for (std::size_t role = 0; role < spec.roles.size(); ++role) {
    if (!plan::claims_of(spec, role).empty()) return true;
  }
  return false;
}

std::expected<Volumes, Done> read_volumes(kube::Api& api, const api::TrainingJob& job) {
  std::map<std::string, VolumeFacts> known;  // roles often share a claim
  Volumes all;
  all.terms.resize(job.spec.roles.size());
  for (std::size_t role = 0; role < job.spec.roles.size(); ++role) {
    for (const plan::ClaimUse& use : plan::claims_of(job.spec, role)) {
      if (!known.contains(use.name)) {
        auto facts = facts_of(api, job, use);
        if (!facts) return std::unexpected(facts.error());
        if (facts->sharing != plan::Sharing::kAny) all.limited.push_back({use, facts->sharing, {}});
        known.emplace(use.name, std::move(*facts));
      }
      if (const plan::NodeTerms& terms = known.at(use.name).terms; !terms.empty())
        all.terms[role].push_back(terms);
      for (LimitedClaim& claim : all.limited) {
        if (claim.use.name == use.name && (claim.roles.empty() || claim.roles.back() != role))
          claim.roles.push_back(role);
      }
    }
  }
  return all;
}

std::optional<plan::Waiting> sharing_refusal(
    const LimitedClaim& claim, const api::Spec& spec, const std::vector<observe::Resources>& each,
    const std::vector<std::shared_ptr<const observe::NodeView>>& nodes) {
  int pods = 0;
  observe::Resources sum;
  for (const std::size_t role : claim.roles) {
    pods += spec.roles[role].replicas;
    for (int i = 0; role < each.size() && i < spec.roles[role].replicas; ++i) sum.add(each[role]);
  }
  std::string apart;
  if (const auto most = spec.scheduling.pods_per_node; most && *most < pods) {
    apart = "spec.scheduling.podsPerNode is " + std::to_string(*most);
  } else if (!nodes.empty() && std::ranges::none_of(nodes, [&](const auto& node) {
               return node->allocatable.lacking(sum).empty();
             })) {
    apart = "no node is large enough for all of them";
  }
  return plan::sharing_refusal(claim.use, claim.sharing, pods, apart);
}

}  // namespace paceline::apply
