// SPDX-License-Identifier: Apache-2.0
// The data connections of a measurement, over TCP. The prober sends a ticket (32 bytes), receives
// one byte, and then sends messages: a length in 4 bytes, big-endian, then as many bytes. Each
// complete message is answered with as many bytes, so the answer is never larger than the message.
// While the first connection lives, a few more may show the same ticket: several flows fill a link
// that one does not. Prober and responder use it.
//
// Every call is bounded by a deadline and ends at a stop request; received data is not stored.
// Plain functions over non-blocking sockets that the caller owns; thread-safe for different
// sockets. Errors: kTimeout after the deadline, kUnavailable if the peer closed or cannot be
// reached, kCancelled after a stop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/base/unique_fd.hpp"

namespace paceline::agent {

constexpr std::size_t kTicketBytes = 32;
using TicketBytes = std::array<unsigned char, kTicketBytes>;

/// 64 hexadecimal digits; kInvalid otherwise.
Result<TicketBytes> read_ticket(const std::string& hex);
std::string ticket_text(const TicketBytes& ticket);

constexpr std::uint64_t kMaxMessage = 1 << 20;
/// Of the first connection, in both directions together.
constexpr std::uint64_t kMaxLinkBytes = 64U << 20;
/// Further connections, which are measured together, and the bytes of each.
constexpr int kFlows = 7;
constexpr std::uint64_t kMaxFlowBytes = 32U << 20;
constexpr std::chrono::milliseconds kMaxLinkTime{2000};
constexpr std::chrono::milliseconds kMaxFlowTime{300};
constexpr std::size_t kLengthBytes = 4;

struct Until {
  const Clock& clock;
  SteadyTime deadline;
  std::stop_token stop;
};

/// Numeric addresses only.
Result<UniqueFd> listen_on(const std::string& address, std::uint16_t port);
std::uint16_t port_of(int fd);
Result<UniqueFd> connect_to(const std::string& address, std::uint16_t port, const Until& until);
/// Disables Nagle's algorithm on an accepted socket.
void send_at_once(int fd);

Status wait_for(int fd, short events, const Until& until);
Status send_all(int fd, std::span<const unsigned char> bytes, const Until& until);
Status receive_all(int fd, std::span<unsigned char> bytes, const Until& until);
/// Reads and discards; each piece overwrites `scratch`, which must not be empty.
Status skip(int fd, std::uint64_t count, std::span<unsigned char> scratch, const Until& until);
/// The content of messages, which cannot be compressed.
std::vector<unsigned char> noise(std::size_t bytes);

}  // namespace paceline::agent
