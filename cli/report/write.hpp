// SPDX-License-Identifier: Apache-2.0
// Writes the report of a job into a file, whose name says what it is: a page (.html) or the
// document (.json). Failure is an Error that names the file.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

/// kInvalid for another name.
Status check_report_name(const std::string& path);

/// The file appears whole or not at all.
Status write_report(const std::string& path, const nlohmann::json& document, WallTime now);

}  // namespace paceline::cli
