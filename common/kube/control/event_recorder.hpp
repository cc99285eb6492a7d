// SPDX-License-Identifier: Apache-2.0
// EventRecorder: writes events.k8s.io/v1 Events.
//
// Ownership: Api and Clock must outlive it. Thread-safe. `emit` never blocks and never fails: the
// queue is bounded, and an event that does not fit is dropped and counted. `run` writes events on
// its own thread, in order; while the server fails, they wait for up to ten minutes. `flush` tries
// once to write what is queued, for shut-down and tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
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
  /// Events that found no room, that the server refused, or that waited for too long.
  std::uint64_t dropped() const { return queue_.dropped() + refused_; }

 private:
  struct Series {
    std::string ns;
    std::string name;
    bool created = false;
    std::int64_t count = 1;
    SteadyTime last_seen{};
    SteadyTime last_write{};
    bool dirty = false;
    WallTime last_wall{};
  };
  struct NewEvent {
    std::string key;  // of its series
    std::string ns;
    std::string what;  // for the log
    std::string body;
    SteadyTime since{};
  };
  void record(const EventNote& note);
  void write_new(const std::stop_token& stop);
  void write_series(const std::stop_token& stop, bool all);

  Api& api_;
  const Clock& clock_;
  const std::string controller_;
  const std::string instance_;
  BoundedQueue<EventNote> queue_;
  std::mutex mutex_;  // is held while the server is asked
  std::unordered_map<std::string, Series> series_;
  std::deque<NewEvent> unwritten_;
  std::atomic<std::uint64_t> refused_ = 0;  // by the server, or too late
  std::uint64_t sequence_ = 0;
};

}  // namespace paceline::kube
