// SPDX-License-Identifier: Apache-2.0
// The process's trace: opened, closed, forked, switched off. Each case has a process to itself.
#include "runtime.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "fake_cuda/fake.hpp"
#include "ring_reader.hpp"

namespace {

using paceline::trace::PhaseMachine;
using paceline::trace::Runtime;
using Claim = Runtime::Claim;

int enter(Claim claim = Claim::kTraining) {
  return Runtime::instance().mark(
      claim, [](PhaseMachine& machine, std::uint64_t now) { return machine.backward_enter(now); });
}

int leave(Claim claim = Claim::kTraining) {
  return Runtime::instance().mark(
      claim, [](PhaseMachine& machine, std::uint64_t now) { return machine.backward_leave(now); });
}

void train(int steps) {
  for (int i = 0; i < steps; ++i) {
    Runtime::instance().mark(Claim::kTraining, [](PhaseMachine& machine, std::uint64_t now) {
      machine.optimizer_enter(now, 0);
      return machine.optimizer_leave(now, 0);
    });
  }
}

const paceline_ring_header* header() {
  const std::size_t size =
      PACELINE_HEADER_BYTES + std::size_t{PACELINE_RING_CAPACITY} * PACELINE_RECORD_BYTES;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, Runtime::instance().ring_fd(), 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<const paceline_ring_header*>(memory);
}

CASE(nothing_is_open_before_open) {
  CHECK_EQ(enter(), PACELINE_ECLOSED);
  CHECK_EQ(Runtime::instance().ring_fd(), PACELINE_ECLOSED);
  CHECK_EQ(Runtime::instance().close(), PACELINE_ECLOSED);
}

CASE(open_reads_the_identity_and_counts_epochs) {
  ::setenv("RANK", "7", 1);
  ::setenv("WORLD_SIZE", "8", 1);
  ::setenv("LOCAL_RANK", "x3", 1);
  ::setenv("PACELINE_ATTEMPT", "2", 1);
  ::setenv("PACELINE_NODE_RANK", "1", 1);
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  const paceline_ring_header* seen = header();
  CHECK_EQ(seen->world_rank, 7);
  CHECK_EQ(seen->world_size, 8);
  CHECK_EQ(seen->local_rank, -1);
  CHECK_EQ(seen->node_rank, 1);
  CHECK_EQ(seen->attempt, 2U);
  CHECK_EQ(seen->ring_epoch, 1U);
  CHECK_EQ(seen->pid, static_cast<std::uint32_t>(::getpid()));
  CHECK(seen->process_start_ticks > 0);
  CHECK_EQ(std::strlen(seen->boot_id), 36U);
  CHECK_EQ(Runtime::instance().close(), PACELINE_OK);
  CHECK_EQ(seen->heartbeat_ns, 0U);
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  CHECK_EQ(header()->ring_epoch, 2U);
}

CASE(close_publishes_the_last_step_and_a_final_record) {
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  const paceline_ring_header* seen = header();
  train(3);
  Runtime::instance().close();
  const auto* ring = reinterpret_cast<const std::byte*>(seen);
  CHECK_EQ(paceline::check::write_index(ring), 4U);
  const auto third = paceline::check::read_record(ring, PACELINE_RING_CAPACITY, 2);
  const auto final = paceline::check::read_record(ring, PACELINE_RING_CAPACITY, 3);
  CHECK(third.has_value() && third->step == 3 && (third->flags & PACELINE_FLAG_FINAL) == 0);
  CHECK(final.has_value() && (final->flags & PACELINE_FLAG_FINAL) != 0);
}

CASE(the_kill_switch_refuses) {
  ::setenv("PACELINE_DISABLE", "1", 1);
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_EDISABLED);
  CHECK_EQ(enter(), PACELINE_EDISABLED);
}

CASE(a_forked_child_drops_the_ring_and_the_parent_goes_on) {
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  const paceline_ring_header* seen = header();
  const int fd = Runtime::instance().ring_fd();
  enter();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool dropped = leave() == PACELINE_EFORKED &&
                         Runtime::instance().open(nullptr) == PACELINE_EFORKED &&
                         Runtime::instance().close() == PACELINE_EFORKED &&
                         ::fcntl(fd, F_GETFD) == -1 && errno == EBADF;
    ::_exit(dropped ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_EQ(leave(), PACELINE_OK);
  train(1);
  Runtime::instance().close();
  CHECK(paceline::check::write_index(reinterpret_cast<const std::byte*>(seen)) >= 1);
}

CASE(a_child_forked_before_opening_starts_afresh) {
  const pid_t child = ::fork();
  if (child == 0)
    ::_exit(Runtime::instance().open(nullptr) == PACELINE_OK &&
                    Runtime::instance().close() == PACELINE_OK
                ? 0
                : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

CASE(forking_while_marks_run_never_deadlocks) {
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  std::atomic<bool> stop{false};
  std::thread marks([&] {
    while (!stop) train(1);
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(enter() == PACELINE_EFORKED ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  stop = true;
  marks.join();
  Runtime::instance().close();
}

CASE(only_the_training_thread_counts) {
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  int prefetch = 0;
  // before training began: it may be the training thread
  std::thread([&] { prefetch = enter(Claim::kData); }).join();
  CHECK_EQ(prefetch, PACELINE_OK);
  leave(Claim::kAny);
  CHECK_EQ(enter(), PACELINE_OK);  // backward decides
  int nested = 0;
  std::thread([&] {
    nested = enter();
    prefetch = enter(Claim::kData);
  }).join();
  CHECK_EQ(nested, PACELINE_ETHREAD);
  CHECK_EQ(prefetch, PACELINE_ETHREAD);
  CHECK_EQ(leave(), PACELINE_OK);
  // the program trains on another thread from now on
  std::thread([&] { nested = enter(); }).join();
  CHECK_EQ(nested, PACELINE_OK);
}

CASE(a_thread_that_takes_over_finds_nothing_open) {
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  const auto* ring = reinterpret_cast<const std::byte*>(header());
  std::thread([] {
    Runtime::instance().mark(Claim::kData, [](PhaseMachine& machine, std::uint64_t now) {
      return machine.loader_enter(now, 1, true);
    });
  }).join();
  train(2);
  Runtime::instance().close();
  CHECK_EQ(paceline::check::write_index(ring), 3U);  // two steps and what came after them
}

CASE(a_leave_without_its_enter_is_told) {
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  CHECK_EQ(leave(), PACELINE_EORDER);
}

CASE(no_descriptors_left_means_no_tracing) {
  const rlimit few{64, 64};
  ::setrlimit(RLIMIT_NOFILE, &few);
  std::vector<int> taken;
  for (int fd = ::dup(2); fd >= 0; fd = ::dup(2)) taken.push_back(fd);
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_ESYSTEM);
  CHECK_EQ(Runtime::instance().system_error(), EMFILE);
  for (const int fd : taken) ::close(fd);
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
}

CASE(the_current_step_is_known_and_can_be_amended) {
  Runtime& runtime = Runtime::instance();
  paceline_step_record facts{};
  CHECK_EQ(runtime.current_step().number, 0U);
  CHECK_EQ(runtime.amend(facts), PACELINE_ECLOSED);
  CHECK_EQ(runtime.open(nullptr), PACELINE_OK);
  // What a program does before its first mark belongs to no step.
  CHECK_EQ(runtime.current_step().number, 0U);
  CHECK_EQ(runtime.current_step().ring_epoch, 1U);
  train(2);
  // The second step is not over until the next batch; marks after it belong to the third.
  CHECK_EQ(runtime.current_step().number, 3U);
  const auto* ring = reinterpret_cast<const std::byte*>(header());
  facts.step = 1;
  facts.ring_epoch = 1;
  facts.valid = PACELINE_VALID_KERNELS;
  facts.kernels = 5;
  CHECK_EQ(runtime.amend(facts), PACELINE_OK);
  facts.ring_epoch = 2;
  CHECK_EQ(runtime.amend(facts), PACELINE_ECLOSED);
  CHECK_EQ(runtime.close(), PACELINE_OK);
  int amendments = 0;
  for (std::uint64_t i = 0; i < paceline::check::write_index(ring); ++i) {
    const auto record = paceline::check::read_record(ring, PACELINE_RING_CAPACITY, i);
    if (!CHECK(record.has_value())) return;
    if (record->kind != PACELINE_KIND_AMENDMENT) continue;
    ++amendments;
    CHECK_EQ(record->step, 1U);
    CHECK_EQ(record->kernels, 5U);
  }
  CHECK_EQ(amendments, 1);
  CHECK_EQ(runtime.current_step().number, 0U);
  CHECK_EQ(runtime.open(nullptr), PACELINE_OK);
  CHECK_EQ(runtime.current_step().ring_epoch, 2U);
}

void train_on(std::uint64_t stream, int steps) {
  for (int i = 0; i < steps; ++i) {
    for (const bool entering : {true, false}) {
      Runtime::set_stream(stream);
      Runtime::instance().mark(Claim::kTraining, [&](PhaseMachine& machine, std::uint64_t now) {
        return entering ? machine.optimizer_enter(now, 0) : machine.optimizer_leave(now, 0);
      });
    }
  }
}

CASE(a_device_that_starts_late_is_told_in_the_header) {
  paceline::device_test::FakeCuda cuda;
  Runtime& runtime = Runtime::instance();
  std::string why;
  CHECK_EQ(runtime.start_device(100, why), PACELINE_ECLOSED);
  paceline_options options{};
  options.size = sizeof(options);
  options.device_kind = PACELINE_DEVICE_CPU;
  options.capabilities = PACELINE_CAPABILITY_HOST_MARKS;
  CHECK_EQ(runtime.open(&options), PACELINE_OK);
  const paceline_ring_header* seen = header();
  train_on(7, 2);
  CHECK(cuda.log().empty());
  CHECK_EQ(runtime.start_device(100, why), PACELINE_EORDER);  // no context is current
  CHECK_EQ(seen->device_kind, PACELINE_DEVICE_CUDA);
  CHECK_EQ(seen->capabilities, PACELINE_CAPABILITY_HOST_MARKS);
  cuda.push_context(1);
  CHECK_EQ(runtime.start_device(100, why), PACELINE_OK);
  CHECK_EQ(seen->device_number, 2U);
  CHECK(std::string(seen->pci_address) == "0000:a1:00.0");
  CHECK_EQ(seen->capabilities, PACELINE_CAPABILITY_HOST_MARKS | PACELINE_CAPABILITY_DEVICE_EVENTS);
  train_on(7, 4);
  cuda.advance(1'000'000'000);
  CHECK_EQ(runtime.close(), PACELINE_OK);
  const auto* ring = reinterpret_cast<const std::byte*>(seen);
  std::vector<std::uint64_t> amended;
  std::uint64_t last_step = 0;
  for (std::uint64_t i = 0; i < paceline::check::write_index(ring); ++i) {
    const auto record = paceline::check::read_record(ring, PACELINE_RING_CAPACITY, i);
    if (!CHECK(record.has_value())) return;
    if (record->kind == PACELINE_KIND_STEP) {
      last_step = record->step;
      if (record->step > 3 && record->step < 7) CHECK(record->overhead_ns > 400);
      continue;
    }
    CHECK(record->step <= last_step);
    amended.push_back(record->step);
  }
  // The third has its start only, and what ends the second is not on the device.
  CHECK(amended == (std::vector<std::uint64_t>{3, 4, 5, 6}));
  CHECK_EQ(runtime.open(nullptr), PACELINE_OK);
  CHECK_EQ(header()->device_number, 2U);
  CHECK_EQ(header()->capabilities, PACELINE_CAPABILITY_DEVICE_EVENTS);
}

CASE(a_forked_child_makes_no_call_of_the_driver) {
  paceline::device_test::FakeCuda cuda;
  cuda.push_context(0);
  std::string why;
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  CHECK_EQ(Runtime::instance().start_device(0, why), PACELINE_OK);
  train_on(7, 2);
  const pid_t child = ::fork();
  if (child == 0) {
    cuda.forget();
    train_on(7, 2);
    ::_exit(Runtime::instance().start_device(0, why) == PACELINE_EFORKED && cuda.log().empty() ? 0
                                                                                               : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  train_on(7, 2);
  Runtime::instance().close();
}

CASE(a_lost_device_takes_its_capability_back) {
  paceline::device_test::FakeCuda cuda;
  cuda.push_context(0);
  std::string why;
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  const paceline_ring_header* seen = header();
  CHECK_EQ(Runtime::instance().start_device(0, why), PACELINE_OK);
  cuda.set("cuEventRecord", 700);
  train_on(7, 2);
  Runtime::instance().close();
  CHECK_EQ(seen->capabilities, 0U);
}

CASE(without_a_driver_the_device_is_known_and_its_times_are_not) {
  std::string why;
  CHECK_EQ(Runtime::instance().open(nullptr), PACELINE_OK);
  CHECK_EQ(Runtime::instance().start_device(0, why), PACELINE_EDEVICE);
  CHECK(why.find("libcuda.so.1") != std::string::npos);
  CHECK_EQ(header()->device_kind, PACELINE_DEVICE_CUDA);
  CHECK_EQ(header()->device_number, 0U);
}

CASE(the_newest_marks_are_kept_in_order) {
  Runtime& runtime = Runtime::instance();
  paceline_mark marks[2000];
  CHECK_EQ(runtime.recent_marks(marks, 2000), PACELINE_ECLOSED);
  CHECK_EQ(runtime.open(nullptr), PACELINE_OK);
  CHECK_EQ(runtime.recent_marks(marks, 2000), 0);
  enter();
  leave();
  CHECK_EQ(runtime.recent_marks(marks, 2000), 2);
  CHECK_EQ(marks[0].phase, static_cast<std::uint32_t>(PACELINE_PHASE_BACKWARD));
  CHECK_EQ(marks[1].phase, static_cast<std::uint32_t>(PACELINE_PHASE_OTHER));
  CHECK(marks[0].ns <= marks[1].ns);
  CHECK_EQ(runtime.recent_marks(marks, 1), 1);
  CHECK_EQ(marks[0].phase, static_cast<std::uint32_t>(PACELINE_PHASE_OTHER));
  train(1500);
  CHECK_EQ(runtime.recent_marks(marks, 2000), 1024);
  CHECK(marks[0].ns <= marks[1023].ns);
}

}  // namespace
