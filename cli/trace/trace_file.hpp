// SPDX-License-Identifier: Apache-2.0
// TraceFile: makes one trace of the lines that `paceline-launcher trace` prints
// (docs/designs/traces.md). It holds the compressed file of one rank at a time.
//
// The lines come from the job's pods: every field is checked, sizes are bounded, texts are made
// printable. Not thread-safe. Failure: an Error for the person; the file then does not exist. A
// rank whose part cannot be used is no failure, but named by `summary`.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/trace/gzip.hpp"
#include "cli/trace/timeline.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

struct TraceSummary {
  std::uint64_t first_step = 0;
  std::uint64_t steps = 0;
  int ranks = 0;
  int recorded = 0;                     // ranks whose profiler's events are in the file
  int with_steps = 0;                   // ranks with step records
  std::vector<std::string> problems{};  // a line for each rank that is missing
  double uncertainty_ms = 0;            // the largest of the clocks
};

class TraceFile {
 public:
  /// `say` gets lines about the progress.
  TraceFile(GzipFile file, std::function<void(const std::string&)> say)
      : file_(std::move(file)), say_(std::move(say)) {}

  Status take(std::string_view line);
  /// After the last line. Failure: the lines ended early, or nothing is in the trace.
  Status finish();
  const TraceSummary& summary() const { return summary_; }

 private:
  struct Rank {
    RankPlace place;
    std::string problem;
    std::int64_t uncertainty_ns = 0;
    std::int64_t first_step = 0;
    bool recorded = false;
    std::string packed{};
  };

  Status write(const nlohmann::json& event);
  Status take_plan(const nlohmann::json& line);
  Status take_rank(const nlohmann::json& line);
  Status take_piece(Rank& rank, const nlohmann::json& line);
  Status take_file(Rank& rank);
  nlohmann::json description() const;

  GzipFile file_;
  std::function<void(const std::string&)> say_;
  TraceSummary summary_;
  std::string job_;
  std::int64_t zero_unix_ns_ = 0;
  std::map<int, Rank> ranks_;
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace paceline::cli
