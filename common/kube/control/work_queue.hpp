// SPDX-License-Identifier: Apache-2.0
// WorkQueue: keys to reconcile. A key waits at most once and is handed to one worker at a time. If
// it is added while a worker has it, it is handed out again afterwards.
//
// Ownership: keys are copied. Thread-safe. Time comes from the Clock. `get` waits on real time; a
// simulation uses `try_get` and `next_due` instead. Bounded: `add` of a new key to a full queue
// returns false and sets `overflowed`. The owner then adds every key of its store again later.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/base/clock.hpp"

namespace paceline::kube {

struct WorkQueueOptions {
  std::size_t capacity = 200000;
  std::chrono::milliseconds min_backoff{50};
  std::chrono::milliseconds max_backoff{60000};
};

class WorkQueue {
 public:
  explicit WorkQueue(const Clock& clock, WorkQueueOptions options = {});

  bool add(const std::string& key);
  /// Adds the key after a delay. Of several delays the earliest wins; `add` makes the key due at
  /// once.
  bool add_after(const std::string& key, std::chrono::nanoseconds delay);
  /// Adds the key after its own back-off, which doubles each time until `forget`.
  bool add_backoff(const std::string& key);
  void forget(const std::string& key);
  std::uint32_t failures(const std::string& key) const;

  /// Waits for the next key; nullopt if stopped or shut down. The worker must call `done` with the
  /// key.
  std::optional<std::string> get(const std::stop_token& stop);
  std::optional<std::string> try_get();
  void done(const std::string& key);
  /// When this key is handed out next: now if it waits for a worker; nullopt: at no known time.
  std::optional<SteadyTime> due(const std::string& key) const;
  /// When the earliest delayed key is due.
  std::optional<SteadyTime> next_due() const;
  /// A key that a worker has, and since when.
  struct InHand {
    std::string key;
    SteadyTime since{};
  };
  /// The one that its worker has had for the longest time; nullopt: all workers are idle.
  std::optional<InHand> longest_in_hand() const;

  /// Hands out no more keys. `wait_idle` returns when every worker is done.
  void shut_down();
  void wait_idle();
  std::size_t size() const;
  bool take_overflowed();

 private:
  bool add_locked(const std::string& key);
  void promote_locked(SteadyTime now);
  std::optional<std::string> take_locked();

  const Clock& clock_;
  const WorkQueueOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::string> ready_;
  std::unordered_set<std::string> waiting_;  // in ready_, or waiting until their worker is done
  std::unordered_map<std::string, SteadyTime> processing_;  // by key: since when
  std::multimap<SteadyTime, std::string> delayed_;
  std::unordered_map<std::string, SteadyTime> due_;
  std::unordered_map<std::string, std::uint32_t> failures_;
  bool shut_down_ = false;
  bool overflowed_ = false;
};

}  // namespace paceline::kube
