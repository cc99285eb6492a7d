// SPDX-License-Identifier: Apache-2.0
// Events of a trace of the Chrome JSON format, which ui.perfetto.dev and chrome://tracing open.
// One rank's part: the steps of its ring as tracks, and the events that PyTorch's profiler wrote,
// moved to the common clock and named by rank and node. Pure, apart from the writer handed in.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"

namespace paceline::cli {

using EventSink = std::function<Status(const nlohmann::json& event)>;

/// What is the same for all events of a rank.
struct RankPlace {
  int rank = 0;
  std::string node;                     // "": unknown
  std::int64_t zero_unix_ns = 0;        // the time that the trace calls 0, by the common clock
  std::int64_t clock_offset_ns = 0;     // this rank's wall clock less the common one
  std::int64_t profiler_step_zero = 0;  // the step that the profiler calls ProfilerStep#0
};

/// "rank 3 on node-a"
std::string name_of(const RankPlace& place);

/// A track with the steps, and below each its phases, for the host and for the device where it was
/// measured. A record knows how long each phase took in sum, not in which order; they are drawn in
/// the usual order. `problem` says why the profiler recorded nothing; "": it did, or was not asked.
std::vector<nlohmann::json> step_events(const RankPlace& place, const nlohmann::json& steps,
                                        const std::string& problem);

/// Moves the events of one file of PyTorch's profiler. Its names of processes, threads and flows
/// count within one file only, so they get numbers of their own.
class ProfilerEvents {
 public:
  /// `base_ns`: what the file adds to its times to get wall time.
  ProfilerEvents(RankPlace place, std::int64_t base_ns);
  Status add(nlohmann::json event, const EventSink& sink);

 private:
  struct Process {
    int number = 0;
    std::string name{};                      // as the file numbers it
    bool shown = false;                      // an event other than metadata was seen
    std::vector<nlohmann::json> metadata{};  // waits for the first such event
    std::map<std::string, int> threads{};    // named by texts
  };
  Process& process_of(const nlohmann::json& pid);
  Status show(Process& process, const EventSink& sink);
  Status number_thread(Process& process, nlohmann::json& event, const EventSink& sink);
  void move(nlohmann::json& event) const;

  RankPlace place_;
  double shift_us_;
  std::map<std::string, Process> processes_;
};

}  // namespace paceline::cli
