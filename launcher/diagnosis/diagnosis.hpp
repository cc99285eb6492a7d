// SPDX-License-Identifier: Apache-2.0
// Diagnosis: what is wrong with a running job, from the summaries of its ranks. It cuts time into
// windows and judges each. A finding appears when several windows in a row agree, and goes when as
// many disagree, because a false alarm costs more than a late one. A hang needs no window.
//
// No sockets, no clock: facts and the time come in, findings and news go out. Memory is bounded by
// the number of ranks. Not thread-safe. Nothing fails.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "common/telemetry/stats/summary.hpp"
#include "launcher/diagnosis/finding.hpp"
#include "launcher/diagnosis/hang.hpp"
#include "launcher/diagnosis/regression.hpp"
#include "launcher/diagnosis/window.hpp"

namespace paceline::diagnosis {

struct Settings {
  std::chrono::nanoseconds hang_after = std::chrono::minutes(5);  // 0: hangs are not looked for
  std::chrono::nanoseconds window = std::chrono::seconds(20);
};

/// The ranks' stacks, as their launchers captured them.
struct Stacks {
  const std::map<int, std::string>* of_rank = nullptr;  // of the caller: large, so not copied
  bool complete = false;                                // every launcher has answered
};

struct Facts {
  SteadyTime now{};
  WallTime wall{};
  bool running = false;  // the gang trains
  int attempt = 0;
  int world_size = 0;
  telemetry::JobSummary job = {};
  std::vector<std::string> nodes = {};  // by node rank
  std::map<int, int> node_of = {};      // rank → node rank, also of ranks without a summary
  Stacks stacks = {};
  WaitsFor waits_for = WaitsFor::kRanks;
  bool trial = false;  // steps are made slower or quicker on purpose now
};

struct News {
  std::vector<Finding> appeared = {};
  std::vector<Finding> gone = {};
  bool capture_stacks = false;  // the caller is to ask all launchers for them
  bool open_window = false;     // the same of kernel windows: GPUs have become slower
};

class Diagnosis {
 public:
  /// So many windows in a row must agree.
  static constexpr int kWindows = 3;

  explicit Diagnosis(Settings settings) : settings_(settings) {}

  /// Call about once a second.
  News update(const Facts& facts);
  /// The most serious first.
  Findings findings() const;

 private:
  struct Tracked {
    Finding finding;
    int hits = 0;
    int misses = 0;
    bool shown = false;
  };

  void begin_attempt(const Facts& facts);
  void look_for_hang(const Facts& facts, News& news);
  void set_hang(std::optional<Finding> finding, const Facts& facts, News& news);
  void look_at_window(const Facts& facts, News& news);
  bool goes_on(const Facts& facts) const;
  std::optional<Windows> windows_until(const Facts& facts) const;
  Findings found_in(const Windows& windows, const Facts& facts);
  void take(Findings found, const Facts& facts, News& news);
  std::vector<RankAt> ranks_at(const Facts& facts) const;

  const Settings settings_;
  int attempt_ = -1;
  int world_size_ = 0;
  std::optional<Finding> hang_;
  std::optional<SteadyTime> updated_at_;
  std::optional<SteadyTime> paused_until_;  // the end of the last pause of the caller
  std::optional<SteadyTime> stacks_asked_;
  bool asked_again_ = false;  // also after the long patience
  // the summaries at the beginning of the window
  std::map<int, telemetry::RankSummary> before_;
  SteadyTime before_at_{};
  SteadyTime judged_at_{};  // when a window was complete, or was given up
  bool trial_ = false;      // of the window
  Regression regression_;
  std::vector<Tracked> tracked_;
};

}  // namespace paceline::diagnosis
