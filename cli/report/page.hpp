// SPDX-License-Identifier: Apache-2.0
// `paceline report`: one HTML page about one job, to send to a colleague. It loads nothing, runs no
// script, and its policy forbids both. Pure.
#pragma once

#include <string>

#include "cli/watch/facts.hpp"
#include "common/base/clock.hpp"

namespace paceline::cli {

std::string report_page(const JobFacts& facts, WallTime now);

}  // namespace paceline::cli
