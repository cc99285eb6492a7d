// SPDX-License-Identifier: Apache-2.0
// Names of objects that more than one program composes. Pure.
#pragma once

#include <string>

namespace paceline::contract {

/// The host name of a replica, which all its pods have, one after another.
inline std::string host_name(const std::string& job, const std::string& role, int replica_index) {
  return job + "-" + role + "-" + std::to_string(replica_index);
}

/// The name of one replica's pod. Two pods that exist at the same time in a namespace never share
/// it.
inline std::string pod_name(const std::string& job, const std::string& role, int replica_index,
                            int incarnation) {
  return host_name(job, role, replica_index) + "-" + std::to_string(incarnation);
}

}  // namespace paceline::contract
