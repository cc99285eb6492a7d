// SPDX-License-Identifier: Apache-2.0
// The screens of `paceline top`: all jobs, one job, one rank, help. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/top/line.hpp"
#include "cli/top/state.hpp"
#include "cli/watch/source.hpp"

namespace paceline::cli {

struct Size {
  std::size_t width = 80;
  std::size_t height = 24;
};

/// What is known of the job that is looked at.
struct Looked {
  JobFacts facts;
  std::string gap;        // why it is not more; "" if nothing lacks
  bool answered = false;  // false: it was not asked yet, and `facts` are the list's
};

struct TopView {
  std::string where;      // "namespace ml", "all namespaces", "this machine"
  JobList jobs;           // arranged
  std::size_t total = 0;  // without the filter
  SourceHealth health;
  Looked looked;
};

/// The rows of the list that fit, between head and foot.
std::size_t rows_of(const TopState& state, Size size);

/// At most `size.height` lines. `state` is settled.
std::vector<Line> frame(const TopState& state, const TopView& view, Size size, WallTime now);

/// All jobs without a screen: the head, a line for each, and its first finding below it.
std::vector<Line> listing(const TopView& view, std::size_t width, WallTime now);

}  // namespace paceline::cli
