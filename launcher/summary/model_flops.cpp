// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/model_flops.hpp"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "launcher/summary/effects.hpp"

namespace paceline::summary {
namespace {

using nlohmann::json;

constexpr double kMost = 1e24;

double amount(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return 0;
  const double value = found->get<double>();
  return std::isfinite(value) && value > 0 && value < kMost ? value : 0;
}

}  // namespace

std::optional<ModelFlops> parse_model_flops(std::string_view text) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  const auto model = document.find("model");
  if (model == document.end() || !model->is_object()) return std::nullopt;
  const ModelFlops read{amount(*model, "flops"), amount(*model, "tokens"),
                        amount(*model, "samples"), amount(*model, "peak")};
  return read.flops > 0 ? std::optional(read) : std::nullopt;
}

std::optional<ModelFlops> read_model_flops(const std::filesystem::path& file) {
  const auto text = read_rank_zero_file(file);
  return text ? parse_model_flops(*text) : std::nullopt;
}

double flops_per_second(const ModelFlops& model, const telemetry::JobSummary& summary) {
  const auto rank = std::ranges::find(summary.ranks, 0, &telemetry::RankSummary::rank);
  if (rank == summary.ranks.end()) return 0;
  if (model.tokens > 0 && rank->tokens_per_second > 0)
    return model.flops / model.tokens * rank->tokens_per_second;
  if (model.samples > 0 && rank->samples_per_second > 0)
    return model.flops / model.samples * rank->samples_per_second;
  return rank->p50 > 0 ? model.flops / rank->p50 : 0;
}

std::optional<double> mfu(const ModelFlops& model, const telemetry::JobSummary& summary) {
  const double speed = flops_per_second(model, summary);
  if (model.peak <= 0 || speed <= 0) return std::nullopt;
  return speed / model.peak;
}

}  // namespace paceline::summary
