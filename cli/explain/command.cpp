// SPDX-License-Identifier: Apache-2.0
#include "cli/explain/command.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "cli/error_text.hpp"
#include "cli/explain/sentences.hpp"
#include "cli/watch/document.hpp"
#include "cli/watch/text.hpp"

namespace paceline::cli {
namespace {

constexpr std::size_t kReadable = 100;  // longer lines are hard to read

std::size_t reading_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20
             ? std::min<std::size_t>(size.ws_col, kReadable)
             : kReadable;
}

}  // namespace

void print_explanation(const Detail& detail, bool as_json, std::size_t width, WallTime now,
                       std::ostream& out, std::ostream& err) {
  const std::vector<Section> sections = explain(read_facts(detail.document), now);
  if (as_json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Section& section : sections)
      list.push_back({{"title", section.title}, {"sentences", section.sentences}});
    out << dump({{"version", 1}, {"job", detail.document}, {"sections", std::move(list)}});
  } else {
    out << sections_text(sections, width);
  }
  if (!detail.gap.empty()) err << "paceline explain: " << clean(detail.gap) << "\n";
}

int explain_command(const ExplainOptions& options) {
  constexpr int kExitInput = 2;
  const SystemClock clock;
  const auto detail = look_at(options.look, clock);
  if (!detail) {
    std::cerr << "paceline explain: " << clean(error_text(detail.error())) << "\n";
    return kExitInput;
  }
  print_explanation(*detail, options.output == "json", reading_width(), clock.wall(), std::cout,
                    std::cerr);
  return 0;
}

}  // namespace paceline::cli
