// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator/queue.hpp"

#include <utility>

namespace paceline::comm {

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::uint64_t Queue::add(std::function<int()> task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.size() < kMost; });
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  tasks_.push_back(std::move(task));
  ++given_;
  changed_.notify_all();
  return given_;
}

bool Queue::wait(std::uint64_t number, int& code) {
  std::unique_lock lock(mutex_);
  if (number == 0 || number > given_) return false;
  changed_.wait(lock, [&] { return done_ >= number; });
  code = failed_ != 0 && failed_ <= number ? code_ : 0;
  return true;
}

bool Queue::is_done(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return number != 0 && number <= done_;
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty(); });
}

bool Queue::idle() const {
  const std::lock_guard lock(mutex_);
  return tasks_.empty();
}

void Queue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !tasks_.empty() || stopping_; });
    if (tasks_.empty()) return;
    const std::function<int()>& task =
        tasks_.front();  // a deque does not move its elements when it grows
    lock.unlock();
    const int code = task();
    lock.lock();
    tasks_.pop_front();
    ++done_;
    if (code != 0 && failed_ == 0) {
      failed_ = done_;
      code_ = code;
    }
    changed_.notify_all();
  }
}

}  // namespace paceline::comm
