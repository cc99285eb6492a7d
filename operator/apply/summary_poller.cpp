// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "operator/apply/summary_poller.hpp"

#include <algorithm>
#include <exception>

namespace paceline::apply {
namespace {

constexpr std::chrono::nanoseconds kLongestPause = std::chrono::minutes(1);
constexpr std::chrono::nanoseconds kLook = std::chrono::milliseconds(500);
/// When a job is due that is read just now.
constexpr SteadyTime kUnset = SteadyTime::max();

/// nullopt: no answer. So is an exception, which would end a thread that reads other jobs, too.
std::optional<status::Report> ask(const SummarySource& source, const Launcher& launcher) {
  try {
    const auto text = source(launcher);
    return text ? status::read_report(*text) : std::nullopt;
  } catch (const std::exception& error) {
    spdlog::error("internal error: the summary of {}: {}; other jobs go on", launcher.ip,
                  error.what());
    return std::nullopt;
  }
}

}  // namespace

SummaryPoller::SummaryPoller(const Clock& clock, SummarySource source, Answer on_answer)
    : clock_(clock), source_(std::move(source)), on_answer_(std::move(on_answer)) {}

void SummaryPoller::watch(const std::string& uid, Target target) {
  const std::lock_guard lock(mutex_);
  const auto [job, fresh] = jobs_.try_emplace(uid);
  // Another pod is asked at once, however often the last one failed to answer.
  const Launcher& last = job->second.target.launcher;
  const Launcher& now = target.launcher;
  if (fresh || last.ip != now.ip || last.port != now.port) {
    job->second.due = clock_.steady();
    job->second.failures = 0;
  }
  if (!now.warned.nodes.empty() && now.warned != last.warned) {
    job->second.due = clock_.steady();
    job->second.hurried = true;  // before launchers that may not answer
  }
  job->second.target = std::move(target);
  changed_.notify_one();
}

void SummaryPoller::forget(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  jobs_.erase(uid);
}

bool SummaryPoller::hurry(const std::string& uid) {
  const std::lock_guard lock(mutex_);
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return false;
  job->second.hurried = true;
  job->second.due = clock_.steady();
  changed_.notify_one();
  return true;
}

SummaryPoller::Jobs::iterator SummaryPoller::next() {
  const SteadyTime now = clock_.steady();
  auto best = jobs_.end();
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (job->second.busy || job->second.due > now) continue;
    const auto rank = [](const Job& j) { return std::pair(!j.hurried, j.due); };
    if (best == jobs_.end() || rank(job->second) < rank(best->second)) best = job;
  }
  return best;
}

bool SummaryPoller::poll_one() {
  std::string uid;
  Target target;
  bool hurried = false;
  {
    const std::lock_guard lock(mutex_);
    const auto job = next();
    if (job == jobs_.end()) return false;
    uid = job->first;
    target = job->second.target;
    hurried = std::exchange(job->second.hurried, false);
    job->second.busy = true;
    job->second.due = kUnset;
  }
  auto report = ask(source_, target.launcher);
  {
    const std::lock_guard lock(mutex_);
    if (const auto job = jobs_.find(uid); job != jobs_.end()) {
      Job& polled = job->second;
      polled.busy = false;
      // Unless another pod, or a warning, has come meanwhile: it is asked at once.
      if (polled.due == kUnset) {
        polled.failures = report ? 0 : std::min(polled.failures + 1, 6);
        const auto pause = polled.target.interval * (1 << polled.failures);
        polled.due = clock_.steady() + std::clamp(pause, polled.target.interval,
                                                  std::max(kLongestPause, polled.target.interval));
      }
    }
  }
  if (report || hurried) on_answer_(uid, std::move(report));
  return true;
}

void SummaryPoller::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (poll_one()) continue;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, kLook, [this] { return next() != jobs_.end(); });
  }
}

}  // namespace paceline::apply
