// SPDX-License-Identifier: Apache-2.0
// How tests tell a library that they put in place of a driver's which calls fail: FAKE_RULES is
// "CALL WHO WHAT" by semicolons, WHAT an errno or code, `hang`, or `die` (SIGKILL, as the kernel
// ends a process); WHO may be *. For single-threaded processes.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>

namespace paceline::agent::fake {

/// The code with which this call fails; 0 when it does not.
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
