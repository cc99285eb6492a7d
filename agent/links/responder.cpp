// SPDX-License-Identifier: Apache-2.0
#include "agent/links/responder.hpp"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

namespace paceline::agent {
namespace {

constexpr std::size_t kScratchBytes = 64UL * 1024;
constexpr std::size_t kMostGuests = 8;
constexpr int kMostStrangers = 64;
constexpr std::chrono::milliseconds kSlice{100};

/// A connection that has not sent its ticket yet.
struct Guest {
  UniqueFd fd;
  TicketBytes shown{};
  std::size_t got = 0;
};

bool same(const TicketBytes& a, const TicketBytes& b) {
  unsigned char differs = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    differs = static_cast<unsigned char>(differs | (a[i] ^ b[i]));
  return differs == 0;
}

/// Reads what has arrived. Returns true once it is decided: the ticket is complete, or the
/// connection is closed (as `got` tells).
bool decided(Guest& guest) {
  const ssize_t got =
      ::recv(guest.fd.get(), guest.shown.data() + guest.got, guest.shown.size() - guest.got, 0);
  if (got > 0) guest.got += static_cast<std::size_t>(got);
  return guest.got == guest.shown.size() || got == 0 ||
         (got < 0 && errno != EAGAIN && errno != EINTR);
}

/// Returns the first connection that sends the ticket; invalid if there is none.
UniqueFd welcome(int listener, const TicketBytes& ticket, const Until& until) {
  std::vector<Guest> guests;
  int strangers = 0;
  while (strangers < kMostStrangers && !until.stop.stop_requested()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until.deadline - until.clock.steady());
    if (left.count() <= 0) break;
    std::vector<pollfd> entries;
    entries.reserve(guests.size() + 1);
    for (const Guest& guest : guests)
      entries.push_back({.fd = guest.fd.get(), .events = POLLIN, .revents = 0});
    // At the limit, further connections wait in the kernel.
    if (guests.size() < kMostGuests)
      entries.push_back({.fd = listener, .events = POLLIN, .revents = 0});
    if (::poll(entries.data(), entries.size(), static_cast<int>(std::min(left, kSlice).count())) <=
        0)
      continue;
    for (std::size_t i = guests.size(); i-- > 0;) {
      if (entries[i].revents == 0 || !decided(guests[i])) continue;
      if (guests[i].got == kTicketBytes && same(guests[i].shown, ticket))
        return std::move(guests[i].fd);
      guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(i));
      ++strangers;
    }
    if (entries.back().fd == listener && entries.back().revents != 0) {
      UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd.valid()) guests.push_back({.fd = std::move(fd)});
    }
  }
  return {};
}

/// Answers messages until the peer closes, of at most `left` bytes in both directions together.
/// Returns true if it closed between two messages, after at least one.
bool echo(int fd, std::uint64_t left, const Until& until) {
  constexpr std::array<unsigned char, 1> kReady{1};
  send_at_once(fd);
  if (!send_all(fd, kReady, until)) return false;
  std::vector<unsigned char> scratch(kScratchBytes);
  const std::vector<unsigned char> payload = noise(kScratchBytes);
  std::array<unsigned char, kLengthBytes> head{};
  bool answered = false;
  while (true) {
    const auto first = receive_all(fd, std::span(head).first(1), until);
    if (!first) return answered && first.error().code == Code::kUnavailable;
    if (!receive_all(fd, std::span(head).subspan(1), until)) return false;
    std::uint64_t bytes = 0;
    for (const unsigned char byte : head) bytes = bytes << 8U | byte;
    if (bytes == 0 || bytes > kMaxMessage || 2 * bytes > left) return false;
    left -= 2 * bytes;
    if (!skip(fd, bytes, scratch, until)) return false;
    while (bytes > 0) {
      const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, payload.size()));
      if (!send_all(fd, std::span(payload).first(piece), until)) return false;
      bytes -= piece;
    }
    answered = true;
  }
}

}  // namespace

Result<Ticket> Responder::offer(std::unique_ptr<Permit> permit) {
  const std::lock_guard lock(mutex_);
  // The permit was free, so the last worker is about to end.
  worker_ = {};
  Ticket ticket;
  if (::getrandom(ticket.bytes.data(), ticket.bytes.size(), 0) !=
      static_cast<ssize_t>(ticket.bytes.size())) {
    permit->ends_as(PermitEnd::kNothing);
    return fail_errno("random bytes for a ticket", errno);
  }
  auto listener = listen_on(options_.address, options_.port);
  if (!listener) {
    permit->ends_as(PermitEnd::kNothing);
    return std::unexpected(listener.error());
  }
  ticket.port = port_of(listener->get());
  worker_ = std::jthread([this, fd = std::move(*listener), bytes = ticket.bytes,
                          permit = std::move(permit)](const std::stop_token& stop) {
    answer(fd, bytes, *permit, stop);
  });
  return ticket;
}

void Responder::answer(const UniqueFd& listener, const TicketBytes& ticket, Permit& permit,
                       const std::stop_token& stop) const {
  const UniqueFd peer =
      welcome(listener.get(), ticket, {clock_, clock_.steady() + options_.ticket_life, stop});
  if (!peer.valid()) return;
  const SteadyTime deadline = clock_.steady() + options_.patience;
  std::jthread more([&](const std::stop_token& enough) {
    const Until until{clock_, deadline, enough};
    std::vector<std::jthread> flows;
    while (flows.size() < kFlows) {
      UniqueFd fd = welcome(listener.get(), ticket, until);
      if (!fd.valid()) break;
      flows.emplace_back(
          [fd = std::move(fd), until] { (void)echo(fd.get(), kMaxFlowBytes, until); });
    }
  });
  if (echo(peer.get(), kMaxLinkBytes, {clock_, deadline, stop}))
    permit.ends_as(PermitEnd::kSuccess);
}

}  // namespace paceline::agent
