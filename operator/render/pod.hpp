// SPDX-License-Identifier: Apache-2.0
// The pod of one replica: the user's template, plus the launcher around the trainer, the node pin
// and the gang's gate. Nothing else of the template changes. Pure; the job must have passed
// api::validate_for_cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "common/contract/host_ports.hpp"
#include "operator/api/schedulers/kueue.hpp"
#include "operator/api/training_job.hpp"

namespace paceline::render {

struct PodInputs {
  int incarnation = 0;
  int attempt = 0;  // the launcher starts counting here
  int restarts = 0;
  std::string node;  // to pin to; empty: not pinned, to measure a role before it is placed
  std::string rendezvous_ip;
  std::string runtime_image;
  std::string pull_policy = "IfNotPresent";
  std::string priority_class;  // empty: none
  std::string startup_timeout = "10m";
  bool gated = true;
  std::optional<api::Acceleration> acceleration{};
  // the runtime comes from a slot of the node; otherwise an init container copies it
  bool slot = false;
  std::string goodput{};  // JSON of status.goodput; empty: none
  api::PodGrant grant{};  // what Kueue's admission adds
  std::optional<WallTime> placed{};
  // of a pod in the network of its node: the first port of its block there
  std::uint16_t port_base = contract::kFirstHostPort;
};

nlohmann::json render_pod(const api::TrainingJob& job, const api::Replica& replica,
                          const PodInputs& inputs);

/// The merge patch that opens the gang's gate. Gates of others stay.
nlohmann::json ungate_patch(const nlohmann::json& other_gates = nlohmann::json::array());

/// `address`: the ClusterIP that the job's pods know already; empty: any.
nlohmann::json render_rendezvous_service(const api::TrainingJob& job,
                                         const std::string& address = "");
nlohmann::json render_headless_service(const api::TrainingJob& job);
nlohmann::json render_secret(const api::TrainingJob& job, const std::string& token);

}  // namespace paceline::render
