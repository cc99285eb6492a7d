// SPDX-License-Identifier: Apache-2.0
// Runs a program without input and reads what it prints. Blocks for at most `timeout`, and for no
// longer than `stop` allows; then the program is killed. Its output is bounded.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::cli {

struct ProgramEnd {
  int code = 0;  // 128 and more: killed by a signal
  std::string out;
  std::string err;
};

/// Fails if it cannot be started (kNotFound), is too slow (kTimeout), prints more than `most` bytes
/// (kExhausted), or `stop` was requested (kCancelled).
Result<ProgramEnd> run_program(const std::vector<std::string>& argv, std::size_t most,
                               std::chrono::milliseconds timeout, const std::stop_token& stop);

}  // namespace paceline::cli
