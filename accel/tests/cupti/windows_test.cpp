// SPDX-License-Identifier: Apache-2.0
// Kernel windows through the real injection library, with a CUPTI that plays known work.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>

#include "check.hpp"
#include "cupti/player.hpp"

namespace {

using paceline::check::kMs;
using paceline::check::monotonic_now;
using paceline::check::Player;

constexpr std::uint64_t kStep = 5 * kMs;
constexpr int kKinds = 5;  // of records that a window enables
constexpr std::uint64_t kUnixTime = 1'795'000'000'000'000'000;

bool is_near(std::uint64_t found, std::uint64_t expected) {
  constexpr std::uint64_t kSlack = 50'000;  // two clocks are compared, on a busy machine
  if (found + kSlack >= expected && found <= expected + kSlack) return true;
  std::cerr << "  found " << found << ", expected " << expected << "\n";
  return false;
}

// One step: compute 2 ms, a collective that it hides half of, a copy of 0.5 ms, then nothing.
void known_work(Player& player, std::uint64_t begin) {
  player.play(kFakeKernel, begin + kMs / 10, begin + 21 * kMs / 10, "gemm", begin + kMs / 20);
  player.play(kFakeKernel, begin + 11 * kMs / 10, begin + 31 * kMs / 10,
              "_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE");
  player.play(kFakeMemcpy, begin + 32 * kMs / 10, begin + 37 * kMs / 10, "", 0, 4096);
}

void check_known(Player& player, const paceline_step_record& facts) {
  CHECK(is_near(facts.device_ns[PACELINE_PHASE_COMM_EXPOSED], kMs));
  CHECK(is_near(facts.device_ns[PACELINE_PHASE_H2D], kMs / 2));
  std::uint64_t compute = 0;
  std::uint64_t all = 0;
  for (int phase = 0; phase < PACELINE_PHASE_COUNT; ++phase) {
    all += facts.device_ns[phase];
    if (phase == PACELINE_PHASE_FORWARD || phase == PACELINE_PHASE_COMPUTE_UNDIVIDED)
      compute += facts.device_ns[phase];
  }
  CHECK(is_near(compute, 2 * kMs));
  CHECK(is_near(facts.comm_total_ns, 2 * kMs));
  CHECK(is_near(facts.comm_exposed_ns, kMs));
  CHECK_EQ(all, facts.device_window_ns);
  CHECK_EQ(facts.kernels, 2U);
  CHECK_EQ(facts.h2d_bytes, 4096U);
  const auto host = player.host_record(facts.step);
  if (CHECK(host.has_value())) CHECK_EQ(facts.device_window_ns, host->wall_ns);
}

// Trains through a window that was asked for, and returns its amendments.
std::vector<paceline_step_record> window_of(Player& player, std::uint32_t steps = 2) {
  CHECK_EQ(player.request(steps), PACELINE_OK);
  const std::size_t before = player.amendments().size();
  player.train_until([&] { return player.amendments().size() >= before + steps; }, kStep,
                     [&](std::uint64_t begin) { known_work(player, begin); });
  const auto all = player.amendments();
  if (!CHECK(all.size() == before + steps)) return {};
  return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
}

CASE(a_window_says_what_the_device_did) {
  Player player;
  player.clock(kUnixTime, 1.0);
  player.start();
  for (const paceline_step_record& facts : window_of(player)) {
    check_known(player, facts);
    CHECK_EQ(facts.flags, PACELINE_FLAG_SAMPLED_L2);
    CHECK_EQ(facts.graph_launches, 0U);
  }
  const FakeCuptiState state = player.state();
  CHECK_EQ(state.serializing, 0);
  CHECK_EQ(state.enabled, 0);
  CHECK_EQ(state.subscribers, 0);
  CHECK_EQ(state.latency, 0);
  CHECK_EQ(state.lent, 0);
  CHECK_EQ(state.finalized, 0);
  // Its steps are counted after they were published.
  player.train_until([&] { return player.report().steps == 2; }, kStep);
  const paceline_window_totals report = player.report();
  CHECK_EQ(report.windows, 1U);
  CHECK_EQ(report.steps, 2U);
  CHECK_EQ(report.lost, 0U);
  CHECK(report.inside_ns >= kStep);
  CHECK(std::string(report.off) == "");
}

CASE(the_launcher_gets_a_window_at_once) {
  Player player;
  player.clock(kUnixTime, 1.0);
  std::array<char, 32> path{"/tmp/paceline-request-XXXXXX"};
  const int file = ::mkstemp(path.data());
  const auto ask = [file](std::uint64_t number) {
    if (::pwrite(file, &number, sizeof number, 24) != sizeof number) std::abort();
  };
  ask(6);  // before this process began
  ::setenv("PACELINE_TRACE_REQUEST", path.data(), 1);
  player.start();
  CHECK_EQ(window_of(player).size(), 2U);
  for (int i = 0; i < 40; ++i) player.step(kStep);
  CHECK_EQ(player.report().windows, 1U);
  ask(7);
  CHECK(player.train_until([&] { return player.report().windows == 2; }, kStep));
  CHECK_EQ(::ftruncate(file, 0), 0);
  for (int i = 0; i < 40; ++i) player.step(kStep);
  CHECK_EQ(player.report().windows, 2U);
  ::close(file);
  ::unlink(path.data());
}

// A step whose marks are those of PyTorch. The device does its work after the optimizer's mark, in
// the next step of the host.
void marked_step(Player& player) {
  player.loader_enter(0, 1);
  player.loader_leave(0, 8);
  const std::uint64_t forward = monotonic_now();
  player.backward_enter();
  const std::uint64_t backward = monotonic_now();
  player.backward_leave();
  player.optimizer_enter(0);
  const std::uint64_t optimizer = monotonic_now();
  player.optimizer_leave(0);
  const std::uint64_t begin = monotonic_now();
  player.play(kFakeKernel, begin + kMs / 5, begin + 6 * kMs / 5, "gemm", forward);
  player.play(kFakeKernel, begin + 6 * kMs / 5, begin + 16 * kMs / 5, "gemm", backward);
  player.play(kFakeKernel, begin + 16 * kMs / 5, begin + 18 * kMs / 5, "adam", optimizer);
  while (monotonic_now() < begin + kStep)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

CASE(compute_is_divided_by_the_marks_of_the_host) {
  Player player;
  player.clock(kUnixTime, 1.0);
  if (player.inject() != 1 || player.open(nullptr) != PACELINE_OK) std::abort();
  CHECK_EQ(player.request(3), PACELINE_OK);
  const std::uint64_t until = monotonic_now() + 20'000 * kMs;
  while (player.amendments().size() < 3 && monotonic_now() < until) marked_step(player);
  const auto all = player.amendments();
  CHECK_EQ(all.size(), 3U);
  for (const paceline_step_record& facts : all) {
    CHECK(is_near(facts.device_ns[PACELINE_PHASE_FORWARD], kMs));
    CHECK(is_near(facts.device_ns[PACELINE_PHASE_BACKWARD], 2 * kMs));
    CHECK(is_near(facts.device_ns[PACELINE_PHASE_OPTIMIZER], 2 * kMs / 5));
    CHECK_EQ(facts.device_ns[PACELINE_PHASE_COMPUTE_UNDIVIDED], 0U);
    CHECK_EQ(facts.source[PACELINE_PHASE_BACKWARD], PACELINE_SOURCE_CUPTI << 4);
  }
}

CASE(another_profilers_clock_is_understood) {
  Player player;
  player.clock(77'000'000, 2.9);  // cycles of a processor
  player.start();
  for (const paceline_step_record& facts : window_of(player)) check_known(player, facts);
}

CASE(a_clock_that_stands_still_drops_the_window) {
  Player player;
  player.start();
  player.step(kStep);
  player.stop_clock();
  CHECK_EQ(player.request(2), PACELINE_OK);
  player.train_until([&] { return player.report().off[0] != '\0'; }, kStep,
                     [&](std::uint64_t begin) { known_work(player, begin); });
  CHECK(std::string(player.report().off) == "CUPTI's clock went back");
  CHECK_EQ(player.amendments().size(), 0U);
}

CASE(times_outside_the_window_drop_it) {
  Player player;
  player.misdate(9000 * kMs);
  player.start();
  CHECK_EQ(player.request(2), PACELINE_OK);
  player.train_until(
      [&] { return player.report().off[0] != '\0'; }, kStep,
      [&](std::uint64_t begin) { player.play(kFakeKernel, begin + kMs, begin + 2 * kMs); });
  CHECK(std::strstr(player.report().off, "have times outside the window") != nullptr);
  CHECK_EQ(player.amendments().size(), 0U);
}

CASE(a_graph_is_counted_and_hides_its_collectives) {
  Player player;
  player.start();
  CHECK_EQ(player.request(2), PACELINE_OK);
  player.train_until(
      [&] { return player.amendments().size() == 2; }, kStep,
      [&](std::uint64_t begin) { player.play(kFakeGraph, begin + kMs, begin + 4 * kMs); });
  for (const paceline_step_record& facts : player.amendments()) {
    CHECK_EQ(facts.graph_launches, 1U);
    CHECK_EQ(facts.kernels, 0U);
    CHECK(is_near(facts.device_ns[PACELINE_PHASE_COMPUTE_UNDIVIDED], 3 * kMs));
    CHECK((facts.valid & PACELINE_VALID_COMM_TOTAL_NS) == 0);
    CHECK_EQ(facts.flags, PACELINE_FLAG_SAMPLED_L2 | PACELINE_FLAG_GRAPH_REPLAY);
  }
}

CASE(work_without_times_is_lost_and_said_so) {
  Player player;
  player.start();
  CHECK_EQ(player.request(2), PACELINE_OK);
  player.train_until([&] { return player.amendments().size() == 2; }, kStep,
                     [&](std::uint64_t begin) {
                       player.play(kFakeKernel, 0, 0);
                       known_work(player, begin);
                     });
  for (const paceline_step_record& facts : player.amendments()) {
    check_known(player, facts);
    CHECK_EQ(facts.flags, PACELINE_FLAG_SAMPLED_L2 | PACELINE_FLAG_TRUNCATED_POOL);
  }
  CHECK(player.report().lost >= 2);
}

CASE(records_that_cupti_drops_are_said) {
  Player player;
  player.start();
  player.drop(13);
  for (const paceline_step_record& facts : window_of(player))
    CHECK((facts.flags & PACELINE_FLAG_TRUNCATED_POOL) != 0);
  CHECK_EQ(player.report().lost, 13U);
  for (const paceline_step_record& facts : window_of(player))
    CHECK((facts.flags & PACELINE_FLAG_TRUNCATED_POOL) == 0);
}

CASE(more_records_than_there_is_room_for_are_lost_not_waited_for) {
  Player player;
  player.start();
  CHECK_EQ(player.request(2), PACELINE_OK);
  player.train_until([&] { return player.amendments().size() == 2; }, kStep,
                     [&](std::uint64_t begin) {
                       for (int i = 0; i < 30'000; ++i)
                         player.play(kFakeKernel, begin + kMs, begin + 2 * kMs);
                     });
  CHECK(player.report().lost > 0);
  for (const paceline_step_record& facts : player.amendments())
    CHECK((facts.flags & PACELINE_FLAG_TRUNCATED_POOL) != 0);
  CHECK_EQ(player.state().lent, 0);
}

CASE(buffers_may_come_late) {
  Player player;
  player.late(12);
  player.start();
  for (const paceline_step_record& facts : window_of(player)) {
    check_known(player, facts);
    CHECK((facts.flags & PACELINE_FLAG_TRUNCATED_POOL) == 0);
  }
  player.late(-1);  // only at a forced flush
  for (const paceline_step_record& facts : window_of(player)) check_known(player, facts);
}

CASE(a_device_that_is_behind_is_given_a_longer_lead) {
  Player player;
  player.start();
  CHECK_EQ(player.request(2), PACELINE_OK);
  // What a step launches runs three steps later. If the machine holds the host up, it may be over
  // before the next step that is looked at.
  const auto on_time = [&](std::uint64_t step) {
    const auto before = player.host_record(step - 2);
    const auto last = player.host_record(step - 1);
    return before && last && before->wall_ns + last->wall_ns < 3 * kStep + kMs;
  };
  std::vector<paceline_step_record> judged;
  std::uint64_t looked_at = 0;  // To look takes long, so that is done once after each window.
  player.train_until(
      [&] {
        const paceline_window_totals report = player.report();
        if (report.windows < 2 || report.steps == looked_at) return false;
        looked_at = report.steps;
        judged = player.amendments();
        std::erase_if(judged, [&](const auto& facts) { return !on_time(facts.step); });
        return !judged.empty();
      },
      kStep,
      [&](std::uint64_t begin) {
        player.play(kFakeKernel, begin + 3 * kStep, begin + 3 * kStep + 2 * kMs, "gemm", begin);
      });
  CHECK(player.report().windows >= 2);
  CHECK(!judged.empty());
  for (const paceline_step_record& facts : judged)
    CHECK(facts.device_ns[PACELINE_PHASE_IDLE_GAP] < facts.device_window_ns);
}

CASE(windows_wait_while_another_profiler_is_subscribed) {
  Player player;
  player.take(1);
  player.start();
  CHECK_EQ(player.request(2), PACELINE_OK);
  player.train_until([&] { return player.report().off[0] != '\0'; }, kMs);
  CHECK(std::string(player.report().off) == "another profiler uses CUPTI");
  CHECK_EQ(player.state().enables, 0);
  // A profile by PyTorch does not make the other profiler's subscription PyTorch's.
  CHECK_EQ(player.pause(), PACELINE_OK);
  CHECK_EQ(player.resume(), PACELINE_OK);
  CHECK_EQ(player.request(2), PACELINE_OK);
  for (int i = 0; i < 100; ++i) player.step(kMs);
  CHECK_EQ(player.state().enables, 0);
  player.take(0);
  CHECK_EQ(window_of(player).size(), 2U);
  CHECK(std::string(player.report().off) == "");
}

CASE(a_cupti_that_refuses_turns_windows_off) {
  Player player;
  player.refuse(35);
  player.start();
  CHECK_EQ(player.request(2), PACELINE_OK);
  player.train_until([&] { return player.report().off[0] != '\0'; }, kMs);
  CHECK(std::string(player.report().off) == "cuptiSubscribe: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES");
  CHECK_EQ(player.report().windows, 0U);
}

CASE(a_profiler_that_says_so_gets_cupti_in_the_middle_of_a_window) {
  Player player;
  player.start();
  CHECK_EQ(player.request(64), PACELINE_OK);
  player.train_until([&] { return player.state().enabled > 0; }, kMs);
  player.play(kFakeKernel, monotonic_now(), monotonic_now() + 1);
  int paused = player.pause();
  for (int i = 0; i < 20 && paused == PACELINE_EDEVICE; ++i) {  // the window's thread was late
    CHECK_EQ(player.resume(), PACELINE_OK);
    paused = player.pause();
  }
  CHECK_EQ(paused, PACELINE_OK);
  CHECK_EQ(player.state().enabled, 0);
  CHECK_EQ(player.state().subscribers, 0);
  CHECK_EQ(player.state().lent, 0);
  CHECK_EQ(player.report().cancelled, 1U);
  player.take(1);  // and stays subscribed, as PyTorch's does
  const int enables = player.state().enables;
  CHECK_EQ(player.request(2), PACELINE_OK);
  for (int i = 0; i < 100; ++i) player.step(kMs);
  CHECK_EQ(player.state().enables, enables);
  CHECK_EQ(player.resume(), PACELINE_OK);
  player.train_until([&] { return player.amendments().size() == 2; }, kStep,
                     [&](std::uint64_t begin) { known_work(player, begin); });
  for (const paceline_step_record& facts : player.amendments()) check_known(player, facts);
  CHECK_EQ(player.resume(), PACELINE_EORDER);
}

CASE(a_profiler_that_takes_cupti_over_keeps_what_it_has) {
  Player player;
  player.start();
  CHECK_EQ(player.request(8), PACELINE_OK);
  // The window's own thread enables one kind after the other, and may be between two of them.
  player.train_until([&] { return player.state().enabled == kKinds; }, kMs);
  player.take(1);
  player.train_until([&] { return player.report().cancelled == 1; }, kMs);
  CHECK_EQ(player.state().enabled, kKinds);
  CHECK_EQ(player.amendments().size(), 0U);
  CHECK(std::string(player.report().off) == "another profiler has taken CUPTI over");
  player.take(0);
  CHECK_EQ(window_of(player).size(), 2U);
}

CASE(a_window_comes_by_itself_and_again_after_500_steps) {
  Player player;
  const auto work = [&](std::uint64_t begin) {
    player.play(kFakeKernel, begin + kMs / 4, begin + kMs / 2);
  };
  // As start(), but the first window already finds steps that it can be compared with.
  if (player.open(nullptr) != PACELINE_OK) std::abort();
  player.step_ended(-1);
  player.train_until([&] { return !player.records(PACELINE_KIND_STEP).empty(); }, kStep, work);
  if (player.inject() != 1) std::abort();
  player.train_until([&] { return player.report().windows == 1; }, kStep, work);
  const paceline_window_totals first = player.report();
  CHECK(first.before_ns >= kStep);
  CHECK_EQ(first.after_ns, 0U);
  player.train_until([&] { return player.report().windows == 2; }, kStep, work);
  CHECK(player.report().after_ns >= kStep);
  player.train_until([&] { return player.amendments().size() == 4; }, kStep, work);
  const auto facts = player.amendments();
  if (!CHECK(facts.size() == 4U)) return;
  CHECK(facts[0].step >= 20);
  CHECK_EQ(facts[1].step, facts[0].step + 1);
  // The window's thread may be late by seconds.
  CHECK(facts[2].step >= facts[0].step + 400 && facts[2].step < facts[0].step + 900);
}

CASE(without_cupti_training_goes_on) {
  Player player(Player::Cupti::kMissing);
  player.start();
  CHECK_EQ(player.request(2), PACELINE_OK);
  player.train_until([&] { return player.report().off[0] != '\0'; }, kMs);
  CHECK(std::strstr(player.report().off, "libcuda.so.1 is not loaded") != nullptr);
}

CASE(disabled_windows_start_nothing) {
  ::setenv("PACELINE_KERNEL_WINDOWS", "Disabled", 1);
  Player player;
  player.start();
  CHECK_EQ(player.request(2), PACELINE_EDISABLED);
  CHECK_EQ(player.pause(), PACELINE_OK);
  CHECK_EQ(player.resume(), PACELINE_OK);
}

CASE(a_forked_child_has_no_windows) {
  Player player;
  player.start();
  player.step(kMs);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(player.request(2) == PACELINE_EFORKED ? 0 : 1);
  int status = 1;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

CASE(the_end_of_the_training_closes_a_window) {
  Player player;
  player.start();
  CHECK_EQ(player.request(64), PACELINE_OK);
  CHECK_EQ(player.request(0), PACELINE_EINVAL);
  CHECK_EQ(player.request(65), PACELINE_EINVAL);
  player.train_until([&] { return player.state().enabled > 0; }, kMs);
  CHECK_EQ(player.close(), PACELINE_OK);
  const std::uint64_t until = monotonic_now() + 20'000 * kMs;
  while (player.state().enabled > 0 && monotonic_now() < until) std::this_thread::yield();
  CHECK_EQ(player.state().enabled, 0);
}

}  // namespace
