// SPDX-License-Identifier: Apache-2.0
// Splits torchrun's own options from the script and its arguments. Pure. Knows every option of
// PyTorch 1.13 to 2.14. An unknown option is an error: if Paceline guessed whether it takes a
// value, that value could be taken for the script.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::frameworks {

struct TorchrunCommand {
  // the name with inner dashes but no leading ones; the value is "" for switches
  std::vector<std::pair<std::string, std::string>> options;
  std::vector<std::string> rest;  // script or module and its arguments

  bool has(std::string_view name) const;
  std::optional<std::string> value(std::string_view name) const;
};

/// `arguments`: everything after `torchrun`.
Result<TorchrunCommand> parse_torchrun(std::span<const std::string> arguments);

}  // namespace paceline::frameworks
