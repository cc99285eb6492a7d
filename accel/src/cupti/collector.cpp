// SPDX-License-Identifier: Apache-2.0
#include "collector.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "base/clock.hpp"

namespace paceline::cupti {
namespace {

// The first is needed. Without one of the others only its part is missing.
constexpr std::array kKinds{kConcurrentKernel, kMemcpy, kMemset, kGraphTrace, kOverhead};
constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kSlackNs = 1'000'000;  // of a comparison of two clocks

}  // namespace

std::atomic<Collector*> Collector::active_{nullptr};

bool is_collective(const char* name) {
  if (name == nullptr) return false;
  std::string_view text = name;
  if (text.starts_with("_Z")) {  // then the length of the name
    text.remove_prefix(2);
    text.remove_prefix(std::min(text.find_first_not_of("0123456789"), text.size()));
  }
  return text.starts_with("nccl");
}

void Collector::request(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *buffer = nullptr;
  *size = 0;
  *max_records = 0;  // as many as fit
  Collector* self = active_.load(std::memory_order_acquire);
  if (self == nullptr) return;
  const std::lock_guard lock(self->pool_mutex_);
  for (Buffer& one : self->pool_) {
    if (one.lent || one.memory == nullptr) continue;
    one.lent = true;
    *buffer = one.memory;
    *size = kBufferBytes;
    return;
  }
}

void Collector::complete(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                         std::size_t valid) {
  Collector* self = active_.load(std::memory_order_acquire);
  if (self == nullptr || buffer == nullptr) return;
  const auto ours = [&](const Buffer& one) { return one.memory == buffer && one.lent; };
  {
    const std::lock_guard lock(self->pool_mutex_);
    if (std::ranges::none_of(self->pool_, ours)) return;  // of a profiler before us
  }
  self->read(buffer, valid);
  std::size_t dropped = 0;
  if (self->library_.dropped_records(context, stream, &dropped) == kSuccess)
    self->lost_.fetch_add(dropped, std::memory_order_relaxed);
  const std::lock_guard lock(self->pool_mutex_);
  if (const auto found = std::ranges::find_if(self->pool_, ours); found != self->pool_.end())
    found->lent = false;
}

void Collector::read(std::uint8_t* buffer, std::size_t valid) {
  const std::lock_guard lock(records_mutex_);
  Activity* record = nullptr;
  while (library_.next_record(buffer, valid, &record) == kSuccess && record != nullptr)
    take(*record);
}

void Collector::take(const Activity& record) {
  using device::Work;
  switch (record.kind) {
    case kConcurrentKernel: {
      const auto& kernel = reinterpret_cast<const Kernel&>(record);
      add({kernel.start, kernel.end, kernel.queued, 0, kernel.device, kernel.stream,
           is_collective(kernel.name) ? Work::kCollective : Work::kKernel});
      break;
    }
    case kMemcpy: {
      const auto& copy = reinterpret_cast<const Memcpy&>(record);
      const bool to_device = copy.copy_kind == kHostToDevice || copy.copy_kind == kHostToArray;
      add({copy.start, copy.end, 0, copy.bytes, copy.device, copy.stream,
           to_device ? Work::kCopyToDevice : Work::kCopyOther});
      break;
    }
    case kMemset: {
      const auto& set = reinterpret_cast<const Memset&>(record);
      add({set.start, set.end, 0, set.bytes, set.device, set.stream, Work::kCopyOther});
      break;
    }
    case kGraphTrace: {
      const auto& graph = reinterpret_cast<const GraphTrace&>(record);
      add({graph.start, graph.end, 0, 0, graph.device, graph.stream, Work::kGraph});
      break;
    }
    case kOverhead: {
      const auto& overhead = reinterpret_cast<const Overhead&>(record);
      if (overhead.end > overhead.start)
        overhead_.fetch_add(overhead.end - overhead.start, std::memory_order_relaxed);
      break;
    }
    default: break;  // of a kind that another profiler has enabled
  }
}

void Collector::add(const device::Interval& interval) {
  const bool no_times = interval.start_ns == 0 || interval.end_ns < interval.start_ns;
  if (no_times || records_.size() == kIntervals) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  records_.push_back(interval);
}

bool Collector::allocate() {
  const std::lock_guard lock(pool_mutex_);
  for (Buffer& one : pool_) {
    // From malloc: a profiler that takes CUPTI over during a window gets our buffers, and some free
    // what they get.
    if (one.memory == nullptr)
      one.memory = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
    if (one.memory == nullptr) return false;
  }
  return true;
}

std::expected<void, std::string> Collector::begin() {
  try {
    records_.reserve(kIntervals);
    enabled_.reserve(kKinds.size());
  } catch (const std::bad_alloc&) {
    return std::unexpected("no memory for its records");
  }
  if (!allocate()) return std::unexpected("no memory for its buffers");
  active_.store(this, std::memory_order_release);
  if (const int status = library_.register_callbacks(request, complete); status != kSuccess)
    return std::unexpected("cuptiActivityRegisterCallbacks: " + library_.error_name(status));
  if (abandoned_) {
    // CUPTI may still fill a buffer that was given up, and its records would be lost.
    for (const std::uint32_t kind : kKinds) library_.disable(kind);
    library_.flush(kForced);
    abandoned_ = false;
  }
  {
    const std::lock_guard lock(records_mutex_);
    records_.clear();
  }
  lost_ = 0;
  overhead_ = 0;
  began_ = read_clock();
  if (library_.latency_timestamps != nullptr) library_.latency_timestamps(1);
  for (const std::uint32_t kind : kKinds) {
    const int status = library_.enable(kind);
    if (status == kSuccess) enabled_.push_back(kind);
    if (status != kSuccess && kind == kConcurrentKernel) {
      end();
      return std::unexpected("cuptiActivityEnable: " + library_.error_name(status));
    }
  }
  return {};
}

void Collector::end() {
  for (const std::uint32_t kind : enabled_) library_.disable(kind);
  enabled_.clear();
  if (library_.latency_timestamps != nullptr) library_.latency_timestamps(0);
  ended_ = read_clock();
}

void Collector::flush(bool forced) { library_.flush(forced ? kForced : 0); }

void Collector::abandon() {
  enabled_.clear();
  abandoned_ = true;
  const std::lock_guard lock(pool_mutex_);
  for (Buffer& one : pool_) {
    if (one.lent) one = {};
  }
}

bool Collector::all_returned() const {
  const std::lock_guard lock(pool_mutex_);
  return std::ranges::none_of(pool_, &Buffer::lent);
}

Collector::Clock Collector::read_clock() const {
  Clock best;
  std::uint64_t narrowest = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const std::uint64_t before = base::monotonic_ns();
    std::uint64_t cupti = 0;
    if (library_.timestamp(&cupti) != kSuccess) return {};
    const std::uint64_t after = base::monotonic_ns();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    best = {before + narrowest / 2, cupti};
  }
  return best;
}

std::expected<std::vector<device::Interval>, std::string> Collector::intervals() {
  const std::lock_guard lock(records_mutex_);
  if (ended_.cupti <= began_.cupti || ended_.monotonic <= began_.monotonic)
    return std::unexpected("CUPTI's clock went back");
  // CUPTI's clock is the system's real time, or what another profiler has made it. Two readings
  // give its offset and its rate.
  const double rate = static_cast<double>(ended_.monotonic - began_.monotonic) /
                      static_cast<double>(ended_.cupti - began_.cupti);
  const auto converted = [&](std::uint64_t time) {
    const auto distance = static_cast<double>(static_cast<std::int64_t>(time - began_.cupti));
    const auto moved = static_cast<std::int64_t>(distance * rate);
    return began_.monotonic + static_cast<std::uint64_t>(moved);
  };
  std::vector<device::Interval> found = records_;
  std::size_t strange = 0;
  const std::uint64_t now = base::monotonic_ns();
  for (device::Interval& interval : found) {
    interval.start_ns = converted(interval.start_ns);
    interval.end_ns = converted(interval.end_ns);
    // CUPTI leaves the launch time of some kernels as it finds it.
    const std::uint64_t launched = converted(interval.launched_ns);
    const bool known = interval.launched_ns != 0 && launched <= interval.start_ns &&
                       launched + kSlackNs >= began_.monotonic;
    interval.launched_ns = known ? launched : 0;
    // What was recorded was launched after begin() and has ended.
    if (interval.start_ns + kSlackNs < began_.monotonic || interval.end_ns > now + kSlackNs)
      ++strange;
  }
  if (strange > found.size() / 100)
    return std::unexpected(std::to_string(strange) + " of " + std::to_string(found.size()) +
                           " records have times outside the window");
  return found;
}

}  // namespace paceline::cupti
