// SPDX-License-Identifier: Apache-2.0
// Who may measure when: one measurement at a time per node, be it asked or answered, and each peer
// again only after a while.
//
// Turns outlives its Turn. Thread-safe; a Turn belongs to one thread at a time. A refusal says when
// to come again.
#pragma once

#include <chrono>
#include <cstddef>
#include <expected>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/base/clock.hpp"

namespace paceline::agent {

struct TurnLimits {
  std::chrono::seconds after_success{600};
  /// A measurement that failed on the way.
  std::chrono::seconds after_failure{60};
  /// One that never began: nothing was sent.
  std::chrono::seconds after_nothing{5};
  std::size_t most_peers = 256;  // that are remembered; beyond, nobody new is let in
};

enum class TurnEnd { kSuccess, kFailure, kNothing };

class Turns;

/// Held while it is measured. Ends as a failure unless told otherwise.
class Turn {
 public:
  Turn(Turns& turns, std::string peer) : turns_(&turns), peer_(std::move(peer)) {}
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  void ends_as(TurnEnd end) { end_ = end; }

 private:
  Turns* turns_;
  std::string peer_;
  TurnEnd end_ = TurnEnd::kFailure;
};

struct ComeAgain {
  std::chrono::seconds in{};
  std::string why;
};

class Turns {
 public:
  explicit Turns(const Clock& clock, TurnLimits limits = {}) : clock_(clock), limits_(limits) {}

  std::expected<std::unique_ptr<Turn>, ComeAgain> begin(const std::string& peer);

 private:
  friend class Turn;
  void end(const std::string& peer, TurnEnd how);

  const Clock& clock_;
  const TurnLimits limits_;
  std::mutex mutex_;
  bool busy_ = false;
  std::map<std::string, SteadyTime> next_;
};

}  // namespace paceline::agent
