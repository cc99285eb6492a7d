// SPDX-License-Identifier: Apache-2.0
// Streams and events of the fake driver, in a time that the test moves. fake_cuda.cpp includes it.
//
// Work is queued with fake_cuda_work and takes the device the time that it says. fake_cuda_advance
// moves the clock. An event is complete when the clock has passed the work that was queued before
// it. fake_cuda_set takes these names more:
// - "capturing": a graph is captured on every stream.
// - "never": events that are recorded from now on are never complete.
// - "pool": how many events may be created.
// A query by a thread that is not in relaxed mode while "captured elsewhere" is set ends the
// capture: "captures broken" counts them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
enum : int { kOutOfMemory = 2, kInvalidHandle = 400, kNotReadyYet = 600 };

struct FakeEvent {
  std::uint64_t at = kNever;
};

struct DeviceTime {
  std::mutex mutex;
  std::uint64_t now = 0;
  std::map<void*, std::uint64_t> busy_until;  // by stream
  int created = 0;
  // The library's events live as long as the process, as in the real driver.
  std::deque<FakeEvent> events;
};

DeviceTime& device_time() {
  static auto& time = *new DeviceTime;
  return time;
}

}  // namespace

FAKE void fake_cuda_work(void* stream, std::uint64_t ns) {
  DeviceTime& time = device_time();
  const std::lock_guard lock(time.mutex);
  std::uint64_t& until = time.busy_until[stream];
  until = (until > time.now ? until : time.now) + ns;
}
FAKE void fake_cuda_advance(std::uint64_t ns) {
  DeviceTime& time = device_time();
  const std::lock_guard lock(time.mutex);
  time.now += ns;
}
FAKE int fake_cuda_events() { return device_time().created; }

FAKE int cuCtxGetCurrent(void** context) {
  *context = context_stack.empty() ? nullptr : context_stack.back();
  return told("cuCtxGetCurrent");
}

FAKE int cuCtxGetDevice(int* device) {
  if (context_stack.empty()) return kNoContext;
  *device = static_cast<int>(reinterpret_cast<std::uintptr_t>(context_stack.back())) - 1;
  return told("cuCtxGetDevice");
}

FAKE int cuDeviceGetPCIBusId(char* text, int size, int device) {
  const int length =
      std::snprintf(text, static_cast<std::size_t>(size), "0000:%02X:00.0", 0xa0 + device);
  return length < size ? 0 : kInvalidValue;
}

FAKE int cuStreamIsCapturing(void*, int* status) {
  *status = told("capturing");
  return told("cuStreamIsCapturing");
}

FAKE int cuEventCreate(void** event, unsigned flags) {
  const int answer = call("cuEventCreate", flags);
  if (answer != 0) return answer;
  DeviceTime& time = device_time();
  const std::lock_guard lock(time.mutex);
  const int most = told("pool");
  if (most != 0 && time.created >= most) return kOutOfMemory;
  ++time.created;
  *event = &time.events.emplace_back();
  return 0;
}

FAKE int cuEventRecord(void* event, void* stream) {
  const int answer = call("cuEventRecord", reinterpret_cast<std::uintptr_t>(stream));
  if (answer != 0) return answer;
  if (told("capturing") != 0) return kCaptured;
  DeviceTime& time = device_time();
  const std::lock_guard lock(time.mutex);
  const std::uint64_t until = time.busy_until[stream];
  static_cast<FakeEvent*>(event)->at =
      told("never") != 0 ? kNever : (until > time.now ? until : time.now);
  return 0;
}

FAKE int cuEventQuery(void* event) {
  if (told("captured elsewhere") != 0 && capture_mode != 2) {
    fake_cuda_set("captures broken", told("captures broken") + 1);
    return kCaptured;
  }
  const int answer = call("cuEventQuery");
  if (answer != 0) return answer;
  DeviceTime& time = device_time();
  const std::lock_guard lock(time.mutex);
  return static_cast<FakeEvent*>(event)->at <= time.now ? 0 : kNotReadyYet;
}

FAKE int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  const int answer = call("cuEventElapsedTime");
  if (answer != 0) return answer;
  DeviceTime& time = device_time();
  const std::lock_guard lock(time.mutex);
  const std::uint64_t begin = static_cast<FakeEvent*>(from)->at;
  const std::uint64_t end = static_cast<FakeEvent*>(to)->at;
  if (begin > time.now || end > time.now) return kNotReadyYet;
  *milliseconds = static_cast<float>((static_cast<double>(end) - static_cast<double>(begin)) / 1e6);
  return 0;
}
