// SPDX-License-Identifier: Apache-2.0
#include "launcher/spans/job_spans.hpp"

#include <chrono>
#include <utility>

#include "common/base/timestamp.hpp"

namespace paceline::spans {
namespace {

constexpr std::chrono::seconds kInterval{1};

std::optional<WallTime> time_of(const std::string& text) {
  const auto time = parse_time(text);
  return time ? std::optional(*time) : std::nullopt;
}

JobFacts facts_of(const launcher::Config& config, const std::string& parent) {
  JobFacts job{.name = config.job_name, .uid = config.job_uid, .parent = parent};
  job.created = time_of(config.job_created);
  job.placed = time_of(config.job_placed);
  job.attempt = config.attempt;
  return job;
}

}  // namespace

JobSpans::JobSpans(const frameworks::Environment& environment, const launcher::Config& config,
                   const Clock& clock, launcher::Log& log)
    : config_(config), clock_(clock) {
  auto target = read_target(environment, config);
  if (!target && config.node_rank == 0)
    log.line("no spans are exported: " + target.error().message);
  if (target) target_ = *std::move(target);
  if (!target_ || config.node_rank != 0) return;
  life_.emplace(facts_of(config, target_->parent), clock.wall());
  exporter_.emplace(*target_, log);
}

void JobSpans::tell(int attempt, std::vector<process::RankSpec>& ranks) const {
  if (!target_) return;
  for (process::RankSpec& rank : ranks)
    spans::tell(*target_, config_.job_uid, attempt, rank.request.environment);
}

void JobSpans::tick(const rendezvous::Gang& gang) {
  if (!exporter_) return;
  const SteadyTime now = clock_.steady();
  if (now < next_) return exporter_->push(life_->follow(gang, clock_.wall()));
  next_ = now + kInterval;
  exporter_->push(life_->look_at_ranks(gang, clock_.wall()));
}

void JobSpans::end(const rendezvous::Gang& gang, const rendezvous::Outcome& outcome) {
  if (!exporter_) return;
  const WallTime now = clock_.wall();
  const bool succeeded = outcome.end == rendezvous::End::kSucceeded;
  exporter_->push(life_->look_at_ranks(gang, now));
  exporter_->push(life_->end(succeeded ? "" : outcome.message, gang.finished(), now));
  exporter_.reset();
}

}  // namespace paceline::spans
