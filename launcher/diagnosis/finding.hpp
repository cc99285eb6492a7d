// SPDX-License-Identifier: Apache-2.0
// What the diagnosis has found about a job: one sentence that says what is wrong and where, and one
// that says what to do. Values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.hpp"

namespace paceline::diagnosis {

/// The most serious first.
enum class Kind { kFailure, kHang, kMismatch, kStraggler, kRegression, kProcessor, kBottleneck };
std::string_view to_string(Kind kind);

/// What a rank waits for in its communication. With parameter servers the workers do not wait for
/// each other.
enum class WaitsFor { kRanks, kServers };

/// How much quicker steps may get: time now over time then, less 1.
struct GainRange {
  double low = 0;
  double high = 0;
};

struct Finding {
  Kind kind = Kind::kHang;
  std::optional<int> rank = {};
  std::string node = {};     // of that rank
  std::string subject = {};  // tells findings of one kind apart, beside the rank
  std::optional<WallTime> since = {};
  std::string text = {};
  std::string advice = {};
  std::optional<GainRange> gain = {};
  bool certain = true;  // of a hang: the program cannot merely be at work

  /// Whether both are about the same thing, so that one is the news of the other.
  bool is_about(const Finding& other) const {
    return kind == other.kind && rank == other.rank && subject == other.subject;
  }
};
using Findings = std::vector<Finding>;

/// A share of a step that could be hidden or saved: at most so much is gained.
GainRange at_most(double share);

/// "84.1 ms", "1.52 s", for people.
std::string shown_seconds(double seconds);
/// 0.314: "31 %".
std::string shown_share(double share);
/// "rank 3 on node-b"; the node is left out if it is unknown.
std::string shown_rank(int rank, const std::string& node);

}  // namespace paceline::diagnosis
