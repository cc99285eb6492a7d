// SPDX-License-Identifier: Apache-2.0
// The columns of the list of jobs and of the list of ranks, for a width. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "cli/top/line.hpp"
#include "cli/watch/facts.hpp"

namespace paceline::cli {

struct JobColumns {
  std::size_t name = 0;
  std::size_t bar = 0;
  bool wide = false;  // goodput and MFU too
};

/// `name` is the longest of the names.
JobColumns job_columns(std::size_t width, std::size_t name);
Line job_head(const JobColumns& columns);
Line job_row(const JobFacts& facts, const std::string& name, const JobColumns& columns);

Line rank_head(std::size_t width);
Line rank_row(const RankFact& rank, bool slowest, std::size_t width);

/// The letters of the phases that take part in `shares`, with their names.
Line legend_line(const telemetry::PhaseSeconds& shares);

}  // namespace paceline::cli
