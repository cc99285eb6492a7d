// SPDX-License-Identifier: Apache-2.0
// What the command line of paceline-agent says.
#pragma once

#include "common/base/log.hpp"

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "agent/checks/privileged_scan.hpp"
#include "agent/client/measure.hpp"
#include "agent/collect/slot_collector.hpp"
#include "agent/inject/injector.hpp"
#include "agent/links/service.hpp"
#include "common/contract/labels.hpp"
#include "common/http/server/tls.hpp"

namespace paceline::agent {

struct Options {
  std::string node_name;
  std::string ns{contract::kAgentNamespace};
  std::string holder;
  std::string sys = "/sys";
  std::string proc = "/proc";
  std::string nvml = "libnvidia-ml.so.1";
  std::string kubeconfig;
  std::string listen = "::";
  std::uint16_t port = contract::kAgentMetricsPort;
  int probe_seconds = 30;
  http::ServerCertificate certificate;
  std::uint16_t api_port = contract::kAgentApiPort;
  std::string audience = "paceline-agent";
  std::string pod_address;
  std::optional<std::uint16_t> links_port;
  LinkServiceOptions links;
  PrivilegedScanFiles scan;
  InjectorOptions inject;
  double records_per_second = CollectLimits().records_per_second;
  std::string kubelet = "/var/lib/kubelet";
  bool print = false;
  AskOptions ask;  // peer empty: no measurement is asked for
};

/// Adds all options, and the subcommand `measure`, which fills `ask`.
void add_options(CLI::App& app, Options& options);

}  // namespace paceline::agent
