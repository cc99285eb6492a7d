// SPDX-License-Identifier: Apache-2.0
// NCCL's calls into the plugin, played for each version of the interface, and what the process's
// ring shows of them. Each case has a process to itself.
#include "player.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <thread>
#include <vector>

#include "abi.hpp"
#include "base/clock.hpp"
#include "check.hpp"
#include "profiler.hpp"
#include "runtime.hpp"
#include "trace/ring_reader.hpp"

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version);
extern "C" int ncclGetVersion(int* version) {
  *version = paceline::check::nccl_says;
  return *version == 0 ? 1 : 0;
}

namespace paceline::nccl {
namespace {

using check::has;
using check::kSecond;
using check::Nccl;
using trace::PhaseMachine;
using trace::Runtime;

constexpr int kNewest = 23203;

/// A process whose ring is open, and that has an NCCL of this version.
class Process {
 public:
  explicit Process(int nccl = kNewest) {
    check::nccl_says = nccl;
    if (Runtime::instance().open(nullptr) != PACELINE_OK) std::abort();
    const std::size_t size =
        PACELINE_HEADER_BYTES + std::size_t{PACELINE_RING_CAPACITY} * PACELINE_RECORD_BYTES;
    void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, Runtime::instance().ring_fd(), 0);
    if (memory == MAP_FAILED) std::abort();
    ring_ = static_cast<const std::byte*>(memory);
    // The first step begins.
    Runtime::instance().mark(Runtime::Claim::kTraining,
                             [](PhaseMachine& machine, std::uint64_t now) {
                               machine.step(now, 0);
                               return true;
                             });
  }

  static void end_step() {
    Runtime::instance().mark(Runtime::Claim::kTraining,
                             [](PhaseMachine& machine, std::uint64_t now) {
                               machine.optimizer_enter(now, 0);
                               return machine.optimizer_leave(now, 0);
                             });
  }

  static void report(std::uint64_t later_ns = 0) {
    Profiler::instance().report(base::monotonic_ns() + later_ns);
  }

  paceline_live_state live() {
    report();
    return header()->live;
  }
  const paceline_ring_header* header() const {
    return reinterpret_cast<const paceline_ring_header*>(ring_);
  }

  /// Ends the process's trace. The last amendment of each step.
  std::map<std::uint64_t, paceline_step_record> amendments() {
    report();
    Runtime::instance().close();
    std::map<std::uint64_t, paceline_step_record> found;
    for (std::uint64_t i = 0; i < check::write_index(ring_); ++i) {
      const auto record = check::read_record(ring_, PACELINE_RING_CAPACITY, i);
      if (CHECK(record.has_value()) && record->kind == PACELINE_KIND_AMENDMENT)
        found[record->step] = *record;
    }
    return found;
  }

 private:
  const std::byte* ring_;
};

// Two steps. In the first, a group call and a send that overlap; the last kernel ends after the
// step. The second has an all-gather, whose count is one rank's.
template <int kInterface>
void play_two_steps() {
  Process process;
  Nccl<kInterface> nccl(0xabcdef, 4, 1);
  CHECK_EQ(nccl.mask, kInterface == 7 ? 2 | 4 | 64 | 1 << 15 : 2 | 4 | 64);
  void* const group = nccl.other(abi::kGroup);
  CHECK_EQ(group != nullptr, kInterface <= 4);
  CHECK(nccl.kernel(group, 5) == nullptr);
  nccl.stop(group);
  void* const first = nccl.collective("AllReduce", 1000, "ncclFloat32", 2);
  void* const second = nccl.collective("AllReduce", 500, "ncclBfloat16", 1);
  void* const send = nccl.point_to_point("Send", 300, "ncclFloat8e4m3", 1);
  CHECK(first != nullptr && second != nullptr && send != nullptr);
  for (void* const call : {first, second, send}) nccl.stop(call);
  void* const late = nccl.kernel(first, 1000);
  nccl.end_kernel(nccl.kernel(second, 5000), 6000);
  nccl.end_kernel(nccl.kernel(first, 1100), 2000);
  nccl.end_kernel(nccl.kernel(send, 1500), 2200);
  Process::end_step();
  Process::report();
  nccl.end_kernel(late, 2500);
  void* const gather = nccl.collective("AllGather", 250, "ncclInt64", 1);
  nccl.end_kernel(nccl.kernel(gather, 9000), 9100);
  nccl.stop(gather);  // the kernel may be quicker than the host
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  if (!CHECK(told.contains(1) && told.contains(2))) return;
  CHECK_EQ(told.at(1).comm_ops, 3U);
  CHECK_EQ(told.at(1).comm_payload_bytes, 4000U + 1000U + 300U);
  CHECK_EQ(told.at(1).group_count, 1U);
  CHECK_EQ(told.at(1).collective_seq_last, 2U);
  CHECK_EQ(told.at(2).comm_ops, 1U);
  CHECK_EQ(told.at(2).collective_seq_last, 3U);
  // Version 3 tells neither the size of the communicator nor the channels of a send.
  CHECK_EQ(has(told.at(2), PACELINE_VALID_COMM_PAYLOAD_BYTES), kInterface > 3);
  if (kInterface > 3) CHECK_EQ(told.at(2).comm_payload_bytes, 8000U);
  CHECK_EQ(has(told.at(1), PACELINE_VALID_COMM_TOTAL_NS), kInterface > 3);
  CHECK(has(told.at(2), PACELINE_VALID_COMM_TOTAL_NS));
  if (kInterface > 3) {
    CHECK_EQ(told.at(1).comm_total_ns, 1500U + 1000U);
    CHECK_EQ(told.at(2).comm_total_ns, 100U);
  }
  CHECK(!has(told.at(1), PACELINE_VALID_COMM_PEER_WAIT_NS));
  CHECK((process.header()->capabilities & PACELINE_CAPABILITY_NCCL_PROFILER) != 0);
}

CASE(two_steps_through_interface_3) { play_two_steps<3>(); }
CASE(two_steps_through_interface_4) { play_two_steps<4>(); }
CASE(two_steps_through_interface_5) { play_two_steps<5>(); }
CASE(two_steps_through_interface_6) { play_two_steps<6>(); }
CASE(two_steps_through_interface_7) { play_two_steps<7>(); }

CASE(the_first_phase_of_symmetric_kernels_is_the_wait_for_peers) {
  Process process;
  Nccl<7> nccl(1, 2, 0);
  void* const call = nccl.collective("AllReduce", 10, "ncclFloat16", 2);
  nccl.stop(call);
  for (const std::uint64_t start : {1000U, 1010U}) {
    void* const kernel = nccl.kernel(call, start);
    nccl.phase(kernel, 0, start, 1300);
    nccl.phase(kernel, 1, 1300, 1900);
    nccl.phase(kernel, 2, 1900, 2000);
    nccl.end_kernel(kernel, 2000);
  }
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  if (!CHECK(told.contains(1))) return;
  CHECK_EQ(told.at(1).comm_total_ns, 1000U);
  CHECK(has(told.at(1), PACELINE_VALID_COMM_PEER_WAIT_NS));
  CHECK_EQ(told.at(1).comm_peer_wait_ns, 300U);
}

CASE(a_hang_shows_which_collective_the_rank_waits_in) {
  Process process;
  Nccl<6> nccl(77, 8, 5);
  CHECK_EQ(process.live().group_id, 0U);
  nccl.whole("AllReduce", 1, 10, 20);
  nccl.whole("AllReduce", 1, 30, 40);
  auto live = process.live();
  CHECK_EQ(live.group_id, 77U);
  CHECK_EQ(live.collective_seq, 2U);
  CHECK_EQ(live.collective_done, 2U);
  CHECK_EQ(live.group_size, 8U);
  CHECK_EQ(live.group_rank, 5U);
  void* const third = nccl.collective("AllReduce", 1, "ncclFloat32", 2);
  nccl.stop(third);
  nccl.stop(nccl.collective("Broadcast", 1, "ncclFloat32", 1));
  void* const kernel = nccl.kernel(third, 50);  // it has begun, and waits for the others
  // Another communicator is used meanwhile.
  Nccl<6> other(88, 2, 0);
  other.whole("AllReduce", 1, 60, 70);
  live = process.live();
  CHECK_EQ(live.group_id, 77U);
  CHECK_EQ(live.collective_seq, 4U);
  CHECK_EQ(live.collective_done, 2U);
  CHECK_EQ(live.version % 2, 0U);
  nccl.end_kernel(kernel, 80);
  CHECK_EQ(process.live().collective_done, 2U);  // its second channel has not begun
  nccl.end_kernel(nccl.kernel(third, 50), 80);
  CHECK_EQ(process.live().collective_done, 3U);
}

CASE(without_kernel_events_only_what_is_enqueued_is_known) {
  Process process(22705);
  Nccl<4> nccl(5, 2, 0);
  CHECK_EQ(nccl.mask, 2 | 4);
  for (std::uint64_t i = 0; i < 3; ++i)
    nccl.stop(nccl.collective("AllReduce", 10, "ncclFloat32", 4, i));
  const auto live = process.live();
  CHECK_EQ(live.collective_seq, 3U);
  CHECK_EQ(live.collective_done, PACELINE_COLLECTIVE_UNKNOWN);
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  if (!CHECK(told.contains(1))) return;
  CHECK_EQ(told.at(1).comm_ops, 3U);
  CHECK_EQ(told.at(1).comm_payload_bytes, 120U);
  CHECK(!has(told.at(1), PACELINE_VALID_COMM_TOTAL_NS));
}

CASE(numbers_are_not_compared_once_graphs_replay_collectives_unseen_by_some_ranks) {
  Process process(22705);
  Nccl<4> nccl(5, 2, 0);
  nccl.stop(nccl.collective("AllReduce", 10, "ncclFloat32", 4, 0));
  nccl.stop(nccl.collective("AllGather", 10, "ncclFloat32", 4, 0));
  CHECK_EQ(process.live().collective_seq, 2U);
  nccl.stop(nccl.collective("AllReduce", 10, "ncclFloat32", 4, 1));
  nccl.stop(nccl.collective("AllReduce", 10, "ncclFloat32", 4, 1));  // NCCL does not count a replay
  CHECK_EQ(process.live().collective_seq, 0U);
  CHECK_EQ(process.live().group_id, 5U);
}

CASE(an_operation_that_announced_too_many_channels_ends_after_those_behind_it) {
  Process process;
  Nccl<5> nccl(5, 2, 0);
  void* const call = nccl.collective("AllReduce", 10, "ncclFloat32", 3);
  nccl.stop(call);
  nccl.end_kernel(nccl.kernel(call, 10), 20);
  Process::report(5 * kSecond);
  CHECK_EQ(process.live().collective_done, 0U);
  nccl.whole("AllReduce", 1, 30, 40);
  Process::report();
  CHECK_EQ(process.live().collective_done, 0U);
  for (const std::uint64_t later : {2 * kSecond, 4 * kSecond}) Process::report(later);
  CHECK_EQ(process.live().collective_done, 2U);
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  CHECK(told.contains(1) && told.at(1).comm_total_ns == 20U);
}

CASE(times_of_another_operation_are_not_used) {
  Process process;
  Nccl<7> nccl(5, 2, 0);
  nccl.whole("Broadcast", 10, 100, 100 + 600 * kSecond);  // it was enqueued a moment ago
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  CHECK(told.contains(1) && told.at(1).comm_ops == 1U);
  CHECK(told.contains(1) && !has(told.at(1), PACELINE_VALID_COMM_TOTAL_NS));
}

CASE(times_from_before_the_call_are_not_used_and_ends_are_unknown_from_then_on) {
  Process process;
  Nccl<6> nccl(5, 2, 0);
  nccl.whole("AllReduce", 10, 100 * kSecond, 100 * kSecond + 10);
  CHECK_EQ(process.live().collective_done, 1U);
  // A broadcast that NCCL does not tell of: its kernel's times reach the next operation.
  nccl.whole("AllReduce", 10, 97 * kSecond, 97 * kSecond + 10);
  CHECK_EQ(process.live().collective_done, PACELINE_COLLECTIVE_UNKNOWN);
  CHECK_EQ(process.live().collective_seq, 2U);
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  CHECK(told.contains(1) && told.at(1).comm_ops == 2U);
  CHECK(told.contains(1) && !has(told.at(1), PACELINE_VALID_COMM_TOTAL_NS));
}

CASE(more_channels_than_announced_give_no_times) {
  Process process;
  Nccl<6> nccl(5, 2, 0);
  void* const call = nccl.collective("AllReduce", 10, "ncclFloat32", 1);
  nccl.stop(call);
  for (const std::uint64_t start : {10U, 30U}) nccl.end_kernel(nccl.kernel(call, start), start + 5);
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  CHECK(told.contains(1) && told.at(1).comm_ops == 1U);
  CHECK(told.contains(1) && !has(told.at(1), PACELINE_VALID_COMM_TOTAL_NS));
}

// Symmetric collectives of a CUDA graph with NCCL 2.32: no channel ever reports.
CASE(operations_that_never_report_give_their_places_back) {
  Process process;
  constexpr int kEach = 100;
  constexpr int kSteps = 100;
  Nccl<7> nccl(1, 2, 0);
  Nccl<7> other(2, 2, 0);
  other.whole("AllReduce", 1, 10, 20);
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kEach; ++i) {
      void* const call = nccl.collective("AllReduce", 1, "ncclFloat32", 1);
      if (!CHECK(call != nullptr)) return;
      nccl.stop(call);
    }
    Process::report();
    Process::end_step();
  }
  CHECK_EQ(process.live().group_id, 1U);
  CHECK_EQ(process.live().collective_seq, std::uint64_t{kSteps * kEach});
  CHECK_EQ(process.live().collective_done, PACELINE_COLLECTIVE_UNKNOWN);
  // A hang of another communicator is still told.
  other.stop(other.collective("AllReduce", 1, "ncclFloat32", 1));
  CHECK_EQ(process.live().group_id, 2U);
  CHECK_EQ(process.live().collective_done, 1U);
  const auto told = process.amendments();
  if (!CHECK(told.contains(kSteps))) return;
  CHECK_EQ(told.at(kSteps).comm_ops, std::uint32_t{kEach});
  CHECK_EQ(told.at(kSteps).flags, 0U);
  CHECK(!has(told.at(kSteps), PACELINE_VALID_COMM_TOTAL_NS));
}

CASE(ends_are_unknown_as_soon_as_they_are_given_up) {
  Process process;
  Nccl<7> nccl(1, 2, 0);
  const auto enqueue = [&](int count) {
    for (int i = 0; i < count; ++i) nccl.stop(nccl.collective("AllReduce", 1, "ncclFloat32", 1));
  };
  enqueue(1024);
  CHECK_EQ(process.live().collective_done, 0U);
  enqueue(1);
  CHECK_EQ(process.live().collective_done, PACELINE_COLLECTIVE_UNKNOWN);
}

CASE(silent_operations_of_several_communicators_leave_room_for_all) {
  Process process;
  constexpr int kComms = 6;
  std::vector<Nccl<7>> all;
  for (int i = 0; i < kComms; ++i) all.emplace_back(1 + static_cast<std::uint64_t>(i), 2, 0);
  for (int round = 0; round < 3000; ++round) {
    for (Nccl<7>& nccl : all) {
      void* const call = nccl.collective("AllReduce", 1, "ncclFloat32", 1);
      if (!CHECK(call != nullptr)) return;
      nccl.stop(call);
    }
    if (round % 50 == 0) Process::report();
  }
  CHECK_EQ(process.live().collective_done, PACELINE_COLLECTIVE_UNKNOWN);
}

CASE(many_communicators_and_more_than_there_is_room_for) {
  Process process;
  std::vector<Nccl<7>> all;
  for (int i = 0; i < 300; ++i) all.emplace_back(1000 + static_cast<std::uint64_t>(i), 2, 0);
  int counted = 0;
  for (Nccl<7>& nccl : all) {
    CHECK(nccl.mask != 0);
    counted += nccl.context != nullptr ? 1 : 0;
    nccl.whole("AllReduce", 1, 10, 20);
  }
  CHECK_EQ(counted, 256);
  for (Nccl<7>& nccl : all) nccl.finalize();
  CHECK_EQ(process.live().group_id, 0U);
  Nccl<7> fresh(9, 2, 0);
  CHECK(fresh.context != nullptr);
  fresh.whole("AllReduce", 1, 30, 40);
  CHECK_EQ(process.live().group_id, 9U);
  all[0].whole("AllReduce", 1, 50, 60);  // a context of a communicator that is gone
  CHECK_EQ(process.live().collective_seq, 1U);
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  if (!CHECK(told.contains(1))) return;
  CHECK_EQ(told.at(1).comm_ops, 257U);
  CHECK_EQ(told.at(1).group_count, 257U);
}

CASE(split_shrunk_and_aborted_communicators_count_apart) {
  Process process;
  Nccl<6> world(1, 8, 3);
  world.whole("AllReduce", 1, 10, 20);
  Nccl<6> half(2, 4, 1);  // ncclCommSplit
  half.whole("AllReduce", 1, 30, 40);
  half.whole("AllReduce", 1, 50, 60);
  CHECK_EQ(process.live().group_id, 2U);
  CHECK_EQ(process.live().collective_seq, 2U);
  void* const stuck = half.collective("AllReduce", 1, "ncclFloat32", 1);
  half.stop(stuck);
  void* const kernel = half.kernel(stuck, 70);
  CHECK_EQ(process.live().collective_done, 2U);
  half.finalize();        // ncclCommAbort: its kernel never ends
  Nccl<6> less(3, 3, 1);  // ncclCommShrink
  less.whole("AllReduce", 1, 80, 90);
  half.end_kernel(kernel, 100);  // too late
  const auto live = process.live();
  CHECK_EQ(live.group_id, 3U);
  CHECK_EQ(live.group_size, 3U);
  CHECK_EQ(live.collective_done, 1U);
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  if (!CHECK(told.contains(1))) return;
  CHECK_EQ(told.at(1).comm_ops, 5U);
  CHECK_EQ(told.at(1).group_count, 3U);
  CHECK(!has(told.at(1), PACELINE_VALID_COMM_TOTAL_NS));  // one never ended
}

CASE(a_full_pool_marks_its_step_and_the_next_one_is_whole) {
  Process process;
  Nccl<7> nccl(1, 2, 0);
  std::vector<void*> calls;
  for (std::size_t i = 0; i < Pool::kPlaces + 10; ++i) {
    void* const call = nccl.collective("AllReduce", 1, "ncclFloat32", 1);
    if (call != nullptr) calls.push_back(call);
  }
  CHECK_EQ(calls.size(), Pool::kPlaces);
  for (void* const call : calls) {
    nccl.end_kernel(nccl.kernel(call, 10), 20);
    nccl.stop(call);
  }
  CHECK_EQ(process.live().collective_seq, Pool::kPlaces + 10);
  Process::end_step();
  Process::report();
  nccl.whole("AllReduce", 1, 30, 40);
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  if (!CHECK(told.contains(1) && told.contains(2))) return;
  CHECK_EQ(told.at(1).flags, PACELINE_FLAG_TRUNCATED_POOL);
  CHECK(!has(told.at(1), PACELINE_VALID_COMM_TOTAL_NS));
  CHECK_EQ(told.at(2).flags, 0U);
  CHECK_EQ(told.at(2).comm_total_ns, 10U);
}

CASE(two_threads_use_two_communicators) {
  Process process;
  constexpr int kEach = 3000;
  Nccl<7> first(1, 2, 0);
  Nccl<7> second(2, 2, 1);
  const auto work = [](Nccl<7>& nccl) {
    for (int i = 0; i < kEach; ++i) nccl.whole("AllReduce", 1, 10, 20);
  };
  std::thread other([&] { work(second); });
  for (int i = 0; i < 20; ++i) Process::report();
  work(first);
  other.join();
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  if (!CHECK(told.contains(1))) return;
  // The pool may be full for a moment where the machine is slow; that is said.
  if ((told.at(1).flags & PACELINE_FLAG_TRUNCATED_POOL) != 0) return;
  CHECK_EQ(told.at(1).comm_ops, 2U * kEach);
  CHECK_EQ(told.at(1).group_count, 2U);
  CHECK_EQ(told.at(1).comm_total_ns, 10U);
}

CASE(events_that_were_not_asked_for_get_no_handle) {
  Process process;
  Nccl<7> nccl(1, 2, 0);
  void* const call = nccl.collective("AllReduce", 1, "ncclFloat32", 1);
  for (unsigned bit = 0; bit < 40; ++bit) {
    const std::uint64_t type = std::uint64_t{1} << bit;
    if ((static_cast<std::uint64_t>(nccl.mask) & type) == 0)
      CHECK(nccl.other(type, call) == nullptr);
  }
  nccl.stop(nullptr);
  nccl.table().record_event_state(call, 19, nullptr);
  nccl.table().record_event_state(nullptr, abi::kKernelChannelStop, nullptr);
}

CASE(a_forked_child_gets_nothing) {
  Process process;
  Nccl<7> nccl(1, 2, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Nccl<7> own(2, 2, 0);
    const bool quiet = own.context == nullptr && own.mask == 0 &&
                       nccl.collective("AllReduce", 1, "ncclFloat32", 1) == nullptr;
    nccl.finalize();
    ::_exit(quiet ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
  CHECK(nccl.collective("AllReduce", 1, "ncclFloat32", 1) != nullptr);
}

CASE(the_user_can_turn_the_plugin_off) {
  ::setenv("PACELINE_NCCL_PROFILER", "Disabled", 1);
  Process process;
  Nccl<7> nccl(1, 2, 0);
  CHECK_EQ(nccl.mask, 0);
  CHECK(nccl.context == nullptr);
  CHECK(nccl.collective("AllReduce", 1, "ncclFloat32", 1) == nullptr);
  nccl.finalize();
  CHECK_EQ(process.header()->capabilities & PACELINE_CAPABILITY_NCCL_PROFILER, 0U);
}

CASE(a_program_without_a_ring_is_left_alone) {
  check::nccl_says = kNewest;
  Nccl<7> nccl(1, 2, 0);
  for (int i = 0; i < 10'000; ++i) {
    nccl.whole("AllReduce", 1, 10, 20);
    if (i % 1000 == 0) Process::report();
  }
  Process::report();
  // A ring that opens later begins with what comes then.
  Process process;
  nccl.whole("AllReduce", 1, 30, 40);
  CHECK_EQ(process.live().collective_seq, 10'001U);
  Process::end_step();
  Process::end_step();
  const auto told = process.amendments();
  CHECK(told.contains(1) && told.at(1).comm_ops == 1U);
}

}  // namespace
}  // namespace paceline::nccl
