// SPDX-License-Identifier: Apache-2.0
// BoundedQueue: a FIFO of limited length between threads. Its maker chooses the overflow policy;
// dropped items are counted.
//
// Ownership: items are moved in and out. Thread-safe. `push` returns whether the item was queued.
// `pop` returns nothing once the queue is stopped and empty.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

namespace paceline {

enum class Overflow {
  kBlock,       // the producer waits (back-pressure)
  kDropNewest,  // the new item is dropped
  kDropOldest,  // the oldest item is dropped
};

template <typename T>
class BoundedQueue {
 public:
  BoundedQueue(std::size_t capacity, Overflow policy)
      : capacity_(capacity == 0 ? 1 : capacity), policy_(policy) {}

  /// True when the item was queued. With kBlock it waits for room until `stop` is requested or the
  /// queue is closed.
  bool push(T item, const std::stop_token& stop = {}) {
    std::unique_lock lock(mutex_);
    if (policy_ == Overflow::kBlock) {
      changed_.wait(lock, stop, [&] { return closed_ || items_.size() < capacity_; });
    }
    if (closed_ || (items_.size() >= capacity_ && policy_ != Overflow::kDropOldest)) {
      ++dropped_;
      return false;
    }
    if (items_.size() >= capacity_) {
      items_.pop_front();
      ++dropped_;
    }
    items_.push_back(std::move(item));
    lock.unlock();
    changed_.notify_all();
    return true;
  }

  /// The next item; nullopt if the queue was stopped, or closed and emptied.
  std::optional<T> pop(const std::stop_token& stop = {}) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [&] { return closed_ || !items_.empty(); });
    return take(lock);
  }

  /// As `pop`, but waits `patience` at most.
  std::optional<T> pop_for(std::chrono::milliseconds patience, const std::stop_token& stop = {}) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, patience, [&] { return closed_ || !items_.empty(); });
    return take(lock);
  }

  /// Refuses further pushes; consumers drain what is left.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

  std::uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> take(std::unique_lock<std::mutex>& lock) {
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

  const std::size_t capacity_;
  const Overflow policy_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<T> items_;
  std::uint64_t dropped_ = 0;
  bool closed_ = false;
};

}  // namespace paceline
