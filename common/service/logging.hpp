// SPDX-License-Identifier: Apache-2.0
// How a long-lived program writes its log: --log-format and --log-level.
//
// Text is for people. JSON is for collectors of logs, an object a line:
//   {"time":"2026-01-02T03:04:05.000006Z","level":"warning","object":"team/llm","message":"…"}
// `object` names what the line is about, if it is about one object (log_about in
// common/base/log.hpp). Bytes that are not UTF-8 become U+FFFD. Call before threads start.
#pragma once

#include "common/base/log.hpp"

#include <memory>

#include <CLI/CLI.hpp>

namespace paceline {

/// Adds both options; they act while the command line is parsed. A wrong value is CLI11's error,
/// which names the values that are known.
void add_log_options(CLI::App& app);

/// What --log-format=json sets.
std::unique_ptr<spdlog::formatter> json_lines();

}  // namespace paceline
