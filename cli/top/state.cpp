// SPDX-License-Identifier: Apache-2.0
#include "cli/top/state.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>
#include <tuple>

namespace paceline::cli {
namespace {

constexpr std::size_t kMostFilter = 64;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool passes(const JobFacts& facts, const std::vector<std::string>& words) {
  if (words.empty()) return true;
  std::string text =
      facts.name_space + "/" + facts.name + " " + facts.phase + " " + facts.bottleneck;
  for (const Finding& finding : facts.findings) text += " " + finding.kind + " " + finding.text;
  text = lower(text);
  return std::ranges::all_of(words, [&](const std::string& word) { return text.contains(word); });
}

/// Larger comes first; equal jobs are in the order of their names.
double weight(const JobFacts& facts, Sort sort) {
  switch (sort) {
    case Sort::kName: return 0;
    case Sort::kStepTime: return facts.p50;
    case Sort::kRate: return facts.samples_per_second;
    // The least first; jobs without it last.
    case Sort::kGoodput: return facts.goodput ? 1 - facts.goodput->ratio : -1;
    case Sort::kFindings: return static_cast<double>(facts.findings.size());
  }
  return 0;
}

void move(std::size_t& row, std::size_t count, std::ptrdiff_t by) {
  const auto last = static_cast<std::ptrdiff_t>(count) - 1;
  row = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(row) + by,
                                                            0, std::max<std::ptrdiff_t>(last, 0)));
}

std::optional<std::ptrdiff_t> distance_of(Key key, std::size_t rows) {
  const auto page = static_cast<std::ptrdiff_t>(std::max<std::size_t>(rows, 2)) - 1;
  constexpr std::ptrdiff_t kFar = 1 << 30;
  switch (key) {
    case Key::kUp: return -1;
    case Key::kDown: return 1;
    case Key::kPageUp: return -page;
    case Key::kPageDown: return page;
    case Key::kHome: return -kFar;
    case Key::kEnd: return kFar;
    default: return std::nullopt;
  }
}

/// The first row on the screen, so that `row` is on it.
std::size_t scrolled(std::size_t first, std::size_t row, std::size_t count, std::size_t rows) {
  if (rows == 0) return row;
  const std::size_t least = row + 1 > rows ? row + 1 - rows : 0;
  const std::size_t most = count > rows ? count - rows : 0;
  return std::min(std::clamp(first, least, row), std::max(most, least));
}

void choose(TopState& state, const JobList& jobs) {
  if (state.row >= jobs.size()) return;
  state.ns = jobs[state.row]->meta.ns;
  state.name = jobs[state.row]->meta.name;
}

void type(TopState& state, const KeyPress& key) {
  if (key.key == Key::kEnter) {
    state.typing = false;
  } else if (key.key == Key::kEscape) {
    state.typing = false;
    state.filter.clear();
  } else if (key.key == Key::kBackspace) {
    // All bytes of the last character.
    while (!state.filter.empty() &&
           (static_cast<unsigned char>(state.filter.back()) & 0xC0U) == 0x80U)
      state.filter.pop_back();
    if (!state.filter.empty()) state.filter.pop_back();
  } else if (key.key == Key::kCharacter && state.filter.size() < kMostFilter) {
    state.filter += key.text;
  }
}

void back(TopState& state) {
  if (state.level == Level::kRank) {
    state.level = Level::kJob;
  } else if (state.level != Level::kJobs) {
    state.level = Level::kJobs;
  } else {
    state.filter.clear();
  }
}

void deeper(TopState& state, std::size_t jobs, std::size_t ranks) {
  if (state.level == Level::kJobs && jobs > 0) {
    state.level = Level::kJob;
    state.rank = state.first_rank = 0;
  } else if (state.level == Level::kJob && ranks > 0) {
    state.level = Level::kRank;
  } else if (state.level == Level::kHelp) {
    state.level = Level::kJobs;
  }
}

constexpr std::array<std::pair<std::string_view, Key>, 16> kSequences{{{"[A", Key::kUp},
                                                                       {"[B", Key::kDown},
                                                                       {"OA", Key::kUp},
                                                                       {"OB", Key::kDown},
                                                                       {"[5~", Key::kPageUp},
                                                                       {"[6~", Key::kPageDown},
                                                                       {"[H", Key::kHome},
                                                                       {"[F", Key::kEnd},
                                                                       {"OH", Key::kHome},
                                                                       {"OF", Key::kEnd},
                                                                       {"[1~", Key::kHome},
                                                                       {"[4~", Key::kEnd},
                                                                       {"[7~", Key::kHome},
                                                                       {"[8~", Key::kEnd},
                                                                       {"[C", Key::kEnter},
                                                                       {"[D", Key::kEscape}}};

/// Whether a text behind ESC is a whole sequence: its length, 0 if it is not finished.
std::size_t sequence_length(std::string_view text) {
  if (text.empty()) return 0;
  if (text[0] != '[' && text[0] != 'O') return 1;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] >= 0x40 && text[i] <= 0x7E) return i + 1;
  }
  return 0;
}

}  // namespace

std::string_view to_string(Sort sort) {
  switch (sort) {
    case Sort::kName: return "name";
    case Sort::kStepTime: return "step time";
    case Sort::kRate: return "samples/s";
    case Sort::kGoodput: return "goodput";
    case Sort::kFindings: return "findings";
  }
  return "";
}

std::vector<KeyPress> take_keys(std::string& bytes, bool all) {
  std::vector<KeyPress> keys;
  while (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes.front());
    std::size_t used = 1;
    if (first == 0x1B) {
      const std::string_view rest = std::string_view(bytes).substr(1);
      const std::size_t length = sequence_length(rest);
      if (length == 0 && !all && rest.size() < 16) break;
      const auto* const known = std::ranges::find(kSequences, rest.substr(0, length),
                                                  &std::pair<std::string_view, Key>::first);
      // ESC and a letter are two keys; a sequence that is not known is none.
      const bool sequence = length > 1;
      if (known != kSequences.end()) {
        keys.push_back({known->second});
      } else if (!sequence) {
        keys.push_back({Key::kEscape});
      }
      used = sequence ? 1 + length : 1;
    } else if (first == '\r' || first == '\n') {
      keys.push_back({Key::kEnter});
    } else if (first == 0x7F || first == 0x08) {
      keys.push_back({Key::kBackspace});
    } else if (first >= 0x20 && first < 0x80) {
      keys.push_back({Key::kCharacter, bytes.substr(0, 1)});
    } else if (first >= 0xC2 && first <= 0xF4) {
      used = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
      if (bytes.size() < used && !all) break;
      keys.push_back({Key::kCharacter, bytes.substr(0, used)});
    }
    bytes.erase(0, used);
  }
  return keys;
}

JobList arrange(JobList jobs, Sort sort, const std::string& filter) {
  std::vector<std::string> words;
  std::istringstream text(lower(filter));
  for (std::string word; text >> word;) words.push_back(word);
  std::erase_if(jobs, [&](const auto& entry) { return !passes(entry->facts, words); });
  std::ranges::sort(jobs, [&](const auto& a, const auto& b) {
    const double first = weight(a->facts, sort);
    const double second = weight(b->facts, sort);
    if (first != second) return first > second;
    return std::tie(a->meta.ns, a->meta.name) < std::tie(b->meta.ns, b->meta.name);
  });
  return jobs;
}

void settle(TopState& state, const JobList& jobs, std::size_t ranks, std::size_t rows) {
  const auto found = std::ranges::find_if(jobs, [&](const auto& entry) {
    return entry->meta.ns == state.ns && entry->meta.name == state.name;
  });
  if (found != jobs.end()) {
    state.row = static_cast<std::size_t>(found - jobs.begin());
  } else {
    state.row = std::min(state.row, jobs.empty() ? 0 : jobs.size() - 1);
    // A job that is looked at stays chosen, so that the screen can say that it is gone.
    if (state.level == Level::kJobs) choose(state, jobs);
  }
  state.first = scrolled(state.first, state.row, jobs.size(), rows);
  state.rank = std::min(state.rank, ranks == 0 ? 0 : ranks - 1);
  state.first_rank = scrolled(state.first_rank, state.rank, ranks, rows);
}

void press(TopState& state, const KeyPress& key, const JobList& jobs, std::size_t ranks,
           std::size_t rows) {
  if (state.typing) return type(state, key);
  if (const auto by = distance_of(key.key, rows)) {
    if (state.level == Level::kJobs) {
      move(state.row, jobs.size(), *by);
      choose(state, jobs);
    } else {
      move(state.rank, ranks, *by);
    }
    return;
  }
  if (key.key == Key::kEnter) return deeper(state, jobs.size(), ranks);
  if (key.key == Key::kEscape || key.key == Key::kBackspace) return back(state);
  if (key.text == "q") state.quit = true;
  if (key.text == "?") state.level = state.level == Level::kHelp ? Level::kJobs : Level::kHelp;
  if (key.text == "/") {
    state.level = Level::kJobs;
    state.typing = true;
  }
  if (key.text == "j" || key.text == "k")
    return press(state, {key.text == "j" ? Key::kDown : Key::kUp}, jobs, ranks, rows);
  constexpr std::array<std::pair<std::string_view, Sort>, 5> kSorts{{{"n", Sort::kName},
                                                                     {"t", Sort::kStepTime},
                                                                     {"s", Sort::kRate},
                                                                     {"g", Sort::kGoodput},
                                                                     {"f", Sort::kFindings}}};
  for (const auto& [letter, sort] : kSorts) {
    if (key.text == letter) state.sort = sort;
  }
}

}  // namespace paceline::cli
