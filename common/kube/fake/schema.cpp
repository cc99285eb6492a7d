// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <span>

#include "common/kube/api/kueue.hpp"
#include "common/kube/fake/model.hpp"

namespace paceline::kube {
namespace {

using Names = std::span<const std::string_view>;
using Text = std::string_view;

constexpr Resource kVolcanoGroups{"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"};
constexpr Resource kCoschedulingGroups{"scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"};
constexpr Resource kPodGroups{"scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"};
constexpr Resource kKaiGroups{"scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup"};
constexpr Resource kProvisioningRequests{"autoscaling.x-k8s.io", "v1", "provisioningrequests",
                                         "ProvisioningRequest"};
constexpr Resource kCapacityBuffers{"autoscaling.x-k8s.io", "v1beta1", "capacitybuffers",
                                    "CapacityBuffer"};

constexpr std::array kKnown{kPods,
                            kPodTemplates,
                            kVolcanoGroups,
                            kCoschedulingGroups,
                            kPodGroups,
                            kKaiGroups,
                            kProvisioningRequests,
                            kCapacityBuffers,
                            kNodes,
                            kServices,
                            kSecrets,
                            kConfigMaps,
                            kNamespaces,
                            kResourceQuotas,
                            kPersistentVolumeClaims,
                            kPersistentVolumes,
                            kServiceAccounts,
                            kPriorityClasses,
                            kStorageClasses,
                            kCsiDrivers,
                            kLeases,
                            kEvents,
                            kCrds,
                            kTrainingJobs,
                            kNodeFabrics,
                            kRuntimeProfiles,
                            kKueueWorkloads,
                            kLocalQueues,
                            kResourceFlavors,
                            kTopologies,
                            kWorkloadPriorities};

constexpr auto kRoot = std::to_array<Text>({"apiVersion", "kind", "metadata", "spec", "status"});
/// Kinds whose fields stand at the root. They are not checked.
constexpr std::array kWithoutSpec{kEvents,         kPodTemplates,    kPriorityClasses,
                                  kStorageClasses, kServiceAccounts, kWorkloadPriorities};
constexpr auto kSecretRoot = std::to_array<Text>(
    {"apiVersion", "kind", "metadata", "data", "stringData", "type", "immutable"});
constexpr auto kConfigMapRoot =
    std::to_array<Text>({"apiVersion", "kind", "metadata", "data", "binaryData", "immutable"});
constexpr auto kMetadata = std::to_array<Text>(
    {"name", "generateName", "namespace", "uid", "resourceVersion", "generation",
     "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels",
     "annotations", "ownerReferences", "finalizers", "managedFields", "selfLink"});
constexpr auto kPodSpec = std::to_array<Text>({"activeDeadlineSeconds",
                                               "affinity",
                                               "automountServiceAccountToken",
                                               "containers",
                                               "dnsConfig",
                                               "dnsPolicy",
                                               "enableServiceLinks",
                                               "ephemeralContainers",
                                               "hostAliases",
                                               "hostIPC",
                                               "hostNetwork",
                                               "hostPID",
                                               "hostUsers",
                                               "hostname",
                                               "imagePullSecrets",
                                               "initContainers",
                                               "nodeName",
                                               "nodeSelector",
                                               "os",
                                               "overhead",
                                               "preemptionPolicy",
                                               "priority",
                                               "priorityClassName",
                                               "readinessGates",
                                               "resourceClaims",
                                               "resources",
                                               "restartPolicy",
                                               "runtimeClassName",
                                               "schedulerName",
                                               "schedulingGates",
                                               "schedulingGroup",
                                               "securityContext",
                                               "serviceAccount",
                                               "serviceAccountName",
                                               "setHostnameAsFQDN",
                                               "shareProcessNamespace",
                                               "subdomain",
                                               "terminationGracePeriodSeconds",
                                               "tolerations",
                                               "topologySpreadConstraints",
                                               "volumes"});
constexpr auto kContainer = std::to_array<Text>({"args",
                                                 "command",
                                                 "env",
                                                 "envFrom",
                                                 "image",
                                                 "imagePullPolicy",
                                                 "lifecycle",
                                                 "livenessProbe",
                                                 "name",
                                                 "ports",
                                                 "readinessProbe",
                                                 "resizePolicy",
                                                 "resources",
                                                 "restartPolicy",
                                                 "securityContext",
                                                 "startupProbe",
                                                 "stdin",
                                                 "stdinOnce",
                                                 "terminationMessagePath",
                                                 "terminationMessagePolicy",
                                                 "tty",
                                                 "volumeDevices",
                                                 "volumeMounts",
                                                 "workingDir"});
constexpr auto kServiceSpec = std::to_array<Text>({"allocateLoadBalancerNodePorts",
                                                   "clusterIP",
                                                   "clusterIPs",
                                                   "externalIPs",
                                                   "externalName",
                                                   "externalTrafficPolicy",
                                                   "healthCheckNodePort",
                                                   "internalTrafficPolicy",
                                                   "ipFamilies",
                                                   "ipFamilyPolicy",
                                                   "loadBalancerClass",
                                                   "loadBalancerIP",
                                                   "loadBalancerSourceRanges",
                                                   "ports",
                                                   "publishNotReadyAddresses",
                                                   "selector",
                                                   "sessionAffinity",
                                                   "sessionAffinityConfig",
                                                   "trafficDistribution",
                                                   "type"});
constexpr auto kLeaseSpec =
    std::to_array<Text>({"acquireTime", "holderIdentity", "leaseDurationSeconds",
                         "leaseTransitions", "preferredHolder", "renewTime", "strategy"});

void check(const Document& object, Names known, const std::string& path,
           std::vector<std::string>& unknown) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, Text(key)) == known.end())
      unknown.push_back(path.empty() ? key : path + "." + key);
  }
}

void check_each(const Document& parent, const char* list, Names known, const std::string& path,
                std::vector<std::string>& unknown) {
  const auto found = parent.find(list);
  if (found == parent.end() || !found->is_array()) return;
  for (std::size_t i = 0; i < found->size(); ++i)
    check((*found)[i], known, path + "." + list + "[" + std::to_string(i) + "]", unknown);
}

}  // namespace

std::vector<std::string> unknown_fields(const Resource& resource, const Document& object) {
  std::vector<std::string> unknown;
  if (resource.plural == kSecrets.plural)
    check(object, kSecretRoot, "", unknown);
  else if (resource.plural == kConfigMaps.plural)
    check(object, kConfigMapRoot, "", unknown);
  else if (std::ranges::find(kWithoutSpec, resource.plural, &Resource::plural) ==
           kWithoutSpec.end())
    check(object, kRoot, "", unknown);
  if (object.contains("metadata")) check(object["metadata"], kMetadata, "metadata", unknown);
  if (!object.contains("spec") || !object["spec"].is_object()) return unknown;
  const Document& spec = object["spec"];
  if (resource.plural == kPods.plural) {
    check(spec, kPodSpec, "spec", unknown);
    check_each(spec, "containers", kContainer, "spec", unknown);
    check_each(spec, "initContainers", kContainer, "spec", unknown);
  } else if (resource.plural == kServices.plural) {
    check(spec, kServiceSpec, "spec", unknown);
  } else if (resource.plural == kLeases.plural) {
    check(spec, kLeaseSpec, "spec", unknown);
  }
  return unknown;
}

const Resource* find_resource(std::string_view group, std::string_view version,
                              std::string_view plural) {
  const auto found = std::ranges::find_if(kKnown, [&](const Resource& known) {
    return known.group == group && known.version == version && known.plural == plural;
  });
  return found == kKnown.end() ? nullptr : &*found;
}

}  // namespace paceline::kube
