// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "agent/agent.hpp"

#include <algorithm>
#include <condition_variable>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "agent/probe/fingerprint.hpp"
#include "agent/probe/probe.hpp"
#include "agent/probe/sysfs/devices.hpp"
#include "common/base/timestamp.hpp"

namespace paceline::agent {

Agent::Agent(Root root, GpuLibrary& library, Publisher& publisher, Metrics& metrics,
             const Clock& clock, AgentOptions options)
    : root_(std::move(root)),
      library_(library),
      metrics_(metrics),
      clock_(clock),
      options_(std::move(options)),
      probe_at_(clock.steady()),
      poll_at_(clock.steady() + options_.poll_interval),
      settler_(options_.link_hold),
      uplink_(publisher, metrics, clock,
              {options_.renew_interval, options_.retry_first, options_.probe_interval}),
      alive_at_ns_(clock.steady().time_since_epoch().count()) {}

SteadyTime Agent::look() {
  if (clock_.steady() >= poll_at_) poll_for_changes();
  if (clock_.steady() >= probe_at_) probe();
  alive_at_ns_ = clock_.steady().time_since_epoch().count();
  return std::min(probe_at_, poll_at_);
}

SteadyTime Agent::tick(const std::stop_token& stop) {
  const auto look_at = look();
  return std::min(look_at, uplink_.tick(stop));
}

void Agent::poll_for_changes() {
  poll_at_ = clock_.steady() + options_.poll_interval;
  if (probe_at_ <= clock_.steady()) return;
  if (runtime() != runtime_ ||
      (options_.links != nullptr && options_.links->changes() != link_changes_)) {
    probe_at_ = clock_.steady();
  } else if (fingerprint(root_, library_, known_) != fingerprint_) {
    spdlog::info("a link or a device changed: probing now");
    probe_at_ = clock_.steady();
  }
}

std::optional<Summary> Agent::runtime() const {
  return options_.runtime ? std::optional(options_.runtime()) : std::nullopt;
}

PrivilegedScan Agent::read_scan() {
  PrivilegedScan scan = read_privileged_scan(options_.scan);
  if (scan.problem != scan_complaint_ && !scan.problem.empty()) spdlog::warn("{}", scan.problem);
  scan_complaint_ = scan.problem;
  // Log once for each scan, since its age grows with every probe.
  const auto key = [](const std::optional<WallTime>& time) {
    return time ? format_time(*time) : std::string("-");
  };
  const std::string times = key(scan.pci.taken()) + key(scan.registrations_taken());
  const std::string ages = ages_text(options_.scan, scan, clock_.wall());
  if (times != scan_times_ && !ages.empty()) spdlog::info("privileged scan: {}", ages);
  scan_times_ = times;
  metrics_.privileged_scan(scan.pci.taken(), scan.registrations_taken());
  return scan;
}

void Agent::probe() {
  const auto began = clock_.steady();
  // Before the probe, so that a later change shows in the next fingerprint.
  known_ = probe_pci(root_);
  fingerprint_ = fingerprint(root_, library_, known_);
  Hardware hardware = probe_hardware(root_, library_);
  const auto settled = settler_.apply(hardware, began);
  PrivilegedScan scan = read_scan();
  Settings settings = read_settings(root_, hardware, scan.pci);
  auto earlier = counters_.compare(settings.counters, began);
  const Node node(hardware, std::move(settings), std::move(earlier), std::move(scan.registrations));
  const auto findings = run_checks(node);
  metrics_.counted(read_device_counters(root_, hardware), hardware.gpu.gpus);
  metrics_.probed(hardware, clock_.steady() - began);
  if (options_.probed) options_.probed(hardware);
  metrics_.placed(node.fabric);
  metrics_.checked(findings, device_statuses(node, findings));
  if (options_.links != nullptr) link_changes_ = options_.links->changes();
  if (options_.documents != nullptr) {
    options_.documents->put(
        clock_.wall(), hardware, told_with(findings),
        options_.links != nullptr ? options_.links->latest(clock_.wall()) : std::vector<Link>());
  }
  runtime_ = runtime();
  uplink_.put({std::move(hardware), findings, runtime_});
  probe_at_ = clock_.steady() + options_.probe_interval;
  if (settled) probe_at_ = std::min(probe_at_, *settled);
}

/// The findings of the node and of its pods. If a pod answers a check, the node's own "unknown" is
/// dropped. A pod's findings never change the node's conditions.
std::vector<Finding> Agent::told_with(std::vector<Finding> findings) const {
  if (!options_.pods) return findings;
  auto told = options_.pods();
  std::erase_if(findings, [&](const Finding& open) {
    const Check* check = find_check(open.id);
    return check != nullptr && check->place == Place::kPod && open.verdict == Verdict::kUnknown &&
           std::ranges::any_of(told, [&](const Finding& answer) { return answer.id == open.id; });
  });
  findings.insert(findings.end(), std::make_move_iterator(told.begin()),
                  std::make_move_iterator(told.end()));
  return findings;
}

void Agent::run(const std::stop_token& stop) {
  std::jthread telling([this](const std::stop_token& end) { uplink_.run(end); });
  const std::stop_callback end(stop, [&] { telling.request_stop(); });
  std::mutex mutex;
  std::condition_variable_any stopped;
  while (!stop.stop_requested()) {
    const auto next = look();
    std::unique_lock lock(mutex);
    stopped.wait_until(lock, stop, next, [] { return false; });
  }
}

bool Agent::healthy() const {
  const SteadyTime alive_at{SteadyTime::duration(alive_at_ns_.load())};
  return clock_.steady() - alive_at < 3 * options_.probe_interval;
}

}  // namespace paceline::agent
