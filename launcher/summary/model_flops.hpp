// SPDX-License-Identifier: Apache-2.0
// What rank 0's process says of its model: the floating-point operations of one step, and the
// device's peak. paceline/_core/effects.py writes it beside the effects. From it follow the
// operations per second and the MFU (model FLOPs utilization). Pure, apart from reading the file.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "common/telemetry/stats/summary.hpp"

namespace paceline::summary {

struct ModelFlops {
  double flops = 0;    // of the step that was counted
  double tokens = 0;   // of that step; 0: not counted
  double samples = 0;  // of that step; 0: not counted
  double peak = 0;     // per second, of the rank's device in the model's dtype; 0: unknown
  bool operator==(const ModelFlops&) const = default;
};

std::optional<ModelFlops> parse_model_flops(std::string_view text);
/// nullopt if there is no such file, or it cannot be trusted, or the program has counted nothing.
std::optional<ModelFlops> read_model_flops(const std::filesystem::path& file);

/// Of rank 0, from its tokens or samples per second, else from its median step. 0: unknown.
double flops_per_second(const ModelFlops& model, const telemetry::JobSummary& summary);
/// nullopt if the peak or the speed is unknown.
std::optional<double> mfu(const ModelFlops& model, const telemetry::JobSummary& summary);

}  // namespace paceline::summary
