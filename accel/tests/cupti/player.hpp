// SPDX-License-Identifier: Apache-2.0
// A training program on a GPU that is not there: the real libpaceline_cupti.so and libpaceline.so,
// loaded as the driver and Python load them, beside the fake CUPTI. Each case has a process to
// itself, so nothing is put back.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>
#include <time.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "fake_cupti.hpp"
#include "paceline/window.h"
#include "trace/ring_reader.hpp"

namespace paceline::check {

constexpr std::uint64_t kMs = 1'000'000;

inline std::uint64_t monotonic_now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(time.tv_nsec);
}

class Player {
 public:
  enum class Cupti { kMapped, kMissing };

  explicit Player(Cupti cupti = Cupti::kMapped) {
    if (cupti == Cupti::kMapped) fake_ = load(PACELINE_FAKE_CUPTI);
    injection_ = load(PACELINE_CUPTI_LIBRARY);
    find(open, injection_, "paceline_open");
    find(close, injection_, "paceline_close");
    find(step_ended, injection_, "paceline_step");
    find(loader_enter, injection_, "paceline_loader_enter");
    find(loader_leave, injection_, "paceline_loader_leave");
    find(backward_enter, injection_, "paceline_backward_enter");
    find(backward_leave, injection_, "paceline_backward_leave");
    find(optimizer_enter, injection_, "paceline_optimizer_enter");
    find(optimizer_leave, injection_, "paceline_optimizer_leave");
    find(ring_fd, injection_, "paceline_ring_fd");
    find(inject, injection_, "InitializeInjection");
    find(request, injection_, "paceline_window_request");
    find(pause, injection_, "paceline_window_pause");
    find(resume, injection_, "paceline_window_resume");
    find(report_into, injection_, "paceline_window_report");
    if (cupti == Cupti::kMissing) return;
    find(play_record, fake_, "fake_cupti_play");
    find(clock, fake_, "fake_cupti_clock");
    find(misdate, fake_, "fake_cupti_misdate");
    find(stop_clock, fake_, "fake_cupti_stop_clock");
    find(take, fake_, "fake_cupti_take");
    find(refuse, fake_, "fake_cupti_refuse");
    find(late, fake_, "fake_cupti_late");
    find(drop, fake_, "fake_cupti_drop");
    find(state_into, fake_, "fake_cupti_state");
  }

  /// The driver's first cuInit(), and the first training mark.
  void start() {
    if (inject() != 1 || open(nullptr) != PACELINE_OK) std::abort();
    step_ended(-1);  // begins the first step
  }

  /// One training step of at least this length. `launch` is what the program launches in it.
  void step(std::uint64_t length_ns, const std::function<void(std::uint64_t begin)>& launch = {}) {
    const std::uint64_t begin = monotonic_now();
    if (launch) launch(begin);
    while (monotonic_now() < begin + length_ns)
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // the program's own work
    step_ended(-1);
  }

  /// Trains until the condition holds, at most 20 s.
  bool train_until(const std::function<bool()>& condition, std::uint64_t length_ns,
                   const std::function<void(std::uint64_t begin)>& launch = {}) {
    const std::uint64_t until = monotonic_now() + 20'000 * kMs;
    while (!condition()) {
      if (monotonic_now() > until) {
        std::cerr << "the condition did not hold after 20 s; off: " << report().off << "\n";
        return false;
      }
      step(length_ns, launch);
    }
    return true;
  }

  void play(FakeCuptiWork work, std::uint64_t start, std::uint64_t end, const char* name = "gemm",
            std::uint64_t queued = 0, std::uint64_t bytes = 0) {
    const FakeCuptiRecord record{work, name, start, end, queued, bytes, work == kFakeMemcpy ? 1 : 0,
                                 0,    7};
    play_record(&record);
  }

  paceline_window_totals report() {
    paceline_window_totals found{};
    found.size = sizeof(found);
    report_into(&found);
    return found;
  }

  FakeCuptiState state() {
    FakeCuptiState found{};
    state_into(&found);
    return found;
  }

  std::vector<paceline_step_record> records(std::uint8_t kind) {
    constexpr std::size_t kBytes =
        PACELINE_HEADER_BYTES + std::size_t{PACELINE_RING_CAPACITY} * PACELINE_RECORD_BYTES;
    void* memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, ring_fd(), 0);
    if (memory == MAP_FAILED) std::abort();
    const auto* ring = static_cast<const std::byte*>(memory);
    const std::uint64_t end = write_index(ring);
    std::vector<paceline_step_record> found;
    for (std::uint64_t i = end > PACELINE_RING_CAPACITY ? end - PACELINE_RING_CAPACITY : 0; i < end;
         ++i) {
      const auto record = read_record(ring, PACELINE_RING_CAPACITY, i);
      if (record && record->kind == kind) found.push_back(*record);
    }
    ::munmap(memory, kBytes);
    return found;
  }

  std::vector<paceline_step_record> amendments() { return records(PACELINE_KIND_AMENDMENT); }

  std::optional<paceline_step_record> host_record(std::uint64_t step) {
    for (const paceline_step_record& record : records(PACELINE_KIND_STEP)) {
      if (record.step == step) return record;
    }
    return std::nullopt;
  }

  decltype(&paceline_open) open;
  decltype(&paceline_close) close;
  decltype(&paceline_step) step_ended;
  decltype(&paceline_loader_enter) loader_enter;
  decltype(&paceline_loader_leave) loader_leave;
  decltype(&paceline_backward_enter) backward_enter;
  decltype(&paceline_backward_leave) backward_leave;
  decltype(&paceline_optimizer_enter) optimizer_enter;
  decltype(&paceline_optimizer_leave) optimizer_leave;
  decltype(&paceline_ring_fd) ring_fd;
  int (*inject)();
  decltype(&paceline_window_request) request;
  decltype(&paceline_window_pause) pause;
  decltype(&paceline_window_resume) resume;
  int (*report_into)(struct paceline_window_totals*);
  decltype(&fake_cupti_play) play_record;
  decltype(&fake_cupti_clock) clock;
  decltype(&fake_cupti_misdate) misdate;
  decltype(&fake_cupti_stop_clock) stop_clock;
  decltype(&fake_cupti_take) take;
  decltype(&fake_cupti_refuse) refuse;
  decltype(&fake_cupti_late) late;
  decltype(&fake_cupti_drop) drop;
  decltype(&fake_cupti_state) state_into;

 private:
  static void* load(const char* path) {
    void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      std::cerr << ::dlerror() << "\n";
      std::abort();
    }
    return library;
  }

  // dlsym on a handle also looks in the libraries that it needs.
  template <typename Function>
  static void find(Function& function, void* library, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr) {
      std::cerr << "no " << name << "\n";
      std::abort();
    }
  }

  void* fake_ = nullptr;
  void* injection_ = nullptr;
};

}  // namespace paceline::check
