// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/slurm/place_flags.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "cli/convert/slurm/shell_words.hpp"
#include "cli/convert/started_by.hpp"

namespace paceline::cli {
namespace {

constexpr std::array<std::string_view, 9> kPlaceFlags{
    "--nnodes",      "--node_rank",   "--node-rank", "--master_addr", "--master-addr",
    "--master_port", "--master-port", "--rdzv",      "--max_restarts"};
/// Options that torchrun takes alone.
constexpr std::array<std::string_view, 7> kSwitches{"--standalone", "--no_python", "--no-python",
                                                    "--run_path",   "--run-path",  "--use_env",
                                                    "--use-env"};

bool starts_with_any(const std::string& word, const auto& list) {
  return std::ranges::any_of(list, [&](std::string_view start) { return word.starts_with(start); });
}

}  // namespace

std::string take_place_flags(std::string& command) {
  const std::vector<ShellWord> words = placed_words(command);
  std::size_t at = 1;
  if (!words.empty() && base_name(words.front().text).starts_with("python")) {
    while (at < words.size() && words[at].text != "-m") ++at;
    at += 2;  // behind the module
  }
  if (at >= words.size()) return "";
  std::string dropped;
  std::string kept = command.substr(0, words[at].begin);
  for (bool more = true; more && at < words.size() && words[at].text.starts_with('-');) {
    const std::string& flag = words[at].text;
    // What follows a module are arguments of the program.
    more = flag != "-m" && flag != "--module";
    const bool alone =
        !more || flag.contains('=') || at + 1 == words.size() || starts_with_any(flag, kSwitches);
    const std::size_t next = at + (alone ? 1 : 2);
    const std::size_t end = next < words.size() ? words[next].begin : command.size();
    if (starts_with_any(flag, kPlaceFlags)) {
      for (; at < next; ++at) dropped += (dropped.empty() ? "" : " ") + words[at].text;
    } else {
      kept += command.substr(words[at].begin, end - words[at].begin);
    }
    at = next;
  }
  if (at < words.size()) kept += command.substr(words[at].begin);
  command = std::move(kept);
  return dropped;
}

}  // namespace paceline::cli
