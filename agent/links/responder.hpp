// SPDX-License-Identifier: Apache-2.0
// The answering end of a measurement. It listens only while a ticket is out: from `offer` until the
// ticket was used and served, or for 5 s. Strangers that connect meanwhile are held, eight at a
// time, until they have shown 32 bytes, and closed when those are not the ticket.
//
// Owns its thread and joins it in the destructor; borrows the clock. `offer` may be called from any
// thread, and takes the node's permit, so there is never a second. Fails when the address cannot be
// bound.
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
  std::uint16_t port = 0;  // 0: the kernel chooses one for each ticket
  std::chrono::milliseconds ticket_life{5000};
  /// The prober's own time, and what lies between its clock and ours.
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
