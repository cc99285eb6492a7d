// SPDX-License-Identifier: Apache-2.0
#include "common/command/torchrun_flags.hpp"

#include <algorithm>
#include <array>

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
  TorchrunCommand command;
  std::size_t at = 0;
  for (; at < arguments.size(); ++at) {
    const std::string& argument = arguments[at];
    if (argument == "--") {
      ++at;
      break;
    }
    if (argument.size() < 2 || argument.front() != '-') break;
    const std::size_t dashes = argument.starts_with("--") ? 2 : 1;
    const std::size_t equals = argument.find('=');
    const std::string name = canonical(std::string_view(argument).substr(
        dashes, equals == std::string::npos ? std::string::npos : equals - dashes));
    if (std::find(kSwitches.begin(), kSwitches.end(), name) != kSwitches.end()) {
      command.options.emplace_back(name, "");
      continue;
    }
    if (std::find(kWithValue.begin(), kWithValue.end(), name) == kWithValue.end()) {
      return fail(Code::kInvalid, Origin::kConfig,
                  "torchrun option " + argument +
                      " is not known to Paceline; remove it, start the script itself (python "
                      "script.py), or set "
                      "spec.framework.launcher: Passthrough");
    }
    if (equals != std::string::npos) {
      command.options.emplace_back(name, argument.substr(equals + 1));
    } else if (at + 1 < arguments.size()) {
      command.options.emplace_back(name, arguments[++at]);
    } else {
      return fail(Code::kInvalid, Origin::kConfig, "torchrun option " + argument + " has no value");
    }
  }
  command.rest.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  return command;
}

}  // namespace paceline::frameworks
