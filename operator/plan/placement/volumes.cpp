// SPDX-License-Identifier: Apache-2.0
#include "operator/plan/placement/volumes.hpp"

#include <algorithm>
#include <array>

namespace paceline::plan {
namespace {

using nlohmann::json;

std::string text_at(const json& object, const char* pointer) {
  const json::json_pointer path(pointer);
  if (!object.is_object() || !object.contains(path) || !object[path].is_string()) return "";
  return object[path].get<std::string>();
}

/// Sources of volumes in core/v1 that are attached to a node before a pod can mount them.
constexpr std::array kAttached = {"awsElasticBlockStore", "azureDisk", "cinder", "fc",
                                  "gcePersistentDisk",    "iscsi",     "rbd",    "vsphereVolume"};

std::vector<std::string> modes_of(const json& object) {
  std::vector<std::string> modes;
  const json::json_pointer where("/spec/accessModes");
  if (!object.is_object() || !object.contains(where) || !object[where].is_array()) return modes;
  for (const json& mode : object[where]) {
    if (mode.is_string()) modes.push_back(mode.get<std::string>());
  }
  return modes;
}

bool is_attached(const json& volume, const json& driver) {
  const json::json_pointer required("/spec/attachRequired");
  if (!driver_of(volume).empty()) {
    return !driver.is_object() || !driver.contains(required) || driver[required] != false;
  }
  const json::json_pointer spec("/spec");
  return volume.is_object() && volume.contains(spec) && volume[spec].is_object() &&
         std::ranges::any_of(kAttached,
                             [&](const char* source) { return volume[spec].contains(source); });
}

bool is_bound(const json& claim) { return text_at(claim, "/status/phase") == "Bound"; }

}  // namespace

std::vector<ClaimUse> claims_of(const api::Spec& spec, std::size_t role) {
  std::vector<ClaimUse> claims;
  const json& pod = spec.roles[role].pod_template;
  const json::json_pointer where("/spec/volumes");
  if (!pod.is_object() || !pod.contains(where) || !pod[where].is_array()) return claims;
  const json::json_pointer ephemeral("/ephemeral/volumeClaimTemplate/spec");
  for (std::size_t i = 0; i < pod[where].size(); ++i) {
    const json& volume = pod[where][i];
    const std::string path = "spec.roles[" + std::to_string(role) + "].template.spec.volumes[" +
                             std::to_string(i) + "].";
    const std::string name = text_at(volume, "/persistentVolumeClaim/claimName");
    // The API server refuses an empty name itself, and a claim without a spec.
    if (!name.empty()) claims.push_back({path + "persistentVolumeClaim.claimName", name});
    if (volume.is_object() && volume.contains(ephemeral))
      claims.push_back({path + "ephemeral.volumeClaimTemplate", "", {{"spec", volume[ephemeral]}}});
  }
  return claims;
}

std::string class_that_binds(const json& claim) {
  return is_bound(claim) ? "" : text_at(claim, "/spec/storageClassName");
}

std::string driver_of(const json& volume) { return text_at(volume, "/spec/csi/driver"); }

Sharing sharing_of(const json& claim, const json& volume, const json& driver) {
  if (modes_of(claim) == std::vector<std::string>{"ReadWriteOncePod"}) return Sharing::kOnePod;
  const std::vector<std::string> modes = modes_of(volume);
  const bool many = modes.empty() || std::ranges::any_of(modes, [](const std::string& mode) {
                      return mode == "ReadWriteMany" || mode == "ReadOnlyMany";
                    });
  return many || !is_attached(volume, driver) ? Sharing::kAny : Sharing::kOneNode;
}

std::optional<Waiting> sharing_refusal(const ClaimUse& use, Sharing sharing, int pods,
                                       const std::string& apart) {
  if (pods < 2 || sharing == Sharing::kAny) return std::nullopt;
  const std::string who =
      use.path + ": PersistentVolumeClaim \"" + use.name + "\" has access mode ";
  const std::string count = std::to_string(pods) + " pods of this job mount it";
  const std::string remedy =
      "; use a claim with ReadWriteMany or ReadOnlyMany, or give each pod one of its own "
      "(volumes[].ephemeral)";
  if (sharing == Sharing::kOnePod) {
    return Waiting{"VolumeReadWriteOncePod",
                   who + "ReadWriteOncePod, so one pod can use it, but " + count + remedy};
  }
  if (apart.empty()) return std::nullopt;
  return Waiting{"VolumeReadWriteOnce", who +
                                            "ReadWriteOnce, so its volume is attached to one node "
                                            "at a time, but " +
                                            count + ", and " + apart + remedy};
}

std::optional<Waiting> claim_refusal(const ClaimUse& use, const std::string& ns, const json& claim,
                                     const json& storage_class) {
  const std::string who = use.path + ": PersistentVolumeClaim \"" + use.name + "\" ";
  if (claim.is_null()) {
    return Waiting{"VolumeClaimNotFound", who + "does not exist in namespace " + ns +
                                              "; create it, or name one that exists"};
  }
  if (!text_at(claim, "/metadata/deletionTimestamp").empty()) {
    return Waiting{"VolumeClaimNotFound",
                   who + "is being deleted; create it anew when it is gone, or name another"};
  }
  if (is_bound(claim)) return std::nullopt;
  if (text_at(claim, "/status/phase") == "Lost") {
    return Waiting{"VolumeClaimLost", who + "has lost its PersistentVolume " +
                                          text_at(claim, "/spec/volumeName") +
                                          "; restore the volume, or create the claim anew"};
  }
  const std::string named = text_at(claim, "/spec/storageClassName");
  if (named.empty()) {
    return Waiting{"VolumeClaimUnbound",
                   who +
                       "is not bound and names no StorageClass; create a PersistentVolume that "
                       "fits it, or a claim with a StorageClass"};
  }
  // A class that does not exist is allowed: volumes made by hand may bear its name.
  if (text_at(storage_class, "/volumeBindingMode") == "WaitForFirstConsumer") return std::nullopt;
  return Waiting{"VolumeClaimUnbound", who + "is not bound yet; `kubectl describe pvc " + use.name +
                                           " -n " + ns + "` shows what StorageClass \"" + named +
                                           "\" waits for"};
}

}  // namespace paceline::plan
