// SPDX-License-Identifier: Apache-2.0
#include "base/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace paceline::base {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::uint32_t* word(std::atomic<std::uint32_t>& value) {
  return reinterpret_cast<std::uint32_t*>(&value);
}

}  // namespace

void Doorbell::ring() {
  count.fetch_add(1, std::memory_order_seq_cst);
  // Wake all: a process that is being replaced may still wait here too.
  if (waiting.load(std::memory_order_seq_cst) != 0)
    ::syscall(SYS_futex, word(count), FUTEX_WAKE, 0x7fffffff, nullptr, nullptr, 0);
}

Wake Doorbell::wait(std::uint32_t seen, std::int64_t timeout_ns) {
  if (count.load(std::memory_order_seq_cst) != seen) return Wake::kRung;
  if (timeout_ns <= 0) return Wake::kTimeout;
  const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / kSecond),
                         .tv_nsec = static_cast<long>(timeout_ns % kSecond)};
  waiting.store(1, std::memory_order_seq_cst);
  const long result = ::syscall(SYS_futex, word(count), FUTEX_WAIT, seen, &timeout, nullptr, 0);
  const int error = result == 0 ? 0 : errno;
  waiting.store(0, std::memory_order_seq_cst);
  if (error == ETIMEDOUT) return Wake::kTimeout;
  return error == EINTR ? Wake::kSignal : Wake::kRung;
}

}  // namespace paceline::base
