// SPDX-License-Identifier: Apache-2.0
// FAKE_RULES tells a fake driver library which calls fail. It is a list of "CALL WHO WHAT",
// separated by semicolons. WHO is a device or *. WHAT is an errno or code, `hang`, or `die`
// (SIGKILL, as the kernel would end the process). For single-threaded processes.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>

namespace paceline::agent::fake {

/// The code with which this call fails; 0 if it succeeds.
inline int rule(const std::string& call, const std::string& who) {
  const char* all = std::getenv("FAKE_RULES");
  std::istringstream rules(all == nullptr ? "" : all);
  for (std::string entry; std::getline(rules, entry, ';');) {
    std::istringstream words(entry);
    std::string name;
    std::string whose;
    std::string what;
    words >> name >> whose >> what;
    if (name != call || (whose != "*" && whose != who)) continue;
    if (what == "die") ::kill(::getpid(), SIGKILL);
    while (what == "hang") ::pause();
    return std::atoi(what.c_str());
  }
  return 0;
}

}  // namespace paceline::agent::fake
