// SPDX-License-Identifier: Apache-2.0
// The names of all objects of a job. Deterministic, so that a repeated create finds the existing
// object instead of making a second one. Pure.
//
// Lengths: a job has at most 36 bytes and a role 20, so that job-role-index fits a host name.
#pragma once

#include <algorithm>
#include <string>

#include "common/contract/names.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::render {

inline std::string host_name(const api::TrainingJob& job, const api::Replica& replica) {
  return contract::host_name(job.metadata.name,
                             job.spec.roles[static_cast<std::size_t>(replica.role)].name,
                             replica.index);
}

inline std::string pod_name(const api::TrainingJob& job, const api::Replica& replica,
                            int incarnation) {
  return contract::pod_name(job.metadata.name,
                            job.spec.roles[static_cast<std::size_t>(replica.role)].name,
                            replica.index, incarnation);
}

/// The ClusterIP Service of node rank 0. Its address is known before any pod exists and stays when
/// the pod is replaced.
inline std::string rendezvous_service_name(const api::TrainingJob& job) {
  return job.metadata.name + "-rank0";
}
/// Headless Service, for user code: HOST.JOB resolves.
inline std::string headless_service_name(const api::TrainingJob& job) { return job.metadata.name; }
/// A part of the UID, for names that no object of another job may have.
inline std::string uid_part(const api::TrainingJob& job) {
  constexpr std::size_t kDigits = 8;
  const std::string& uid = job.metadata.uid;
  return uid.substr(uid.size() - std::min(kDigits, uid.size()));
}
/// No other Secret has this name by chance: the operator cannot read whose one is.
inline std::string secret_name(const api::TrainingJob& job) {
  return job.metadata.name + "-token-" + uid_part(job);
}
/// Of an object that asks for nodes for one role; empty `role`: for all roles. Job `a` with role
/// `b-c` and job `a-b` with role `c` share no name.
inline std::string node_request_name(const api::TrainingJob& job, const std::string& role) {
  return job.metadata.name + (role.empty() ? "" : "-" + role) + "-" + uid_part(job) + "-nodes";
}
inline constexpr const char* kTokenKey = "token";

}  // namespace paceline::render
