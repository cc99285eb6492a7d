// SPDX-License-Identifier: Apache-2.0
// The command-line arguments of the commands about jobs. Each function adds its command to `app`,
// which fills in `options` when it parses.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/explain/command.hpp"
#include "cli/report/command.hpp"
#include "cli/top/command.hpp"
#include "cli/trace/command.hpp"

namespace paceline::cli {

CLI::App* add_top(CLI::App& app, TopOptions& options);
CLI::App* add_explain(CLI::App& app, ExplainOptions& options);
CLI::App* add_report(CLI::App& app, ReportOptions& options);
CLI::App* add_trace(CLI::App& app, TraceOptions& options);

}  // namespace paceline::cli
