// SPDX-License-Identifier: Apache-2.0
// A CUPTI without a device: libcupti.so.14 to the library under test. It plays the records that a
// test gives it, in buffers that it asks for, with all fields of the real records and garbage where
// the library must not look.
#include "fake_cupti.hpp"

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define FAKE_EXPORT __attribute__((visibility("default")))

namespace {

constexpr std::size_t kKernelBytes = 208;  // as large as those of the newest release
constexpr std::size_t kCopyBytes = 104;
constexpr std::size_t kGraphBytes = 56;
constexpr int kTaken = 39;
constexpr int kEmpty = 12;  // CUPTI_ERROR_MAX_LIMIT_REACHED: no more records in this buffer

using Request = void (*)(std::uint8_t**, std::size_t*, std::size_t*);
using Complete = void (*)(void*, std::uint32_t, std::uint8_t*, std::size_t, std::size_t);

struct Buffer {
  std::uint8_t* memory;
  std::size_t size;
  std::size_t used;
};

struct Fake {
  std::mutex mutex;
  FakeCuptiState state{};
  std::map<std::uint32_t, std::uint64_t> kinds;  // that are enabled, and since when
  std::set<std::string> names;                   // kernels' names live as long as their module
  std::vector<Buffer> buffers;                   // lent to CUPTI, the last one is being filled
  Request request = nullptr;
  Complete complete = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t misdated = 0;
  double rate = 1;
  std::uint64_t stopped = 0;
  bool taken = false;
  int refuse = 0;
  int late = 0;
  int flushes = 0;
  int dropped = 0;
  std::uint64_t busy_until = 0;  // the device still works on what it was given
};

Fake& fake() {
  static Fake* const one = new Fake;
  return *one;
}

std::uint64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

std::uint64_t device_time(std::uint64_t monotonic) {
  if (monotonic == 0) return 0;
  const Fake& one = fake();
  return one.offset + static_cast<std::uint64_t>(static_cast<double>(monotonic) * one.rate);
}

template <typename Value>
void put(std::vector<std::uint8_t>& record, std::size_t at, Value value) {
  std::memcpy(record.data() + at, &value, sizeof(value));
}

std::vector<std::uint8_t> written(const FakeCuptiRecord& from) {
  const bool kernel = from.work == kFakeKernel;
  const bool graph = from.work == kFakeGraph;
  std::vector<std::uint8_t> record(kernel ? kKernelBytes : graph ? kGraphBytes : kCopyBytes, 0xa5);
  put(record, 0, static_cast<std::uint32_t>(from.work));
  const std::size_t times = graph ? 8 : 16;
  put(record, times, device_time(from.start - fake().misdated));
  put(record, times + 8, device_time(from.end - fake().misdated));
  const std::size_t place = kernel ? 40 : graph ? 24 : 32;
  put(record, place, from.device);
  put(record, graph ? 36 : place + 8, from.stream);
  if (kernel) {
    put(record, 104, fake().names.insert(from.name).first->c_str());
    put(record, 120, fake().state.latency != 0 ? device_time(from.queued) : 0);
  } else if (!graph) {
    put(record, 4, static_cast<std::uint8_t>(from.copy_kind));
    put(record, 8, from.bytes);
  }
  return record;
}

std::size_t size_of(std::uint32_t kind) {
  return kind == kFakeKernel ? kKernelBytes : kind == kFakeGraph ? kGraphBytes : kCopyBytes;
}

}  // namespace

extern "C" {

FAKE_EXPORT int cuptiSubscribe(void** subscriber, void*, void*) {
  const std::lock_guard lock(fake().mutex);
  if (fake().refuse != 0) return fake().refuse;
  if (fake().taken || fake().state.subscribers > 0) return kTaken;
  ++fake().state.subscribers;
  *subscriber = &fake();
  return 0;
}

FAKE_EXPORT int cuptiUnsubscribe(void*) {
  const std::lock_guard lock(fake().mutex);
  --fake().state.subscribers;
  return 0;
}

FAKE_EXPORT int cuptiActivityRegisterCallbacks(Request request, Complete complete) {
  const std::lock_guard lock(fake().mutex);
  fake().request = request;
  fake().complete = complete;
  return 0;
}

FAKE_EXPORT int cuptiActivityEnable(std::uint32_t kind) {
  const std::lock_guard lock(fake().mutex);
  if (fake().refuse != 0) return fake().refuse;
  ++fake().state.enables;
  if (kind == 3) ++fake().state.serializing;
  fake().kinds.try_emplace(kind, now());
  fake().state.enabled = static_cast<int>(fake().kinds.size());
  return 0;
}

FAKE_EXPORT int cuptiActivityDisable(std::uint32_t kind) {
  const std::lock_guard lock(fake().mutex);
  fake().kinds.erase(kind);
  fake().state.enabled = static_cast<int>(fake().kinds.size());
  return 0;
}

FAKE_EXPORT int cuptiActivityEnableLatencyTimestamps(std::uint8_t on) {
  const std::lock_guard lock(fake().mutex);
  fake().state.latency = on;
  return 0;
}

// Gives the buffers back, also those that a profiler before has lent.
FAKE_EXPORT int cuptiActivityFlushAll(std::uint32_t flag) {
  std::vector<Buffer> buffers;
  Complete complete = nullptr;
  {
    const std::lock_guard lock(fake().mutex);
    ++fake().flushes;
    const bool early = fake().late < 0 || fake().flushes < fake().late;
    if (flag == 0 && (early || now() < fake().busy_until)) return 0;
    buffers.swap(fake().buffers);
    fake().state.lent = 0;
    complete = fake().complete;
  }
  for (const Buffer& one : buffers) complete(nullptr, 0, one.memory, one.size, one.used);
  return 0;
}

FAKE_EXPORT int cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid,
                                           std::uint8_t** record) {
  std::size_t at = 0;
  if (*record != nullptr) {
    std::uint32_t kind = 0;
    std::memcpy(&kind, *record, sizeof(kind));
    at = static_cast<std::size_t>(*record - buffer) + size_of(kind);
  }
  if (at >= valid) return kEmpty;
  *record = buffer + at;
  return 0;
}

FAKE_EXPORT int cuptiActivityGetNumDroppedRecords(void*, std::uint32_t, std::size_t* dropped) {
  const std::lock_guard lock(fake().mutex);
  *dropped = static_cast<std::size_t>(fake().dropped);
  fake().dropped = 0;
  return 0;
}

FAKE_EXPORT int cuptiGetTimestamp(std::uint64_t* time) {
  const std::lock_guard lock(fake().mutex);
  *time = fake().stopped != 0 ? fake().stopped : device_time(now());
  return 0;
}

FAKE_EXPORT int cuptiGetResultString(int status, const char** name) {
  *name = status == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_OTHER";
  return 0;
}

FAKE_EXPORT int cuptiFinalize() {
  const std::lock_guard lock(fake().mutex);
  ++fake().state.finalized;
  return 0;
}

// Called by the thread that would launch the work. A record without a buffer is dropped. So is work
// that began before its kind was enabled: the thread may have lost its processor since then.
FAKE_EXPORT void fake_cupti_play(const FakeCuptiRecord* record) {
  const std::lock_guard lock(fake().mutex);
  const auto kind = fake().kinds.find(static_cast<std::uint32_t>(record->work));
  if (kind == fake().kinds.end() || (record->start != 0 && record->start < kind->second)) return;
  const std::vector<std::uint8_t> bytes = written(*record);
  std::vector<Buffer>& buffers = fake().buffers;
  if (buffers.empty() || buffers.back().used + bytes.size() > buffers.back().size) {
    Buffer fresh{};
    std::size_t most = 0;
    fake().request(&fresh.memory, &fresh.size, &most);
    if (fresh.memory == nullptr) {
      ++fake().dropped;
      return;
    }
    buffers.push_back(fresh);
  }
  std::memcpy(buffers.back().memory + buffers.back().used, bytes.data(), bytes.size());
  buffers.back().used += bytes.size();
  fake().flushes = 0;
  fake().busy_until = std::max(fake().busy_until, record->end);
  fake().state.lent = static_cast<int>(buffers.size());
}

FAKE_EXPORT void fake_cupti_clock(std::uint64_t offset, double rate) {
  const std::lock_guard lock(fake().mutex);
  fake().offset = offset;
  fake().rate = rate;
}

FAKE_EXPORT void fake_cupti_misdate(std::uint64_t nanoseconds) {
  const std::lock_guard lock(fake().mutex);
  fake().misdated = nanoseconds;
}

FAKE_EXPORT void fake_cupti_stop_clock() {
  const std::lock_guard lock(fake().mutex);
  fake().stopped = device_time(now());
}

FAKE_EXPORT void fake_cupti_take(int taken) {
  const std::lock_guard lock(fake().mutex);
  fake().taken = taken != 0;
}

FAKE_EXPORT void fake_cupti_refuse(int status) {
  const std::lock_guard lock(fake().mutex);
  fake().refuse = status;
}

FAKE_EXPORT void fake_cupti_late(int flushes) {
  const std::lock_guard lock(fake().mutex);
  fake().late = flushes;
}

FAKE_EXPORT void fake_cupti_drop(int records) {
  const std::lock_guard lock(fake().mutex);
  fake().dropped = records;
}

FAKE_EXPORT void fake_cupti_state(FakeCuptiState* state) {
  const std::lock_guard lock(fake().mutex);
  *state = fake().state;
}

}  // extern "C"
