// SPDX-License-Identifier: Apache-2.0
// Asks an agent to measure the link from its node to another, and prints the result, as `paceline
// measure` and `paceline-agent measure` do. Returns the exit code: 0 if measured, otherwise 2
// (printed on `err`; if it was too early, with the time to try again).
#pragma once

#include <ostream>
#include <string>

#include "common/http/transport.hpp"

namespace paceline::agent {

struct AskOptions {
  std::string node{};  // that measures, for messages
  std::string peer{};
  bool json = false;
};

/// `transport` leads to the agent, which takes the token.
int ask_to_measure(http::HttpTransport& transport, const std::string& token,
                   const AskOptions& options, std::ostream& out, std::ostream& err);

}  // namespace paceline::agent
