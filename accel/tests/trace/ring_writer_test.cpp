// SPDX-License-Identifier: Apache-2.0
#include "ring_writer.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "check.hpp"
#include "ring_reader.hpp"

namespace {

using paceline::check::read_record;
using paceline::check::write_index;
using paceline::trace::RingWriter;
using paceline::trace::write_record;

constexpr std::uint32_t kSmall = 4;

// A record whose every field but seq follows from its number, so that a mixture of two is
// recognised.
paceline_step_record record_of(std::uint64_t number) {
  paceline_step_record record;
  auto* words = reinterpret_cast<std::uint64_t*>(&record);
  for (std::uint64_t i = 0; i < sizeof(record) / 8; ++i)
    words[i] = number * 0x9E3779B97F4A7C15U + i;
  record.seq = number + 1;
  return record;
}

bool whole(const paceline_step_record& record, std::uint64_t number) {
  const paceline_step_record expected = record_of(number);
  return std::memcmp(&record, &expected, sizeof(record)) == 0;
}

std::byte* shared_ring(std::uint32_t capacity) {
  void* memory =
      ::mmap(nullptr, PACELINE_HEADER_BYTES + std::size_t{capacity} * PACELINE_RECORD_BYTES,
             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(memory);
}

const std::byte* map_read_only(int fd) {
  const std::size_t size =
      PACELINE_HEADER_BYTES + std::size_t{PACELINE_RING_CAPACITY} * PACELINE_RECORD_BYTES;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<const std::byte*>(memory);
}

CASE(a_ring_is_sealed_and_described) {
  int error = 0;
  paceline_ring_header header{};
  header.world_rank = 3;
  const auto ring = RingWriter::open(header, error);
  if (!CHECK(ring != nullptr)) return;
  CHECK_EQ(::fcntl(ring->fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  CHECK(::ftruncate(ring->fd(), 4096) == -1 && errno == EPERM);
  CHECK(::ftruncate(ring->fd(), 1 << 24) == -1 && errno == EPERM);
  CHECK((::fcntl(ring->fd(), F_GETFD) & FD_CLOEXEC) != 0);
  const auto* seen = reinterpret_cast<const paceline_ring_header*>(map_read_only(ring->fd()));
  CHECK_EQ(seen->magic, PACELINE_RING_MAGIC);
  CHECK_EQ(seen->capacity, PACELINE_RING_CAPACITY);
  CHECK_EQ(seen->record_bytes, 512U);
  CHECK_EQ(seen->world_rank, 3);
  ring->set_live(PACELINE_PHASE_BACKWARD, 77, 5);
  ring->beat(99);
  CHECK_EQ(seen->live.phase, static_cast<std::uint32_t>(PACELINE_PHASE_BACKWARD));
  CHECK_EQ(seen->live.since_ns, 77U);
  CHECK_EQ(seen->live.version, 2U);
  CHECK_EQ(seen->heartbeat_ns, 99U);
}

// The writer is stopped after every machine instruction of a write, which includes every store.
// What the memory holds then is what a reader would find if it had been killed there.
CASE(a_writer_killed_at_every_store_leaves_no_wrong_record) {
  std::byte* ring = shared_ring(kSmall);
  const std::uint64_t last = kSmall + 2;  // overwrites a record that readers may still want
  for (std::uint64_t i = 0; i < last; ++i) write_record(ring, kSmall, i, record_of(i));
  const paceline_step_record record = record_of(last);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(2);
    ::raise(SIGSTOP);
    write_record(ring, kSmall, last, record);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!CHECK(WIFSTOPPED(status))) return;  // no ptrace: the test cannot judge, so it fails
  int instructions = 0;
  int stores = 0;
  std::byte before[PACELINE_RECORD_BYTES];
  const std::byte* slot = ring + PACELINE_HEADER_BYTES + (last % kSmall) * PACELINE_RECORD_BYTES;
  std::memcpy(before, slot, sizeof(before));
  bool finished = false;
  while (!finished && instructions < 100'000) {
    if (::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) break;
    ::waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) break;
    finished = WSTOPSIG(status) == SIGSTOP;
    ++instructions;
    if (std::memcmp(before, slot, sizeof(before)) != 0) {
      std::memcpy(before, slot, sizeof(before));
      ++stores;
    }
    const std::uint64_t end = write_index(ring);
    if (!CHECK(end == last || end == last + 1)) break;
    int unreadable = 0;
    for (std::uint64_t number = last - kSmall; number < last + 1; ++number) {
      const auto seen = read_record(ring, kSmall, number);
      if (!seen) ++unreadable;
      if (seen && !CHECK(whole(*seen, number))) finished = true;
    }
    // Of kSmall + 1 numbers in kSmall slots one is always gone; a killed writer costs one more,
    // never another.
    if (!CHECK(unreadable <= 2)) break;
    if (end == last + 1 && !CHECK(read_record(ring, kSmall, last).has_value())) break;
  }
  CHECK(finished);
  CHECK(stores >= 64);  // seq, the 63 other words, seq again; each seen on its own
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
}

CASE(readers_at_different_speeds_see_whole_records_and_count_gaps) {
  constexpr std::uint64_t kRecords = 60'000;
  constexpr std::uint32_t kCapacity = 64;
  std::byte* ring = shared_ring(kCapacity);
  struct Outcome {
    std::uint64_t read = 0, gaps = 0, wrong = 0;
  } outcomes[2];
  const auto follow = [&](Outcome& outcome, bool slow) {
    std::uint64_t cursor = 0;
    while (cursor < kRecords) {
      const std::uint64_t end = write_index(ring);
      if (end - cursor > kCapacity) {
        outcome.gaps += end - kCapacity - cursor;
        cursor = end - kCapacity;
      }
      for (; cursor < end; ++cursor) {
        const auto seen = read_record(ring, kCapacity, cursor);
        if (!seen)
          ++outcome.gaps;
        else if (whole(*seen, cursor))
          ++outcome.read;
        else
          ++outcome.wrong;
      }
      if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  };
  std::thread fast([&] { follow(outcomes[0], false); });
  std::thread slow([&] { follow(outcomes[1], true); });
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    write_record(ring, kCapacity, i, record_of(i));
    if (i % 16 == 0) std::this_thread::yield();
  }
  fast.join();
  slow.join();
  for (const Outcome& outcome : outcomes) {
    CHECK_EQ(outcome.wrong, 0U);
    CHECK_EQ(outcome.read + outcome.gaps, kRecords);
    CHECK(outcome.read > 0);
  }
}

}  // namespace
