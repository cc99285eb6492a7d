// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "common/kube/control/event_recorder.hpp"

#include <cstdio>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/excerpt.hpp"
#include "common/base/timestamp.hpp"

namespace paceline::kube {
namespace {

constexpr std::size_t kQueued = 1024;
constexpr std::size_t kMaxSeries = 4096;
constexpr std::size_t kMaxNote = 1024;
constexpr std::chrono::minutes kSeriesEnd{6};
constexpr std::chrono::seconds kSeriesWrite{30};
constexpr std::chrono::seconds kRetry{2};
constexpr std::chrono::minutes kPatience{10};

}  // namespace

EventRecorder::EventRecorder(Api& api, const Clock& clock, std::string controller,
                             std::string instance)
    : api_(api),
      clock_(clock),
      controller_(std::move(controller)),
      instance_(std::move(instance)),
      queue_(kQueued, Overflow::kDropNewest) {}

void EventRecorder::emit(EventNote note) { queue_.push(std::move(note)); }

void EventRecorder::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (auto note = queue_.pop_for(kRetry, stop)) record(*note);
    write_new(stop);
    write_series(stop, false);
  }
  flush();
}

void EventRecorder::flush(const std::stop_token& stop) {
  while (queue_.size() > 0) {
    if (auto note = queue_.pop(stop)) record(*note);
  }
  write_new(stop);
  write_series(stop, true);
}

void EventRecorder::record(const EventNote& note) {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_.steady();
  std::erase_if(series_, [&](const auto& entry) {
    const Series& series = entry.second;
    return series.created && !series.dirty && now - series.last_seen > kSeriesEnd;
  });
  const std::string key =
      note.regarding.uid + '|' + (note.warning ? 'W' : 'N') + '|' + note.reason + '|' + note.action;
  if (const auto known = series_.find(key);
      known != series_.end() &&
      (!known->second.created || now - known->second.last_seen <= kSeriesEnd)) {
    ++known->second.count;
    known->second.last_seen = now;
    known->second.last_wall = clock_.wall();
    known->second.dirty = true;
    return;
  }
  if (unwritten_.size() >= kQueued) {
    ++refused_;
    return;
  }
  char suffix[40];
  std::snprintf(suffix, sizeof suffix, ".%llx.%llx",
                static_cast<unsigned long long>(clock_.wall().time_since_epoch().count()),
                static_cast<unsigned long long>(++sequence_));
  const std::string ns = note.regarding.ns.empty() ? "default" : note.regarding.ns;
  const std::string name = excerpt(note.regarding.name, 200) + suffix;
  const nlohmann::json event = {
      {"apiVersion", kEvents.api_version()},
      {"kind", kEvents.kind},
      {"metadata", {{"name", name}, {"namespace", ns}}},
      {"eventTime", format_micro_time(clock_.wall())},
      {"reportingController", controller_},
      {"reportingInstance", excerpt(instance_, 128)},
      {"action", excerpt(note.action, 128)},
      {"reason", excerpt(note.reason, 128)},
      {"type", note.warning ? "Warning" : "Normal"},
      {"note", excerpt(note.note, kMaxNote)},
      {"regarding",
       {{"apiVersion", note.regarding.api_version},
        {"kind", note.regarding.kind},
        {"namespace", note.regarding.ns},
        {"name", note.regarding.name},
        {"uid", note.regarding.uid}}},
  };
  unwritten_.push_back({key, ns,
                        note.reason + " of " + note.regarding.kind + ' ' + note.regarding.name,
                        event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), now});
  if (series_.size() < kMaxSeries)
    series_[key] = {ns, name, false, 1, now, now, false, clock_.wall()};
}

void EventRecorder::write_new(const std::stop_token& stop) {
  const std::lock_guard lock(mutex_);
  for (; !unwritten_.empty(); unwritten_.pop_front()) {
    const NewEvent& event = unwritten_.front();
    const auto created = api_.create(kEvents, event.ns, event.body, {}, stop);
    const auto series = series_.find(event.key);
    // The name is this recorder's own: where it exists, the answer to an earlier try was lost.
    if (created || created.error().code == Code::kAlreadyExists) {
      if (series != series_.end()) series->second.created = true;
      continue;
    }
    if (created.error().retry && clock_.steady() - event.since < kPatience) return;
    spdlog::warn("event {}: {}", event.what, to_string(created.error()));
    ++refused_;
    if (series != series_.end()) series_.erase(series);
  }
}

void EventRecorder::write_series(const std::stop_token& stop, bool all) {
  const std::lock_guard lock(mutex_);
  const SteadyTime now = clock_.steady();
  std::vector<std::string> gone;
  for (auto& [key, series] : series_) {
    if (!series.created || !series.dirty) continue;
    if (!all && now - series.last_write < kSeriesWrite) continue;
    const nlohmann::json patch = {
        {"series",
         {{"count", series.count}, {"lastObservedTime", format_micro_time(series.last_wall)}}}};
    const auto patched = api_.patch(kEvents, series.ns, series.name, patch.dump(), {}, stop);
    series.last_write = now;
    series.dirty = !patched && patched.error().retry;
    if (!patched && patched.error().code == Code::kNotFound)
      gone.push_back(key);  // expired on the server: the next occurrence is a new event
  }
  for (const std::string& key : gone) series_.erase(key);
}

}  // namespace paceline::kube
