// SPDX-License-Identifier: Apache-2.0
// The names of API resources and their paths. Pure values.
#pragma once

#include <string>
#include <string_view>

namespace paceline::kube {

struct Resource {
  std::string_view group;  // "" is the core group
  std::string_view version;
  std::string_view plural;
  std::string_view kind;
  bool namespaced = true;

  std::string api_version() const;
};

inline constexpr Resource kPods{"", "v1", "pods", "Pod"};
inline constexpr Resource kNodes{"", "v1", "nodes", "Node", false};
inline constexpr Resource kServices{"", "v1", "services", "Service"};
inline constexpr Resource kSecrets{"", "v1", "secrets", "Secret"};
inline constexpr Resource kPodTemplates{"", "v1", "podtemplates", "PodTemplate"};
inline constexpr Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap"};
inline constexpr Resource kNamespaces{"", "v1", "namespaces", "Namespace", false};
inline constexpr Resource kResourceQuotas{"", "v1", "resourcequotas", "ResourceQuota"};
inline constexpr Resource kPersistentVolumeClaims{"", "v1", "persistentvolumeclaims",
                                                  "PersistentVolumeClaim"};
inline constexpr Resource kPersistentVolumes{"", "v1", "persistentvolumes", "PersistentVolume",
                                             false};
inline constexpr Resource kServiceAccounts{"", "v1", "serviceaccounts", "ServiceAccount"};
inline constexpr Resource kRuntimeProfiles{"paceline.dev", "v1alpha1", "runtimeprofiles",
                                           "RuntimeProfile", false};
inline constexpr Resource kPriorityClasses{"scheduling.k8s.io", "v1", "priorityclasses",
                                           "PriorityClass", false};
inline constexpr Resource kStorageClasses{"storage.k8s.io", "v1", "storageclasses", "StorageClass",
                                          false};
inline constexpr Resource kCsiDrivers{"storage.k8s.io", "v1", "csidrivers", "CSIDriver", false};
inline constexpr Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease"};
inline constexpr Resource kEvents{"events.k8s.io", "v1", "events", "Event"};
inline constexpr Resource kCrds{"apiextensions.k8s.io", "v1", "customresourcedefinitions",
                                "CustomResourceDefinition", false};
inline constexpr Resource kTokenReviews{"authentication.k8s.io", "v1", "tokenreviews",
                                        "TokenReview", false};
inline constexpr Resource kSubjectAccessReviews{
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false};
inline constexpr Resource kTrainingJobs{"paceline.dev", "v1alpha1", "trainingjobs", "TrainingJob"};
inline constexpr Resource kNodeFabrics{"paceline.dev", "v1alpha1", "nodefabrics", "NodeFabric",
                                       false};

/// "/api/v1/namespaces/NS/pods/NAME/status". An empty namespace means all namespaces, an empty name
/// the collection. Path segments are percent-encoded.
std::string path_of(const Resource& resource, std::string_view ns, std::string_view name = {},
                    std::string_view subresource = {});

}  // namespace paceline::kube
