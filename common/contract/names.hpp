// SPDX-License-Identifier: Apache-2.0
// Names of objects that more than one program composes. Pure.
#pragma once

#include <string>

namespace paceline::contract {

/// The pod of one replica. Within a namespace no two replicas have the same one at a time: it is
/// the pod's key there.
inline std::string pod_name(const std::string& job, const std::string& role, int replica_index,
                            int incarnation) {
  return job + "-" + role + "-" + std::to_string(replica_index) + "-" + std::to_string(incarnation);
}

}  // namespace paceline::contract
