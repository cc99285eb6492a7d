// SPDX-License-Identifier: Apache-2.0
#include "agent/report/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>

#include "agent/probe/sysfs/root.hpp"
#include "agent/report/device_counters.hpp"
#include "common/telemetry/metrics/text_sink.hpp"

namespace paceline::agent {
namespace {

double resident_bytes() {
  std::istringstream statm(read_text("/proc/self/statm").value_or(""));
  double size = 0;
  double resident = 0;
  statm >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

struct Metrics::Impl {
  using Way = std::array<std::string, 3>;     // GPU, NIC, class
  using Device = std::array<std::string, 3>;  // check, GPU, NIC

  explicit Impl(const std::string& node_name) : name(node_name), node{{"node", node_name}} {}

  prometheus::Gauge& gauge(const std::string& name, const std::string& help,
                           const prometheus::Labels& more = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(node).Register(registry).Add(more);
  }
  prometheus::Counter& counter(const std::string& name, const std::string& help,
                               const prometheus::Labels& more = {}) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(node).Register(registry).Add(
        more);
  }

  const std::string name;
  const prometheus::Labels node;
  prometheus::Registry registry;
  prometheus::Gauge& gpus = gauge("paceline_node_gpus", "GPUs that the vendor's library shows");
  prometheus::Gauge& complete =
      gauge("paceline_node_report_complete", "1 when every device found could be read, else 0");
  prometheus::Gauge& probe_seconds =
      gauge("paceline_agent_probe_seconds", "Duration of the last probe and its checks");
  prometheus::Gauge& memory =
      gauge("process_resident_memory_bytes", "Resident memory of the agent");
  prometheus::Counter& cpu = counter("process_cpu_seconds_total", "CPU time of the agent");
  prometheus::Counter& writes =
      counter("paceline_agent_fabric_writes_total", "Writes of NodeFabric");
  prometheus::Counter& failures =
      counter("paceline_agent_fabric_failures_total", "Attempts to publish NodeFabric that failed");
  prometheus::Counter& renewals =
      counter("paceline_agent_lease_renewals_total", "Renewals of the agent's Lease");
  prometheus::Counter& lease_failures =
      counter("paceline_agent_lease_failures_total", "Renewals of the agent's Lease that failed");
  prometheus::Family<prometheus::Gauge>& nic_up = prometheus::BuildGauge()
                                                      .Name("paceline_nic_up")
                                                      .Help("1 while the NIC has a link, else 0")
                                                      .Labels(node)
                                                      .Register(registry);
  prometheus::Family<prometheus::Gauge>& check_status =
      prometheus::BuildGauge()
          .Name("paceline_check_status")
          .Help(
              "How many devices of the node a check found in this status; the node itself counts "
              "as one")
          .Labels(node)
          .Register(registry);
  prometheus::Family<prometheus::Gauge>& device_status =
      prometheus::BuildGauge()
          .Name("paceline_gdr_check_status")
          .Help(
              "What a check says of a GPU, a NIC or a pair of them: 0 ok, 1 warn, 2 fail; no "
              "series: skipped or not "
              "known")
          .Labels(node)
          .Register(registry);
  prometheus::Family<prometheus::Gauge>& look_time =
      prometheus::BuildGauge()
          .Name("paceline_agent_look_timestamp_seconds")
          .Help(
              "When what takes a privilege was looked at, as seconds since 1970; no series: it was "
              "not")
          .Labels(node)
          .Register(registry);
  prometheus::Family<prometheus::Gauge>& distance =
      prometheus::BuildGauge()
          .Name("paceline_topology_distance")
          .Help("1 for the class of the way between a GPU and an RDMA NIC")
          .Labels(node)
          .Register(registry);
  std::mutex mutex;
  std::map<std::string, prometheus::Gauge*> nics;
  std::map<Way, prometheus::Gauge*> ways;
  std::map<std::string, prometheus::Gauge*> looks;
  std::map<std::pair<std::string, std::string>, prometheus::Gauge*> checks;  // by id and status
  std::map<Device, prometheus::Gauge*> devices;
  std::vector<CounterReading> readings;
  std::vector<Gpu> linked;  // GPUs with their NVLinks
};

Metrics::Metrics(const std::string& node, const std::string& version)
    : impl_(std::make_unique<Impl>(node)) {
  impl_->gauge("paceline_agent_info", "Version of the agent, as a label", {{"version", version}})
      .Set(1);
}

Metrics::~Metrics() = default;

void Metrics::probed(const Hardware& hardware, std::chrono::nanoseconds took) {
  impl_->gpus.Set(static_cast<double>(hardware.gpu.gpus.size()));
  impl_->complete.Set(hardware.gpu.problem.empty() ? 1 : 0);
  impl_->probe_seconds.Set(std::chrono::duration<double>(took).count());
  const std::lock_guard lock(impl_->mutex);
  std::set<std::string> present;
  for (const auto& nic : hardware.nics) {
    present.insert(nic.name);
    auto& series = impl_->nics[nic.name];
    if (series == nullptr) series = &impl_->nic_up.Add({{"nic", nic.name}});
    series->Set(nic.up ? 1 : 0);
  }
  // Remove the series of a NIC that was removed, since they would look current.
  std::erase_if(impl_->nics, [&](const auto& entry) {
    if (present.contains(entry.first)) return false;
    impl_->nic_up.Remove(entry.second);
    return true;
  });
}

void Metrics::placed(const Fabric& fabric) {
  std::set<Impl::Way> present;
  for (std::size_t gpu = 0; gpu < std::min(fabric.gpus.size(), kMostGpus); ++gpu) {
    for (std::size_t nic = 0; nic < std::min(fabric.nics.size(), kMostNics); ++nic) {
      if (fabric.nics[nic].rdma)
        present.insert(
            {fabric.gpus[gpu].label, fabric.nics[nic].label, to_string(fabric.gpu_nic[gpu][nic])});
    }
  }
  const std::lock_guard lock(impl_->mutex);
  for (const auto& way : present) {
    auto& series = impl_->ways[way];
    if (series == nullptr)
      series = &impl_->distance.Add({{"gpu", way[0]}, {"nic", way[1]}, {"class", way[2]}});
    series->Set(1);
  }
  std::erase_if(impl_->ways, [&](const auto& entry) {
    if (present.contains(entry.first)) return false;
    impl_->distance.Remove(entry.second);
    return true;
  });
}

void Metrics::checked(const std::vector<Finding>& findings,
                      const std::vector<DeviceStatus>& statuses) {
  std::map<std::pair<std::string, std::string>, int> counts;
  for (const auto& finding : findings)
    ++counts[{finding.id, std::string(to_string(finding.verdict))}];
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [key, count] : counts) {
    auto& series = impl_->checks[key];
    if (series == nullptr)
      series = &impl_->check_status.Add({{"check", key.first}, {"status", key.second}});
    series->Set(count);
  }
  // Remove the series of a status that no device has any more: alerts test whether it exists.
  std::erase_if(impl_->checks, [&](const auto& entry) {
    if (counts.contains(entry.first)) return false;
    impl_->check_status.Remove(entry.second);
    return true;
  });
  std::set<Impl::Device> told;
  for (const auto& status : statuses) {
    const Impl::Device device{status.check, status.gpu, status.nic};
    told.insert(device);
    auto& series = impl_->devices[device];
    if (series == nullptr) {
      series = &impl_->device_status.Add(
          {{"check", status.check}, {"gpu", status.gpu}, {"nic", status.nic}});
    }
    series->Set(status.value);
  }
  std::erase_if(impl_->devices, [&](const auto& entry) {
    if (told.contains(entry.first)) return false;
    impl_->device_status.Remove(entry.second);
    return true;
  });
}

void Metrics::counted(std::vector<CounterReading> readings, std::vector<Gpu> gpus) {
  const std::lock_guard lock(impl_->mutex);
  impl_->readings = std::move(readings);
  impl_->linked = std::move(gpus);
}

void Metrics::privileged_scan(const std::optional<WallTime>& pci_config,
                              const std::optional<WallTime>& registrations) {
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [of, time] :
       {std::pair{"pci-config", pci_config}, std::pair{"registrations", registrations}}) {
    auto& series = impl_->looks[of];
    if (!time) {
      if (series != nullptr) impl_->look_time.Remove(series);
      series = nullptr;
      continue;
    }
    if (series == nullptr) series = &impl_->look_time.Add({{"of", of}});
    series->Set(std::chrono::duration<double>(time->time_since_epoch()).count());
  }
}

void Metrics::published(bool wrote) {
  if (wrote) impl_->writes.Increment();
}
void Metrics::publish_failed() { impl_->failures.Increment(); }
void Metrics::lease_renewed() { impl_->renewals.Increment(); }
void Metrics::lease_failed() { impl_->lease_failures.Increment(); }

std::string Metrics::text() const {
  const std::lock_guard lock(impl_->mutex);
  impl_->memory.Set(resident_bytes());
  impl_->cpu.Increment(cpu_seconds() - impl_->cpu.Value());
  // The devices' totals may restart, which a counter of prometheus-cpp cannot.
  telemetry::TextSink devices;
  export_device_counters(impl_->name, impl_->readings, impl_->linked, devices);
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect()) + devices.text();
}

}  // namespace paceline::agent
