// SPDX-License-Identifier: Apache-2.0
// The marks of typical training loops, with times told, and what the steps must say.
#include "phase_machine.hpp"

#include <random>

#include "check.hpp"
#include "paceline/paceline.h"

namespace {

using paceline::trace::PhaseMachine;
using paceline::trace::StepSink;

class Steps final : public StepSink {
 public:
  void take(const paceline_step_record& record) override { records.push_back(record); }
  std::vector<paceline_step_record> records;
};

// Says what a program does and for how long; every call is one stretch of its time.
class Program {
 public:
  Program() : machine(steps, 0, 0) {}

  void pass(std::uint64_t time) { now += time; }
  void fetch(std::uint64_t wait, std::uint64_t loader = 1, std::int64_t samples = 8,
             bool gradients = true) {
    machine.loader_enter(now, loader, gradients);
    now += wait;
    machine.loader_leave(now, loader, samples);
  }
  void backward(std::uint64_t time, std::uint64_t exposed = 0) {
    machine.backward_enter(now);
    now += time;
    if (exposed > 0) machine.gradients_done(now);
    now += exposed;
    machine.backward_leave(now);
  }
  void optimize(std::uint64_t time, std::uint32_t optimizer = 0) {
    machine.optimizer_enter(now, optimizer);
    now += time;
    machine.optimizer_leave(now, optimizer);
  }
  void save(std::uint64_t time) {
    machine.enter(now, PACELINE_PHASE_CHECKPOINT);
    now += time;
    machine.leave(now, PACELINE_PHASE_CHECKPOINT);
  }
  void iterate() {
    fetch(10);
    pass(20);
    backward(30, 5);
    pass(2);
    optimize(7);
    pass(1);
  }
  const std::vector<paceline_step_record>& finish() {
    machine.finish(now);
    return steps.records;
  }

  Steps steps;
  PhaseMachine machine;
  std::uint64_t now = 1'000'000;
};

std::uint64_t total(const paceline_step_record& record) {
  std::uint64_t sum = 0;
  for (const std::uint64_t part : record.host_ns) sum += part;
  return sum;
}

CASE(an_ordinary_loop_is_divided_exactly) {
  Program program;
  for (int i = 0; i < 3; ++i) program.iterate();
  const auto& records = program.finish();
  if (!CHECK(records.size() == 4)) return;
  const auto& record = records[1];
  CHECK_EQ(record.step, 2U);
  CHECK_EQ(record.wall_ns, 75U);
  CHECK_EQ(record.host_ns[PACELINE_PHASE_DATA_WAIT], 10U);
  CHECK_EQ(record.host_ns[PACELINE_PHASE_FORWARD], 20U);
  CHECK_EQ(record.host_ns[PACELINE_PHASE_BACKWARD], 30U);
  CHECK_EQ(record.host_ns[PACELINE_PHASE_COMM_EXPOSED], 5U);
  CHECK_EQ(record.comm_exposed_ns, 5U);
  CHECK_EQ(record.host_ns[PACELINE_PHASE_OPTIMIZER], 7U);
  CHECK_EQ(record.host_ns[PACELINE_PHASE_OTHER], 3U);
  CHECK_EQ(record.host_ns[PACELINE_PHASE_UNATTRIBUTED], 0U);
  CHECK_EQ(record.samples, 8U);
  CHECK_EQ(record.micro_batches, 1U);
  CHECK((records[0].flags & PACELINE_FLAG_WARM_UP) != 0 &&
        (record.flags & PACELINE_FLAG_WARM_UP) == 0);
  CHECK(records[3].flags == PACELINE_FLAG_FINAL);
  CHECK_EQ(records[3].step, 4U);
}

CASE(a_step_is_handed_out_when_the_next_batch_is_asked_for) {
  Program program;
  program.iterate();
  CHECK_EQ(program.steps.records.size(), 0U);
  CHECK_EQ(program.machine.live_step(), 2U);
  program.fetch(10);
  CHECK_EQ(program.steps.records.size(), 1U);
  CHECK_EQ(program.machine.live_step(), 2U);
  CHECK_EQ(program.machine.live_phase(), static_cast<std::uint32_t>(PACELINE_PHASE_FORWARD));
}

CASE(gradient_accumulation_counts_its_batches) {
  Program program;
  for (int step = 0; step < 2; ++step) {
    for (int i = 0; i < 4; ++i) {
      program.fetch(1);
      program.pass(2);
      program.backward(3);
    }
    program.optimize(5);
  }
  const auto& records = program.finish();
  if (!CHECK(records.size() == 2)) return;
  CHECK_EQ(records[1].micro_batches, 4U);
  CHECK_EQ(records[1].samples, 32U);
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_FORWARD], 8U);
  CHECK_EQ(records[1].wall_ns, 29U);
}

CASE(two_optimizers_of_one_iteration_make_one_step) {
  Program program;
  for (int i = 0; i < 3; ++i) {
    program.fetch(1);
    program.pass(2);
    program.backward(3);  // discriminator, real and fake
    program.pass(2);
    program.backward(3);
    program.optimize(1, 0);
    program.pass(4);  // the generator's forward on the same batch
    program.backward(6);
    program.optimize(1, 1);
  }
  const auto& records = program.finish();
  if (!CHECK(records.size() == 3)) return;
  for (const auto& record : records) {
    CHECK_EQ(record.optimizer_mask, 3U);
    CHECK_EQ(record.optimizers_stepped, 2U);
    CHECK_EQ(record.micro_batches, 1U);
    CHECK_EQ(record.samples, 8U);
    CHECK_EQ(record.host_ns[PACELINE_PHASE_FORWARD], 8U);
    CHECK_EQ(record.host_ns[PACELINE_PHASE_UNATTRIBUTED], 0U);
  }
}

CASE(without_a_loader_what_cannot_be_told_is_unattributed) {
  Program program;
  for (int i = 0; i < 3; ++i) {
    program.pass(50);
    program.backward(30);
    program.optimize(7);
  }
  const auto& records = program.finish();
  if (!CHECK(records.size() == 3)) return;
  CHECK_EQ(records[1].wall_ns, 87U);
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_UNATTRIBUTED], 50U);
  CHECK_EQ(records[1].micro_batches, 1U);
  CHECK((records[1].valid & PACELINE_VALID_SAMPLES) == 0);
}

CASE(two_optimizers_without_a_loader_still_make_one_step) {
  Program program;
  for (int i = 0; i < 4; ++i) {
    program.backward(3);
    program.optimize(1, 0);
    program.backward(3);
    program.optimize(1, 1);
  }
  CHECK_EQ(program.finish().size(), 4U);
}

CASE(evaluation_belongs_to_the_step_after_it) {
  Program program;
  program.iterate();
  for (int i = 0; i < 3; ++i) {
    program.fetch(4, 2, 8, false);
    program.pass(6);
  }
  program.fetch(4, 2, -2, false);
  program.pass(5);  // printing the result
  program.save(9);
  program.iterate();
  const auto& records = program.finish();
  if (!CHECK(records.size() >= 2)) return;
  CHECK_EQ(records[0].host_ns[PACELINE_PHASE_EVALUATION], 0U);
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_EVALUATION], 34U);
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_CHECKPOINT], 9U);
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_OTHER], 8U);
  CHECK_EQ(records[1].samples, 8U);
}

CASE(evaluation_with_gradients_on_is_known_from_its_second_batch) {
  Program program;
  program.iterate();
  program.iterate();
  program.fetch(1, 2);
  program.pass(6);
  for (int i = 0; i < 9; ++i) {
    program.fetch(1, 2);
    program.pass(6);
  }
  program.fetch(1, 2, -2);
  program.iterate();
  const auto& records = program.finish();
  if (!CHECK(records.size() >= 3)) return;
  CHECK_EQ(records[2].host_ns[PACELINE_PHASE_EVALUATION], 70U);
  CHECK_EQ(records[2].host_ns[PACELINE_PHASE_FORWARD], 20U);
  CHECK_EQ(records[2].host_ns[PACELINE_PHASE_UNATTRIBUTED], 0U);
}

CASE(two_training_loaders_are_both_training) {
  Program program;
  for (int i = 0; i < 3; ++i) {
    program.fetch(1, 1);
    program.fetch(2, 2);
    program.pass(5);
    program.backward(3);
    program.optimize(1);
  }
  const auto& records = program.finish();
  if (!CHECK(records.size() == 3)) return;
  CHECK_EQ(records[2].host_ns[PACELINE_PHASE_DATA_WAIT], 3U);
  CHECK_EQ(records[2].host_ns[PACELINE_PHASE_FORWARD], 5U);
  CHECK_EQ(records[2].host_ns[PACELINE_PHASE_EVALUATION], 0U);
  CHECK_EQ(records[2].micro_batches, 1U);
  CHECK_EQ(records[2].samples, 8U);
}

CASE(a_closure_is_forward_and_backward_inside_the_optimizer) {
  Program program;
  for (int i = 0; i < 2; ++i) {
    program.fetch(1);
    program.machine.optimizer_enter(program.now, 0);
    for (int j = 0; j < 3; ++j) {
      program.pass(2);
      program.machine.enter(program.now, PACELINE_PHASE_FORWARD);
      program.pass(10);
      program.backward(20);
      program.machine.leave(program.now, PACELINE_PHASE_FORWARD);
    }
    program.machine.optimizer_leave(program.now, 0);
  }
  const auto& records = program.finish();
  if (!CHECK(records.size() == 2)) return;
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_OPTIMIZER], 6U);
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_FORWARD], 30U);
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_BACKWARD], 60U);
  CHECK_EQ(records[1].optimizers_stepped, 1U);
}

CASE(an_exhausted_loader_and_a_failed_batch_are_no_batches) {
  Program program;
  program.iterate();
  program.fetch(3, 1, -2);
  program.pass(4);
  program.iterate();
  const auto& records = program.finish();
  if (!CHECK(records.size() >= 2)) return;
  CHECK_EQ(records[1].micro_batches, 1U);
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_DATA_WAIT], 13U);
  CHECK_EQ(records[1].host_ns[PACELINE_PHASE_OTHER], 7U);
}

CASE(explicit_steps_are_boundaries_until_an_optimizer_is_seen) {
  Program program;
  program.machine.step(program.now, -1);
  CHECK_EQ(program.steps.records.size(), 0U);
  program.pass(40);
  program.machine.step(program.now, 17);
  if (!CHECK(program.steps.records.size() == 1)) return;
  CHECK_EQ(program.steps.records[0].user_step, 17);
  CHECK_EQ(program.steps.records[0].boundary, PACELINE_BOUNDARY_EXPLICIT);
  CHECK_EQ(program.steps.records[0].host_ns[PACELINE_PHASE_UNATTRIBUTED], 40U);
  program.iterate();
  program.machine.step(program.now, 18);
  program.fetch(1);
  if (!CHECK(program.steps.records.size() == 2)) return;
  CHECK_EQ(program.steps.records[1].user_step, 18);
  CHECK_EQ(program.steps.records[1].boundary, PACELINE_BOUNDARY_OPTIMIZER);
}

CASE(a_step_whose_optimizer_a_scaler_skipped_is_a_step_and_says_so) {
  Program program;
  const auto iterate = [&](bool skip) {
    program.fetch(10);
    program.pass(20);
    program.backward(30);
    PhaseMachine& machine = program.machine;
    machine.optimizer_enter(program.now, 0);
    program.pass(3);
    if (skip) {
      machine.count(PACELINE_COUNTER_SCALER_SKIPS, 1);
    } else {
      program.optimize(4);  // inside, as the scaler calls it
    }
    machine.optimizer_leave(program.now, 0);
  };
  iterate(false);
  iterate(true);
  iterate(false);
  const auto& records = program.finish();
  if (!CHECK(records.size() == 3)) return;
  for (std::size_t i = 0; i < 3; ++i) {
    const bool skipped = i == 1;
    CHECK_EQ(records[i].step, i + 1);
    CHECK_EQ((records[i].flags & PACELINE_FLAG_SCALER_SKIP) != 0, skipped);
    CHECK_EQ(records[i].optimizers_stepped, skipped ? 0 : 1);
    CHECK_EQ(records[i].optimizer_mask, skipped ? 0 : 1);
    CHECK_EQ(records[i].host_ns[PACELINE_PHASE_OPTIMIZER], skipped ? 3U : 7U);
    CHECK_EQ(records[i].samples, 8U);
  }
}

CASE(tokens_of_batches_count_until_the_program_counts_itself) {
  Program program;
  const auto iterate = [&](std::uint64_t of_batch, std::uint64_t told) {
    program.fetch(10);
    program.machine.count(PACELINE_COUNTER_BATCH_TOKENS, of_batch);
    program.fetch(10);  // gradients of two batches are accumulated
    program.machine.count(PACELINE_COUNTER_BATCH_TOKENS, of_batch);
    if (told > 0) program.machine.count(PACELINE_COUNTER_TOKENS, told);
    program.backward(30);
    program.optimize(5);
  };
  iterate(40, 0);
  iterate(50, 0);
  iterate(60, 7);
  const auto& records = program.finish();
  if (!CHECK(records.size() >= 3)) return;
  CHECK((records[0].valid & PACELINE_VALID_TOKENS) != 0);
  CHECK_EQ(records[0].tokens, 80U);
  CHECK_EQ(records[1].tokens, 100U);
  CHECK_EQ(records[2].tokens, 7U);
}

CASE(of_two_optimizers_one_may_be_skipped) {
  Program program;
  program.fetch(10);
  program.backward(30);
  program.optimize(5, 0);
  program.machine.optimizer_enter(program.now, 1);
  program.machine.count(PACELINE_COUNTER_SCALER_SKIPS, 1);
  program.machine.optimizer_leave(program.now, 1);
  // outside of an optimizer it means nothing
  program.machine.count(PACELINE_COUNTER_SCALER_SKIPS, 1);
  program.iterate();
  const auto& records = program.finish();
  if (!CHECK(records.size() == 3)) return;  // the last one is what came after the last step
  CHECK((records[0].flags & PACELINE_FLAG_SCALER_SKIP) != 0);
  CHECK_EQ(records[0].optimizer_mask, 1);
  CHECK_EQ(records[0].optimizers_stepped, 1);
  CHECK((records[1].flags & PACELINE_FLAG_SCALER_SKIP) == 0);
}

// Whatever marks come in whatever order: steps follow each other without a hole, and their phases
// add up.
CASE(any_order_of_marks_keeps_the_partition) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 2000; ++round) {
    Program program;
    PhaseMachine& machine = program.machine;
    const std::uint64_t began = program.now;
    machine.loader_enter(program.now, 0, true);
    for (int i = 0; i < 120; ++i) {
      program.pass(random() % 1000);
      const std::uint32_t which = random() % 3;
      switch (random() % 12) {
        case 0: machine.loader_enter(program.now, which, random() % 3 != 0); break;
        case 1:
          machine.loader_leave(program.now, which, static_cast<std::int64_t>(random() % 12) - 2);
          break;
        case 2: machine.backward_enter(program.now); break;
        case 3: machine.backward_leave(program.now); break;
        case 4: machine.optimizer_enter(program.now, random() % 20); break;
        case 5: machine.optimizer_leave(program.now, random() % 20); break;
        case 6: machine.gradients_done(program.now); break;
        case 7: machine.enter(program.now, random() % 15); break;
        case 8: machine.leave(program.now, random() % 15); break;
        case 9: machine.step(program.now, static_cast<std::int64_t>(random() % 9) - 1); break;
        case 10: machine.count(random() % 4, random() % 100); break;
        default: program.iterate(); break;
      }
    }
    std::uint64_t at = began;
    for (const auto& record : program.finish()) {
      if (!CHECK(record.start_ns == at) || !CHECK(total(record) == record.wall_ns)) return;
      at += record.wall_ns;
    }
    if (!CHECK(at == program.now)) return;
  }
}

CASE(a_clock_that_goes_back_adds_nothing) {
  Program program;
  program.fetch(10);
  program.now -= 5;
  program.backward(3);
  program.optimize(10);
  const auto& records = program.finish();
  if (!CHECK(!records.empty())) return;
  CHECK_EQ(total(records[0]), records[0].wall_ns);
  CHECK(records[0].wall_ns < 100);
}

}  // namespace
