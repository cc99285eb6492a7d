// SPDX-License-Identifier: Apache-2.0
#include "common/kube/control/work_queue.hpp"

#include <algorithm>

namespace paceline::kube {

WorkQueue::WorkQueue(const Clock& clock, WorkQueueOptions options)
    : clock_(clock), options_(options) {}

bool WorkQueue::add_locked(const std::string& key) {
  if (shut_down_ || waiting_.contains(key)) return !shut_down_;
  if (waiting_.size() + due_.size() >= options_.capacity) {
    overflowed_ = true;
    return false;
  }
  waiting_.insert(key);
  if (!processing_.contains(key)) ready_.push_back(key);
  return true;
}

bool WorkQueue::add(const std::string& key) {
  bool added = false;
  {
    const std::lock_guard lock(mutex_);
    added = add_locked(key);
  }
  changed_.notify_one();
  return added;
}

bool WorkQueue::add_after(const std::string& key, std::chrono::nanoseconds delay) {
  if (delay.count() <= 0) return add(key);
  {
    const std::lock_guard lock(mutex_);
    if (shut_down_) return false;
    const SteadyTime due =
        clock_.steady() + std::chrono::duration_cast<SteadyTime::duration>(delay);
    if (const auto known = due_.find(key); known != due_.end()) {
      if (known->second <= due) return true;
      const auto [first, last] = delayed_.equal_range(known->second);
      delayed_.erase(
          std::find_if(first, last, [&](const auto& entry) { return entry.second == key; }));
      known->second = due;
    } else {
      if (waiting_.size() + due_.size() >= options_.capacity) {
        overflowed_ = true;
        return false;
      }
      due_.emplace(key, due);
    }
    delayed_.emplace(due, key);
  }
  changed_.notify_all();  // waiting workers sleep until the earliest time that they knew
  return true;
}

bool WorkQueue::add_backoff(const std::string& key) {
  std::chrono::milliseconds delay;
  {
    const std::lock_guard lock(mutex_);
    const std::uint32_t failures = failures_[key]++;
    delay = failures < 20
                ? std::min(options_.max_backoff,
                           std::chrono::milliseconds(options_.min_backoff.count() << failures))
                : options_.max_backoff;
  }
  return add_after(key, delay);
}

void WorkQueue::forget(const std::string& key) {
  const std::lock_guard lock(mutex_);
  failures_.erase(key);
}

std::uint32_t WorkQueue::failures(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

void WorkQueue::promote_locked(SteadyTime now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const std::string key = std::move(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
    // done before add: the key first frees its own place, so that a full queue never loses it
    due_.erase(key);
    add_locked(key);
  }
}

std::optional<std::string> WorkQueue::take_locked() {
  if (ready_.empty()) return std::nullopt;
  std::string key = std::move(ready_.front());
  ready_.pop_front();
  waiting_.erase(key);
  processing_.emplace(key, clock_.steady());
  return key;
}

std::optional<std::string> WorkQueue::get(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!shut_down_ && !stop.stop_requested()) {
    promote_locked(clock_.steady());
    if (auto key = take_locked()) {
      if (!ready_.empty()) changed_.notify_one();
      return key;
    }
    const auto woken = [&] { return shut_down_ || !ready_.empty(); };
    if (delayed_.empty()) {
      changed_.wait(lock, stop, [&] { return woken() || !delayed_.empty(); });
    } else {
      const SteadyTime first = delayed_.begin()->first;
      changed_.wait_until(lock, stop, first, [&] {
        return woken() || delayed_.empty() || delayed_.begin()->first < first;
      });
    }
  }
  return std::nullopt;
}

std::optional<std::string> WorkQueue::try_get() {
  const std::lock_guard lock(mutex_);
  if (shut_down_) return std::nullopt;
  promote_locked(clock_.steady());
  return take_locked();
}

void WorkQueue::done(const std::string& key) {
  {
    const std::lock_guard lock(mutex_);
    processing_.erase(key);
    if (waiting_.contains(key)) ready_.push_back(key);
  }
  changed_.notify_all();
}

std::optional<SteadyTime> WorkQueue::due(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  if (waiting_.contains(key)) return clock_.steady();
  const auto delayed = due_.find(key);
  return delayed == due_.end() ? std::nullopt : std::optional(delayed->second);
}

std::optional<SteadyTime> WorkQueue::next_due() const {
  const std::lock_guard lock(mutex_);
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

std::optional<WorkQueue::InHand> WorkQueue::longest_in_hand() const {
  const std::lock_guard lock(mutex_);
  const auto first =
      std::ranges::min_element(processing_, {}, [](const auto& entry) { return entry.second; });
  if (first == processing_.end()) return std::nullopt;
  return InHand{first->first, first->second};
}

void WorkQueue::shut_down() {
  {
    const std::lock_guard lock(mutex_);
    shut_down_ = true;
  }
  changed_.notify_all();
}

void WorkQueue::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return processing_.empty(); });
}

std::size_t WorkQueue::size() const {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + due_.size();
}

bool WorkQueue::take_overflowed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(overflowed_, false);
}

}  // namespace paceline::kube
