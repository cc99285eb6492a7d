// SPDX-License-Identifier: Apache-2.0
// Splits what a launcher is given into its options and what it starts. Pure. An Error names the
// launcher and the option.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::frameworks {

struct WrittenOption {
  std::string written;  // as in the command, without its value
  std::string name;     // without leading dashes, '-' written as '_'
  std::string value;
};

struct SplitArguments {
  std::vector<WrittenOption> options;
  std::vector<std::string> rest;  // what is started, and its arguments
};

/// Whether the option of that name takes a value; nullopt if the launcher has no such option.
using TakesValue = std::function<std::optional<bool>(const std::string& name)>;

Result<SplitArguments> split_arguments(std::string_view launcher,
                                       std::span<const std::string> arguments,
                                       const TakesValue& takes_value);

}  // namespace paceline::frameworks
