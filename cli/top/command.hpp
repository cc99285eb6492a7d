// SPDX-License-Identifier: Apache-2.0
// `paceline top`: all jobs of a cluster or of this machine. On a terminal a screen that follows
// them; else, and with --once, one list.
#pragma once

#include <ostream>
#include <string>

#include "cli/watch/source.hpp"

namespace paceline::cli {

struct TopOptions {
  std::string kubeconfig{};
  std::string ns{};
  bool all_namespaces = false;
  bool local = false;
  bool once = false;
  std::string output{};  // "", "json"
};

/// Prints one list of the source's jobs. 0, or 2 if they could not be read within half a minute.
int print_top(const JobSource& source, const std::string& where, bool as_json, std::size_t width,
              const Clock& clock, std::ostream& out, std::ostream& err);

/// 0 after q; 128 and the signal that ended it.
int top_command(const TopOptions& options);

}  // namespace paceline::cli
