// SPDX-License-Identifier: Apache-2.0
// The agent's own metrics in Prometheus text, served at /metrics. Every series has the label
// `node`.
//
// Owns its registry. Thread-safe: the agent's loop writes, the HTTP server reads. Nothing fails.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/checks/check.hpp"
#include "agent/checks/device_status.hpp"
#include "agent/probe/fabric/fabric.hpp"
#include "agent/probe/hardware/hardware.hpp"
#include "agent/probe/sysfs/counters.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

class Metrics {
 public:
  Metrics(const std::string& node, const std::string& version);
  ~Metrics();

  void probed(const Hardware& hardware, std::chrono::nanoseconds took);
  /// The distances between GPUs and RDMA NICs: at most 32 GPUs and 64 NICs.
  void placed(const Fabric& fabric);
  void checked(const std::vector<Finding>& findings, const std::vector<DeviceStatus>& statuses);
  /// The devices' counters at the last probe.
  void counted(std::vector<CounterReading> readings, std::vector<Gpu> gpus);
  /// The times of the privileged scan; nullopt if there was none.
  void privileged_scan(const std::optional<WallTime>& pci_config,
                       const std::optional<WallTime>& registrations);
  void published(bool wrote);
  void publish_failed();
  void lease_renewed();
  void lease_failed();

  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::agent
