// SPDX-License-Identifier: Apache-2.0
#include "operator/apply/volumes.hpp"

#include <algorithm>
#include <map>

#include "operator/plan/placement/unbound.hpp"

namespace paceline::apply {
namespace {

using nlohmann::json;

constexpr std::int64_t kPage = 500;

std::unexpected<Done> not_read(const Error& error) {
  Done failure;
  if (error.code == Code::kForbidden) {
    failure.refusal = plan::Waiting{"VolumeUnreadable", error.message};
  } else {
    failure.error = error;
  }
  return std::unexpected(std::move(failure));
}

/// The object, or null if it does not exist.
std::expected<json, Done> read(kube::Api& api, const kube::Resource& resource,
                               const std::string& ns, const std::string& name) {
  const auto found = api.get(resource, ns, name);
  if (found) return json::parse(*found, nullptr, false);
  if (found.error().code == Code::kNotFound) return json();
  return not_read(found.error());
}

/// Which nodes the claim's volume allows, no alternatives meaning every node, and who may share it.
struct VolumeFacts {
  plan::NodeTerms terms;
  plan::Sharing sharing = plan::Sharing::kAny;
  bool open = false;  // there is no volume yet
};

plan::NodeTerms terms_of(const json& volume) {
  return plan::read_terms(volume.value("/spec/nodeAffinity/required"_json_pointer, json()));
}

std::expected<plan::Sharing, Done> sharing_of(kube::Api& api, const json& claim,
                                              const json& volume) {
  const plan::Sharing sharing = plan::sharing_of(claim, volume, json());
  const std::string name = plan::driver_of(volume);
  if (sharing != plan::Sharing::kOneNode || name.empty()) return sharing;
  const auto driver = api.get(kube::kCsiDrivers, "", name);
  if (driver) return plan::sharing_of(claim, volume, json::parse(*driver, nullptr, false));
  // A provisioner that is no CSI driver may make volumes of any kind.
  if (driver.error().code == Code::kNotFound)
    return claim.contains("/spec/volumeName"_json_pointer) ? sharing : plan::Sharing::kAny;
  // An older chart does not allow this read. What is not known refuses nothing.
  if (driver.error().code == Code::kForbidden) return plan::Sharing::kAny;
  Done failure;
  failure.error = driver.error();
  return std::unexpected(std::move(failure));
}

/// The nodes that reach a volume made by hand that the claim may take.
std::expected<plan::NodeTerms, Done> nodes_of_free(kube::Api& api, const plan::ClaimUse& use,
                                                   const json& claim, bool class_exists) {
  std::vector<plan::NodeTerms> found;
  kube::ListOptions options;
  options.limit = kPage;
  do {
    const auto text = api.list(kube::kPersistentVolumes, "", options);
    if (!text) return not_read(text.error());
    const json page = json::parse(*text, nullptr, false);
    for (const json& volume : page.value("/items"_json_pointer, json::array())) {
      if (plan::may_take(claim, volume)) found.push_back(terms_of(volume));
    }
    options.continue_token = page.value("/metadata/continue"_json_pointer, std::string());
  } while (!options.continue_token.empty());
  if (!found.empty()) return plan::any_of(found);
  Done failure;
  failure.refusal = plan::no_free_volume(use, plan::class_that_binds(claim), class_exists);
  return std::unexpected(std::move(failure));
}

std::expected<VolumeFacts, Done> facts_of_unbound(kube::Api& api, const api::TrainingJob& job,
                                                  const plan::ClaimUse& use, const json& claim,
                                                  const json& storage_class) {
  VolumeFacts facts;
  // The claim of a pod may leave the class to the cluster's default, which restricts nothing here.
  if (plan::class_that_binds(claim).empty()) return facts;
  if (!use.name.empty()) {
    const auto sharing = sharing_of(api, claim, plan::expected_volume(claim, storage_class));
    if (!sharing) return std::unexpected(sharing.error());
    facts.sharing = *sharing;
  }
  if (api::backend_of(job.spec) != api::Backend::kNative) return facts;
  facts.open = true;
  if (plan::makes_volumes(storage_class)) {
    facts.terms = plan::allowed_nodes(storage_class);
    return facts;
  }
  auto terms = nodes_of_free(api, use, claim, !storage_class.is_null());
  if (!terms) return std::unexpected(terms.error());
  facts.terms = std::move(*terms);
  return facts;
}

std::expected<VolumeFacts, Done> facts_of(kube::Api& api, const api::TrainingJob& job,
                                          const plan::ClaimUse& use) {
  const std::string& ns = job.metadata.name_space;
  const auto claim = use.name.empty() ? std::expected<json, Done>(use.own)
                                      : read(api, kube::kPersistentVolumeClaims, ns, use.name);
  if (!claim) return std::unexpected(claim.error());
  json storage_class;
  if (const std::string name = plan::class_that_binds(*claim); !name.empty()) {
    auto found = read(api, kube::kStorageClasses, "", name);
    if (!found) return std::unexpected(found.error());
    storage_class = std::move(*found);
  }
  if (auto refused =
          use.name.empty() ? std::nullopt : plan::claim_refusal(use, ns, *claim, storage_class)) {
    Done failure;
    failure.refusal = std::move(refused);
    return std::unexpected(std::move(failure));
  }
  // A template's may be of any type.
  const json volume_name = claim->value("/spec/volumeName"_json_pointer, json());
  const std::string name = volume_name.is_string() ? volume_name.get<std::string>() : "";
  if (name.empty()) return facts_of_unbound(api, job, use, *claim, storage_class);
  const auto volume = read(api, kube::kPersistentVolumes, "", name);
  if (!volume) return std::unexpected(volume.error());
  const auto sharing = sharing_of(api, *claim, *volume);
  if (!sharing) return std::unexpected(sharing.error());
  if (!volume->is_object()) return VolumeFacts{{}, *sharing};
  return VolumeFacts{terms_of(*volume), *sharing};
}

}  // namespace

bool mounts_claims(const api::Spec& spec) {
  for (std::size_t role = 0; role < spec.roles.size(); ++role) {
    if (!plan::claims_of(spec, role).empty()) return true;
  }
  return false;
}

std::expected<Volumes, Done> read_volumes(kube::Api& api, const api::TrainingJob& job) {
  std::map<std::string, VolumeFacts> known;  // by name: roles often share a claim
  Volumes all;
  all.terms.resize(job.spec.roles.size());
  for (std::size_t role = 0; role < job.spec.roles.size(); ++role) {
    for (const plan::ClaimUse& use : plan::claims_of(job.spec, role)) {
      const std::string& key = use.name.empty() ? use.path : use.name;
      if (!known.contains(key)) {
        auto facts = facts_of(api, job, use);
        if (!facts) return std::unexpected(facts.error());
        if (facts->sharing != plan::Sharing::kAny) all.limited.push_back({use, facts->sharing, {}});
        all.open = all.open || facts->open;
        known.emplace(key, std::move(*facts));
      }
      if (const plan::NodeTerms& terms = known.at(key).terms; !terms.empty())
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
