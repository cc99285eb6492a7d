// SPDX-License-Identifier: Apache-2.0
// StackCapture: asks the ranks of this replica where they are. Python processes write their stacks;
// what the kernel knows of the threads is added, also for a process that does not answer.
//
// Borrows the event loop, on whose thread all is called, and the log, which gets the stacks too. It
// waits for the answers by a timer.
// Bounded: stack_room() bytes a rank. Nothing fails: the text says what could not be had.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "launcher/log.hpp"
#include "launcher/rendezvous/frame.hpp"
#include "launcher/rendezvous/json_forms.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::launcher {

/// Bytes for the text of each rank, so that one frame holds those of all ranks of a replica, at
/// most kMostReportedRanks. Half of a frame is left for what JSON escapes.
constexpr std::size_t stack_room(std::size_t ranks) {
  return std::min(rendezvous::kMostStack,
                  rendezvous::kMemberLimit / 2 / std::max<std::size_t>(ranks, 1));
}

class StackCapture {
 public:
  using Done = std::function<void(std::vector<rendezvous::RankStack>)>;

  StackCapture(boost::asio::io_context& io, Log& log) : timer_(io), log_(log) {}

  /// `started`: the process that was started for each rank. `claimed`: the process that each rank
  /// says it is, which counts only if it descends from this launcher. A capture that runs is
  /// replaced.
  void begin(const std::map<int, pid_t>& started, const std::map<int, std::uint32_t>& claimed,
             Done done);
  void cancel() { timer_.cancel(); }
  /// By rank, of the last capture.
  const std::map<int, std::string>& stacks() const { return stacks_; }

 private:
  // Of the first ranks, so that the log is not buried.
  void log(const std::vector<rendezvous::RankStack>& captured);

  boost::asio::steady_timer timer_;
  Log& log_;
  std::map<int, std::string> stacks_;
};

}  // namespace paceline::launcher
