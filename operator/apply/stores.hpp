// SPDX-License-Identifier: Apache-2.0
// The operator's caches, one per kind that it reads. main (or a test) owns them; reflectors (or the
// test) feed them. Thread-safe as kube::Store is.
#pragma once

#include "common/kube/watch/store.hpp"
#include "operator/observe/kueue.hpp"
#include "operator/observe/views.hpp"

namespace paceline::apply {

struct Stores {
  kube::Store<observe::JobView> jobs{observe::project_job};
  kube::Store<observe::PodView> pods{observe::project_pod, observe::index_of};
  kube::Store<observe::NodeView> nodes{observe::project_node};
  kube::Store<observe::QuotaView> quotas{observe::project_quota};
  kube::Store<observe::PriorityView> priorities{observe::project_priority};
  kube::Store<observe::ProfileView> profiles{observe::project_profile};
  kube::Store<observe::FabricView> fabrics{observe::project_fabric};
  // of Kueue; empty in clusters without it
  kube::Store<observe::WorkloadView> workloads{
      observe::project_workload,
      [](const observe::WorkloadView& workload) { return workload.job_uid; }};
  kube::Store<observe::LocalQueueView> local_queues{observe::project_local_queue};
  kube::Store<observe::FlavorView> flavors{observe::project_flavor};
  kube::Store<observe::TopologyView> topologies{observe::project_topology};

  /// Does not wait for NodeFabrics: a cluster without agents has none, and a job that needs one
  /// waits until it is seen.
  bool synced() const {
    return jobs.synced() && pods.synced() && nodes.synced() && quotas.synced() &&
           priorities.synced() && profiles.synced() && workloads.synced() &&
           local_queues.synced() && flavors.synced() && topologies.synced();
  }
};

}  // namespace paceline::apply
