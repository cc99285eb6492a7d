// SPDX-License-Identifier: Apache-2.0
// EventRecorder: events.k8s.io/v1, aggregated. The same (object, type, reason, action) within six
// minutes becomes one Event whose series is counted up, written at most twice a minute.
//
// Ownership: refers to Api and Clock. Thread-safe: `emit` never blocks and never fails (a bounded
// queue; what does not fit is dropped and counted). `run` writes from its own thread; `flush`
// writes what is queued, for shut-down and the simulation.
#pragma once

#include <cstdint>
#include <mutex>
#include <stop_token>
#include <string>
#include <unordered_map>

#include "common/base/clock.hpp"
#include "common/base/queue.hpp"
#include "common/kube/api/api.hpp"

namespace paceline::kube {

struct ObjectReference {
  std::string api_version;
  std::string kind;
  std::string ns;
  std::string name;
  std::string uid;
};

struct EventNote {
  ObjectReference regarding;
  bool warning = false;
  std::string reason;  // CamelCase, at most 128 bytes
  std::string action;  // what the controller did or tried
  std::string note;    // for people, cut at 1,024 bytes
};

class EventRecorder {
 public:
  EventRecorder(Api& api, const Clock& clock, std::string controller, std::string instance);
  void emit(EventNote note);
  void run(const std::stop_token& stop);
  void flush(const std::stop_token& stop = {});
  std::uint64_t dropped() const { return queue_.dropped(); }

 private:
  struct Series {
    std::string ns;
    std::string name;
    std::int64_t count = 1;
    SteadyTime last_seen{};
    SteadyTime last_write{};
    bool dirty = false;
    WallTime last_wall{};
  };
  void record(const EventNote& note, const std::stop_token& stop);
  void write_series(const std::stop_token& stop, bool all);

  Api& api_;
  const Clock& clock_;
  const std::string controller_;
  const std::string instance_;
  BoundedQueue<EventNote> queue_;
  std::mutex mutex_;
  std::unordered_map<std::string, Series> series_;
  std::uint64_t sequence_ = 0;
};

}  // namespace paceline::kube
