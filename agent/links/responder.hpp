// SPDX-License-Identifier: Apache-2.0
// The answering end of a measurement. It listens only while a ticket is valid: from `offer` until
// the first connection that showed it has ended, or for 5 s if none does. Meanwhile it holds at
// most eight connections until each has sent 32 bytes, and closes those that do not send the
// ticket. It serves the first one and at most kFlows more. LinkService owns one.
//
// Owns its thread and joins it in the destructor; borrows the clock. `offer` may be called from any
// thread; it takes the node's permit, so there is only one measurement. Fails if the address cannot
// be bound.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "agent/links/data_connection.hpp"
#include "agent/links/rate_limiter.hpp"
#include "common/base/clock.hpp"
#include "common/base/error.hpp"

namespace paceline::agent {

struct ResponderOptions {
  std::string address = "0.0.0.0";
  std::uint16_t port = 0;  // 0: the kernel chooses a port for each ticket
  std::chrono::milliseconds ticket_life{5000};
  /// The prober's time limit, and a margin for delay and clocks.
  std::chrono::milliseconds patience = kMaxLinkTime + std::chrono::milliseconds(1000);
};

struct Ticket {
  TicketBytes bytes{};
  std::uint16_t port = 0;
};

class Responder {
 public:
  Responder(const Clock& clock, ResponderOptions options)
      : clock_(clock), options_(std::move(options)) {}

  Result<Ticket> offer(std::unique_ptr<Permit> permit);

 private:
  void answer(const UniqueFd& listener, const TicketBytes& ticket, Permit& permit,
              const std::stop_token& stop) const;

  const Clock& clock_;
  const ResponderOptions options_;
  std::mutex mutex_;
  std::jthread worker_;
};

}  // namespace paceline::agent
