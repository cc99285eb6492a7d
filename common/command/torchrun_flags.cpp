// SPDX-License-Identifier: Apache-2.0
#include "common/command/torchrun_flags.hpp"

#include <algorithm>
#include <array>

#include "common/command/options.hpp"

namespace paceline::frameworks {
namespace {

constexpr std::array<std::string_view, 26> kWithValue{"nnodes",
                                                      "nproc-per-node",
                                                      "rdzv-backend",
                                                      "rdzv-endpoint",
                                                      "rdzv-id",
                                                      "rdzv-conf",
                                                      "max-restarts",
                                                      "monitor-interval",
                                                      "start-method",
                                                      "event-log-handler",
                                                      "role",
                                                      "log-dir",
                                                      "redirects",
                                                      "tee",
                                                      "local-ranks-filter",
                                                      "node-rank",
                                                      "master-addr",
                                                      "master-port",
                                                      "local-addr",
                                                      "logs-specs",
                                                      "numa-binding",
                                                      "signals-to-handle",
                                                      "shutdown-timeout",
                                                      "duplicate-stdout-filters",
                                                      "duplicate-stderr-filters",
                                                      "exit-barrier-timeout"};
constexpr std::array<std::string_view, 7> kSwitches{
    "standalone", "module", "no-python", "run-path", "use-env", "virtual-local-rank", "help"};

std::string canonical(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  if (result == "m") return "module";
  if (result == "r") return "redirects";
  if (result == "t") return "tee";
  if (result == "h") return "help";
  return result;
}

}  // namespace

bool TorchrunCommand::has(std::string_view name) const {
  return std::any_of(options.begin(), options.end(),
                     [&](const auto& option) { return option.first == name; });
}

std::optional<std::string> TorchrunCommand::value(std::string_view name) const {
  for (auto option = options.rbegin(); option != options.rend(); ++option) {
    if (option->first == name) return option->second;  // like argparse: the last one counts
  }
  return std::nullopt;
}

Result<TorchrunCommand> parse_torchrun(std::span<const std::string> arguments) {
  auto split =
      split_arguments("torchrun", arguments, [](const std::string& written) -> std::optional<bool> {
        const std::string name = canonical(written);
        if (std::ranges::find(kSwitches, name) != kSwitches.end()) return false;
        if (std::ranges::find(kWithValue, name) != kWithValue.end()) return true;
        return std::nullopt;
      });
  if (!split) return std::unexpected(split.error());
  TorchrunCommand command{{}, std::move(split->rest)};
  for (const WrittenOption& option : split->options) {
    const std::string name = canonical(option.name);
    const bool is_switch = std::ranges::find(kSwitches, name) != kSwitches.end();
    command.options.emplace_back(name, is_switch ? "" : option.value);
  }
  return command;
}

}  // namespace paceline::frameworks
