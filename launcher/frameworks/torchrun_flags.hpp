// SPDX-License-Identifier: Apache-2.0
// torchrun's own options, split from the script and its arguments. Pure. Knows every option of
// PyTorch 1.13 to 2.14; another one is an error, since a guess whether it takes a value could turn
// the value into the script.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::frameworks {

struct TorchrunCommand {
  // name with dashes, no leading ones; value "" for switches
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<std::string> rest;  // script or module and its arguments

  bool has(std::string_view name) const;
  std::optional<std::string> value(std::string_view name) const;
};

/// `arguments`: all after `torchrun`.
Result<TorchrunCommand> parse_torchrun(std::span<const std::string> arguments);

}  // namespace paceline::frameworks
