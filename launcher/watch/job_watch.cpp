// SPDX-License-Identifier: Apache-2.0
#include "launcher/watch/job_watch.hpp"

#include <algorithm>
#include <chrono>

#include "launcher/diagnosis/advice.hpp"
#include "launcher/summary/effects.hpp"

namespace paceline::launcher {
namespace {

constexpr std::chrono::seconds kInterval{1};

std::string about(const diagnosis::Finding& finding) {
  std::string text(to_string(finding.kind));
  if (!finding.subject.empty()) text += " (" + finding.subject + ")";
  if (finding.rank) text += ", " + diagnosis::shown_rank(*finding.rank, finding.node);
  return text;
}

const std::string& name_of(const rendezvous::Node& node) {
  return node.node_name.empty() ? node.pod_name : node.node_name;
}

}  // namespace

JobWatch::JobWatch(const Config& config, rendezvous::Server& server, const Clock& clock, Log& log)
    : config_(config),
      server_(server),
      clock_(clock),
      log_(log),
      diagnosis_({config.hang_after, config.diagnosis_window}),
      meter_(config.goodput, config.restarts, clock) {}

diagnosis::Facts JobWatch::facts() const {
  const rendezvous::Gang& gang = server_.gang();
  diagnosis::Facts facts;
  facts.now = clock_.steady();
  facts.wall = clock_.wall();
  facts.running = gang.phase() == rendezvous::GangPhase::kRunning;
  facts.attempt = gang.attempt();
  facts.world_size = gang.table().world_size;
  facts.job = telemetry::fold(gang.ranks(), telemetry::Span::kWindow);
  for (const rendezvous::Node& node : gang.table().nodes) {
    facts.nodes.push_back(name_of(node));
    if (!contract::trains(node.kind)) continue;
    for (int rank = node.first_rank; rank < node.first_rank + node.processes; ++rank)
      facts.node_of[rank] = node.node_rank;
  }
  facts.stacks = {&gang.stacks(), gang.stacks_complete()};
  facts.trial = summary::trial_runs(config_.effects_file());
  const auto has = [&gang](contract::RoleKind kind) {
    return std::ranges::any_of(gang.table().nodes,
                               [kind](const rendezvous::Node& node) { return node.kind == kind; });
  };
  // Where a scheduler counts the workers, the servers wait for all of them.
  if (has(contract::RoleKind::kParameterServer) && !has(contract::RoleKind::kScheduler))
    facts.waits_for = diagnosis::WaitsFor::kServers;
  return facts;
}

void JobWatch::tick() {
  meter_.follow(server_.gang());
  tell_failure();
  const SteadyTime now = clock_.steady();
  if (now < next_) return;
  next_ = now + kInterval;
  tell(diagnosis_.update(facts()));
}

void JobWatch::tell(const diagnosis::News& news) {
  if (news.capture_stacks) {
    log_.line("no rank gets on: asking all of them for their stacks");
    server_.capture_stacks();
  }
  if (news.open_window) server_.open_window();
  for (const diagnosis::Finding& finding : news.gone) log_.line("no longer: " + about(finding));
  for (const diagnosis::Finding& finding : news.appeared) {
    log_.line("finding: " + about(finding) + ": " + finding.text + " " + finding.advice);
    const bool hangs =
        finding.kind == diagnosis::Kind::kHang || finding.kind == diagnosis::Kind::kMismatch;
    if (hangs && finding.certain && config_.restarts_on_hang)
      server_.end_hang(finding.rank.value_or(0), finding.text);
  }
}

diagnosis::Finding JobWatch::finding_of(const rendezvous::Culprit& culprit) const {
  const auto& nodes = server_.gang().table().nodes;
  const auto place = static_cast<std::size_t>(culprit.node_rank);
  // A spare may have its place by now.
  const bool there = place < nodes.size() && nodes[place].pod_name == culprit.pod_name;
  return diagnosis::failure_of(culprit, there ? name_of(nodes[place]) : culprit.pod_name,
                               rendezvous::describe(culprit));
}

std::optional<diagnosis::Finding> JobWatch::failure() const {
  const rendezvous::Gang& gang = server_.gang();
  const auto culprit = gang.culprit();
  if (!culprit || gang.phase() == rendezvous::GangPhase::kRunning ||
      gang.phase() == rendezvous::GangPhase::kSucceeded)
    return std::nullopt;
  return finding_of(*culprit);
}

void JobWatch::tell_failure() {
  if (const auto culprit = failures_.next(server_.gang()))
    tell({.appeared = {finding_of(*culprit)}});
}

diagnosis::Findings JobWatch::findings() const {
  diagnosis::Findings all = diagnosis_.findings();
  if (auto failed = failure()) all.insert(all.begin(), *std::move(failed));
  return all;
}

}  // namespace paceline::launcher
