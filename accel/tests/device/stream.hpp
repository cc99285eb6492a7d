// SPDX-License-Identifier: Apache-2.0
// A device's streams and events, as threads. Owned by the fake driver; any thread may call.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

namespace paceline::device_test {

// What a stream is given, done by its thread in this order.
struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  bool ending = false;
  std::thread thread{[this] { run(); }};

  void add(std::function<void()> one) {
    const std::lock_guard lock(mutex);
    work.push_back(std::move(one));
    changed.notify_all();
  }

  void run() {
    std::mt19937 random(static_cast<unsigned>(::getpid()));
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !work.empty() || ending; });
      if (work.empty()) return;
      const std::function<void()> one = std::move(work.front());
      work.pop_front();
      lock.unlock();
      ::usleep(random() % 300);
      one();
      lock.lock();
    }
  }

  ~Stream() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
    }
    changed.notify_all();
    thread.join();
  }
};

// A record that has not happened yet is one that was counted and not reached. Streams keep what
// they wait for, whoever destroys it.
struct Event {
  std::mutex mutex;
  std::condition_variable changed;
  unsigned recorded = 0;
  unsigned reached = 0;
};

}  // namespace paceline::device_test
