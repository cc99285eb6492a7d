// SPDX-License-Identifier: Apache-2.0
// EventRecorder: writes events.k8s.io/v1 Events.
//
// Ownership: Api and Clock must outlive it. Thread-safe. `emit` never blocks and never fails: the
// queue is bounded, and an event that does not fit is dropped and counted. `run` writes events on
// its own thread. `flush` writes the queued events, for shut-down and the simulation.
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
  std::string note;    // shown to people, cut at 1,024 bytes
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
