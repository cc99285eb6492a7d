// SPDX-License-Identifier: Apache-2.0
// Exports the counters of a node's devices to Prometheus, with the devices' own totals. A device or
// driver that restarts begins at 0 again, which Prometheus handles. metrics.cpp calls it. Pure;
// nothing fails.
#pragma once

#include <string>
#include <vector>

#include "agent/probe/sysfs/counters.hpp"
#include "common/telemetry/metrics/metrics_sink.hpp"

namespace paceline::agent {

/// NVLinks of at most 32 GPUs with 64 links each.
void export_device_counters(const std::string& node, const std::vector<CounterReading>& readings,
                            const std::vector<Gpu>& gpus, telemetry::MetricsSink& sink);

}  // namespace paceline::agent
