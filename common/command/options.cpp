// SPDX-License-Identifier: Apache-2.0
#include "common/command/options.hpp"

#include <algorithm>
#include <utility>

#include "common/command/words.hpp"

namespace paceline::frameworks {

Result<SplitArguments> split_arguments(std::string_view launcher,
                                       std::span<const std::string> arguments,
                                       const TakesValue& takes_value) {
  SplitArguments split;
  std::size_t at = 0;
  for (; at < arguments.size(); ++at) {
    const std::string& argument = arguments[at];
    if (argument == "--") {
      ++at;
      break;
    }
    if (argument.size() < 2 || argument.front() != '-') break;
    const std::size_t equals = argument.find('=');
    WrittenOption option{argument.substr(0, equals), "", ""};
    option.name = option.written.substr(argument.starts_with("--") ? 2 : 1);
    std::ranges::replace(option.name, '-', '_');
    const std::string of = std::string(launcher) + " option " + option.written;
    const auto valued = takes_value(option.name);
    if (!valued) {
      return contradiction(of +
                           " is not known to Paceline; remove it, start the script itself (python "
                           "script.py), " +
                           std::string(kPassthroughRemedy));
    }
    if (equals != std::string::npos) {
      option.value = argument.substr(equals + 1);
    } else if (*valued) {
      if (++at == arguments.size()) return contradiction(of + " has no value");
      option.value = arguments[at];
    }
    split.options.push_back(std::move(option));
  }
  split.rest.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  return split;
}

}  // namespace paceline::frameworks
