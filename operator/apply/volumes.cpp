// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/volumes.hpp"

#include <map>

#include "operator/plan/placement/volumes.hpp"

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

/// Which nodes the claim's volume allows; no alternatives: every node.
std::expected<plan::NodeTerms, Done> terms_of(kube::Api& api, const api::TrainingJob& job,
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
  if (name.empty()) return plan::NodeTerms{};
  const auto volume = read(api, kube::kPersistentVolumes, "", name);
  if (!volume) return std::unexpected(volume.error());
  if (!volume->is_object()) return plan::NodeTerms{};
  return plan::read_terms(volume->value("/spec/nodeAffinity/required"_json_pointer, json()));
}

}  // namespace

bool mounts_claims(const api::Spec& spec) {
  for (std::size_t role = 0; role < spec.roles.size(); ++role) {
    if (!plan::claims_of(spec, role).empty()) return true;
  }
  return false;
}

std::expected<VolumeTerms, Done> read_volumes(kube::Api& api, const api::TrainingJob& job) {
  std::map<std::string, plan::NodeTerms> known;  // roles often share a claim
  VolumeTerms all(job.spec.roles.size());
  for (std::size_t role = 0; role < job.spec.roles.size(); ++role) {
    for (const plan::ClaimUse& use : plan::claims_of(job.spec, role)) {
      if (!known.contains(use.name)) {
        auto terms = terms_of(api, job, use);
        if (!terms) return std::unexpected(terms.error());
        known.emplace(use.name, std::move(*terms));
      }
      if (const plan::NodeTerms& terms = known.at(use.name); !terms.empty())
        all[role].push_back(terms);
    }
  }
  return all;
}

}  // namespace paceline::apply
