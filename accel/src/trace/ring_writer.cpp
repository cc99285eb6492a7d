// SPDX-License-Identifier: Apache-2.0
#include "ring_writer.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace paceline::trace {
namespace {

constexpr std::size_t kRingBytes =
    PACELINE_HEADER_BYTES + std::size_t{PACELINE_RING_CAPACITY} * PACELINE_RECORD_BYTES;

std::uint64_t* words(std::byte* at) { return reinterpret_cast<std::uint64_t*>(at); }

void store(std::uint64_t* word, std::uint64_t value, int order) {
  __atomic_store_n(word, value, order);
}

// Writes a part of the live state. Two writers at once would break the seqlock.
template <typename Write>
void write_live(paceline_live_state& live, Write&& write) {
  const std::uint32_t version = __atomic_load_n(&live.version, __ATOMIC_RELAXED);
  __atomic_store_n(&live.version, version + 1, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_release);
  write();
  __atomic_store_n(&live.version, version + 2, __ATOMIC_RELEASE);
}

}  // namespace

void write_record(std::byte* ring, std::uint32_t capacity, std::uint64_t number,
                  const paceline_step_record& record) {
  constexpr std::size_t kWords = sizeof(paceline_step_record) / sizeof(std::uint64_t);
  std::uint64_t source[kWords];
  std::memcpy(source, &record, sizeof(record));
  std::uint64_t* slot =
      words(ring + PACELINE_HEADER_BYTES + (number % capacity) * PACELINE_RECORD_BYTES);
  store(&slot[0], 0, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 1; i < kWords; ++i) store(&slot[i], source[i], __ATOMIC_RELAXED);
  store(&slot[0], number + 1, __ATOMIC_RELEASE);
  store(words(ring + offsetof(paceline_ring_header, write_index)), number + 1, __ATOMIC_RELEASE);
}

RingWriter::RingWriter(base::Fd fd, std::byte* base) : fd_(std::move(fd)), base_(base) {}

RingWriter::~RingWriter() {
  if (base_ != nullptr) ::munmap(base_, kRingBytes);
}

std::unique_ptr<RingWriter> RingWriter::open(const paceline_ring_header& header, int& error) {
  base::Fd fd(
      // MFD_CLOEXEC | MFD_ALLOW_SEALING
      static_cast<int>(::syscall(SYS_memfd_create, "paceline-ring", 0x1U | 0x2U)));
  if (!fd) {
    error = errno;
    return nullptr;
  }
  void* base = MAP_FAILED;
  // Allocates the pages now. If the system could not back a page later, a store would end the
  // training process with SIGBUS.
  if (::ftruncate(fd.get(), kRingBytes) == 0 && ::fallocate(fd.get(), 0, 0, kRingBytes) == 0 &&
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    base = ::mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  }
  if (base == MAP_FAILED || ::madvise(base, kRingBytes, MADV_DONTFORK) != 0) {
    error = errno;
    if (base != MAP_FAILED) ::munmap(base, kRingBytes);
    return nullptr;
  }
  auto* memory = static_cast<std::byte*>(base);
  paceline_ring_header filled = header;
  filled.magic = 0;
  filled.abi_major = PACELINE_ABI_MAJOR;
  filled.abi_minor = PACELINE_ABI_MINOR;
  filled.header_bytes = PACELINE_HEADER_BYTES;
  filled.record_bytes = PACELINE_RECORD_BYTES;
  filled.capacity = PACELINE_RING_CAPACITY;
  filled.write_index = 0;
  filled.live = {};
  filled.live.phase = PACELINE_PHASE_UNATTRIBUTED;
  std::memcpy(memory, &filled, sizeof(filled));
  __atomic_store_n(&reinterpret_cast<paceline_ring_header*>(memory)->magic, PACELINE_RING_MAGIC,
                   __ATOMIC_RELEASE);
  return std::unique_ptr<RingWriter>(new RingWriter(std::move(fd), memory));
}

void RingWriter::publish(const paceline_step_record& record) {
  write_record(base_, PACELINE_RING_CAPACITY, next_++, record);
}

void RingWriter::beat(std::uint64_t now_ns) {
  store(&header()->heartbeat_ns, now_ns, __ATOMIC_RELEASE);
}

void RingWriter::set_live(std::uint32_t phase, std::uint64_t since_ns, std::uint64_t step) {
  paceline_live_state& live = header()->live;
  write_live(live, [&] {
    __atomic_store_n(&live.phase, phase, __ATOMIC_RELAXED);
    store(&live.since_ns, since_ns, __ATOMIC_RELAXED);
    store(&live.step, step, __ATOMIC_RELAXED);
  });
}

void RingWriter::set_collective(const paceline_collective& collective) {
  paceline_live_state& live = header()->live;
  write_live(live, [&] {
    store(&live.collective_seq, collective.enqueued, __ATOMIC_RELAXED);
    store(&live.group_id, collective.group_id, __ATOMIC_RELAXED);
    store(&live.collective_done, collective.done, __ATOMIC_RELAXED);
    __atomic_store_n(&live.group_size, collective.group_size, __ATOMIC_RELAXED);
    __atomic_store_n(&live.group_rank, collective.group_rank, __ATOMIC_RELAXED);
  });
}

void RingWriter::set_device(std::uint32_t kind, std::uint32_t number, const char* pci_address) {
  constexpr std::size_t kWords = sizeof(paceline_ring_header::pci_address) / sizeof(std::uint64_t);
  std::uint64_t address[kWords] = {};
  std::strncpy(reinterpret_cast<char*>(address), pci_address, sizeof(address) - 1);
  std::uint64_t* to = words(base_ + offsetof(paceline_ring_header, pci_address));
  for (std::size_t i = 0; i < kWords; ++i) store(&to[i], address[i], __ATOMIC_RELAXED);
  __atomic_store_n(&header()->device_number, number, __ATOMIC_RELAXED);
  __atomic_store_n(&header()->device_kind, kind, __ATOMIC_RELEASE);
}

void RingWriter::announce(std::uint64_t capabilities) {
  __atomic_fetch_or(&header()->capabilities, capabilities, __ATOMIC_RELEASE);
}

void RingWriter::withdraw(std::uint64_t capabilities) {
  __atomic_fetch_and(&header()->capabilities, ~capabilities, __ATOMIC_RELEASE);
}

void RingWriter::abandon() {
  base_ = nullptr;
  fd_ = {};
}

}  // namespace paceline::trace
