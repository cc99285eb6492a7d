// SPDX-License-Identifier: Apache-2.0
// A ring as a rank makes it, and rings that break each rule that a rank may break.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "common/base/unique_fd.hpp"
#include "paceline/step_record.h"

namespace paceline::telemetry::test {

inline paceline_ring_offer ring_offer(int rank, std::uint32_t attempt = 0) {
  paceline_ring_offer value{};
  value.magic = PACELINE_OFFER_MAGIC;
  value.version = PACELINE_OFFER_VERSION;
  value.size = sizeof value;
  value.world_rank = rank;
  value.attempt = attempt;
  return value;
}

class TestRing {
 public:
  explicit TestRing(std::uint32_t capacity = 8,
                    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
      : capacity_(capacity),
        bytes_(PACELINE_HEADER_BYTES + std::size_t{PACELINE_RECORD_BYTES} * capacity) {
    fd_.reset(::memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    [[maybe_unused]] const int sized = ::ftruncate(fd_.get(), static_cast<off_t>(bytes_));
    base_ = static_cast<std::byte*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
    header().abi_major = PACELINE_ABI_MAJOR;
    header().header_bytes = PACELINE_HEADER_BYTES;
    header().record_bytes = PACELINE_RECORD_BYTES;
    header().capacity = capacity;
    header().magic = PACELINE_RING_MAGIC;
    if (seals != 0) ::fcntl(fd_.get(), F_ADD_SEALS, seals);
  }
  ~TestRing() { ::munmap(base_, bytes_); }
  TestRing(const TestRing&) = delete;
  TestRing& operator=(const TestRing&) = delete;

  int fd() const { return fd_.get(); }
  paceline_ring_header& header() { return *reinterpret_cast<paceline_ring_header*>(base_); }
  paceline_step_record& slot(std::uint64_t number) {
    return *reinterpret_cast<paceline_step_record*>(base_ + PACELINE_HEADER_BYTES +
                                                    PACELINE_RECORD_BYTES * (number % capacity_));
  }
  void publish(paceline_step_record record) {
    record.seq = header().write_index + 1;
    slot(header().write_index) = record;
    std::atomic_thread_fence(std::memory_order_release);
    ++header().write_index;
  }

 private:
  std::uint32_t capacity_;
  std::size_t bytes_;
  UniqueFd fd_;
  std::byte* base_ = nullptr;
};

inline paceline_step_record step(std::uint64_t number, std::uint64_t forward_ms = 6,
                                 std::uint64_t comm_ms = 4) {
  paceline_step_record record{};
  record.version = PACELINE_RECORD_VERSION;
  record.bytes = PACELINE_RECORD_BYTES;
  record.kind = PACELINE_KIND_STEP;
  record.step = number;
  record.host_ns[PACELINE_PHASE_FORWARD] = forward_ms * 1'000'000;
  record.host_ns[PACELINE_PHASE_COMM_EXPOSED] = comm_ms * 1'000'000;
  record.wall_ns = (forward_ms + comm_ms) * 1'000'000;
  record.samples = 32;
  record.valid = PACELINE_VALID_HOST_NS | PACELINE_VALID_SAMPLES;
  return record;
}

}  // namespace paceline::telemetry::test
