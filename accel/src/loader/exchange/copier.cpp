// SPDX-License-Identifier: Apache-2.0
#include "loader/exchange/copier.hpp"

#include <cstring>

namespace paceline::loader {

Copier::Copier() : thread_([this] { work(); }) {}

Copier::~Copier() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  begun_.notify_one();
  thread_.join();
}

std::uint64_t Copier::begin(void* target, const void* source, std::size_t size) {
  std::uint64_t copy = 0;
  {
    const std::lock_guard lock(mutex_);
    copies_.push_back({.target = target, .source = source, .size = size});
    copy = ++last_;
  }
  begun_.notify_one();
  return copy;
}

bool Copier::wait(std::uint64_t copy, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, timeout, [&] { return done_ >= copy; });
}

void Copier::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    begun_.wait(lock, [&] { return stopped_ || !copies_.empty(); });
    if (copies_.empty()) return;
    const Copy copy = copies_.front();
    copies_.pop_front();
    lock.unlock();
    std::memcpy(copy.target, copy.source, copy.size);
    lock.lock();
    ++done_;
    ended_.notify_all();
  }
}

}  // namespace paceline::loader
