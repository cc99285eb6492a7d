// SPDX-License-Identifier: Apache-2.0
// What `paceline top` shows at the moment, and what keys change. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/watch/source.hpp"

namespace paceline::cli {

enum class Key {
  kUp,
  kDown,
  kPageUp,
  kPageDown,
  kHome,
  kEnd,
  kEnter,
  kEscape,
  kBackspace,
  kCharacter,
};

struct KeyPress {
  Key key = Key::kCharacter;
  std::string text{};  // of kCharacter: one character of UTF-8
  bool operator==(const KeyPress&) const = default;
};

/// Takes the keys out of what a terminal has sent. An unfinished sequence stays in `bytes` unless
/// `all`; then it counts as Escape.
std::vector<KeyPress> take_keys(std::string& bytes, bool all);

enum class Sort { kName, kStepTime, kRate, kGoodput, kFindings };
std::string_view to_string(Sort sort);

enum class Level { kJobs, kJob, kRank, kHelp };

struct TopState {
  Level level = Level::kJobs;
  Sort sort = Sort::kName;
  std::string filter;
  bool typing = false;  // the filter
  std::string ns;       // of the chosen job
  std::string name;
  std::size_t row = 0;    // of the chosen job in the list
  std::size_t first = 0;  // the first row on the screen
  std::size_t rank = 0;   // the chosen row of the ranks
  std::size_t first_rank = 0;
  bool quit = false;
};

/// The jobs that the filter lets through, in order. A filter is words, each of which must occur in
/// namespace, name, phase, bottleneck or a finding, in any case.
JobList arrange(JobList jobs, Sort sort, const std::string& filter);

/// Keeps the chosen job chosen wherever it has moved in the list, and on the screen of `rows` rows.
void settle(TopState& state, const JobList& jobs, std::size_t ranks, std::size_t rows);

void press(TopState& state, const KeyPress& key, const JobList& jobs, std::size_t ranks,
           std::size_t rows);

}  // namespace paceline::cli
