// SPDX-License-Identifier: Apache-2.0
// The API resources of Kueue that the operator uses.
#pragma once

#include "common/kube/api/resource.hpp"

namespace paceline::kube {

inline constexpr Resource kKueueWorkloads{"kueue.x-k8s.io", "v1beta2", "workloads", "Workload"};
inline constexpr Resource kLocalQueues{"kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue"};
inline constexpr Resource kResourceFlavors{"kueue.x-k8s.io", "v1beta2", "resourceflavors",
                                           "ResourceFlavor", false};
inline constexpr Resource kTopologies{"kueue.x-k8s.io", "v1beta2", "topologies", "Topology", false};
inline constexpr Resource kWorkloadPriorities{
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", false};

}  // namespace paceline::kube
