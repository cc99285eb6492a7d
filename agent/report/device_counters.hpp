// SPDX-License-Identifier: Apache-2.0
// What a node's devices have counted, as counters of Prometheus: the devices' own totals, as they
// stand. A device or driver that starts over restarts its counters at 0, which Prometheus knows how
// to read. Pure; nothing fails.
#pragma once

#include <string>
#include <vector>

#include "agent/probe/sysfs/counters.hpp"
#include "common/telemetry/metrics/metrics_sink.hpp"

namespace paceline::agent {

/// Of NVLinks at most 32 GPUs with 64 links each.
void export_device_counters(const std::string& node, const std::vector<CounterReading>& readings,
                            const std::vector<Gpu>& gpus, telemetry::MetricsSink& sink);

}  // namespace paceline::agent
