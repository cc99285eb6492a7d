// SPDX-License-Identifier: Apache-2.0
#include "agent/report/device_counters.hpp"

#include <algorithm>

namespace paceline::agent {
namespace {

constexpr std::size_t kMostGpusCounted = 32;
constexpr std::size_t kMostLinks = 64;

void export_nvlinks(const std::string& node, const std::vector<Gpu>& gpus,
                    telemetry::MetricsSink& sink) {
  bool begun = false;
  for (std::size_t i = 0; i < std::min(gpus.size(), kMostGpusCounted); ++i) {
    const auto& links = gpus[i].nvlinks;
    for (std::size_t j = 0; j < std::min(links.size(), kMostLinks); ++j) {
      if (!links[j].errors) continue;
      if (!begun) {
        sink.family("paceline_nvlink_errors_total", telemetry::MetricType::kCounter,
                    "Replays, recoveries and CRC errors of an NVLink, as NVML counts them.");
      }
      begun = true;
      sink.value({{"node", node},
                  {"gpu", "GPU" + std::to_string(gpus[i].index)},
                  {"link", std::to_string(links[j].link)}},
                 static_cast<double>(*links[j].errors));
    }
  }
}

}  // namespace

void export_device_counters(const std::string& node, const std::vector<CounterReading>& readings,
                            const std::vector<Gpu>& gpus, telemetry::MetricsSink& sink) {
  std::string_view metric;
  for (const CounterReading& reading : readings) {
    const CounterKind& kind = *reading.kind;
    if (kind.metric != metric) sink.family(kind.metric, telemetry::MetricType::kCounter, kind.help);
    metric = kind.metric;
    telemetry::Labels labels{{"node", node}, {"nic", reading.nic}};
    if (kind.of == CounterKind::Of::kRdmaPort)
      labels.emplace_back("port", std::to_string(reading.port));
    if (!kind.label.empty()) labels.emplace_back(kind.label, kind.value);
    sink.value(labels, static_cast<double>(reading.value) * kind.unit);
  }
  export_nvlinks(node, gpus, sink);
}

}  // namespace paceline::agent
