// SPDX-License-Identifier: Apache-2.0
#include "agent/links/prober.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace paceline::agent {
namespace {

constexpr std::array<std::uint64_t, 6> kSizes{64,          1024,         16UL * 1024,
                                              64UL * 1024, 256UL * 1024, kMaxMessage};
constexpr int kRounds = 16;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// Sends one message, reads its answer and returns the time.
Result<double> round_trip(int fd, std::span<unsigned char> message,
                          std::span<unsigned char> scratch, const Until& until) {
  const std::uint64_t bytes = message.size() - kLengthBytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    message[i] = static_cast<unsigned char>(bytes >> (8U * (kLengthBytes - 1 - i)));
  const SteadyTime began = until.clock.steady();
  if (auto sent = send_all(fd, message, until); !sent) return std::unexpected(sent.error());
  if (auto back = skip(fd, bytes, scratch, until); !back) return std::unexpected(back.error());
  return std::chrono::duration<double>(until.clock.steady() - began).count();
}

/// Connects and shows the ticket; the peer is ready then.
Result<UniqueFd> open_flow(const std::string& address, const Ticket& ticket, const Until& until) {
  auto fd = connect_to(address, ticket.port, until);
  if (!fd) return fd;
  std::array<unsigned char, 1> ready{};
  if (auto shown = send_all(fd->get(), ticket.bytes, until); !shown)
    return std::unexpected(shown.error());
  if (auto taken = receive_all(fd->get(), ready, until); !taken)
    return std::unexpected(taken.error());
  return fd;
}

/// Round trips of the largest message on several connections at once. None if the peer takes no
/// further connections, as agents of earlier releases do.
Flows measure_flows(const std::string& address, const Ticket& ticket, const Until& limit,
                    std::chrono::milliseconds patience) {
  const Until until{limit.clock, std::min(limit.deadline, limit.clock.steady() + patience),
                    limit.stop};
  std::vector<UniqueFd> fds;
  for (int i = 0; i < kFlows; ++i) {
    auto fd = open_flow(address, ticket, until);
    if (!fd) return {};
    fds.push_back(std::move(*fd));
  }
  std::atomic<std::uint64_t> bytes = 0;  // in one direction
  const SteadyTime began = until.clock.steady();
  {
    std::vector<std::jthread> senders;
    for (const UniqueFd& fd : fds) {
      senders.emplace_back([&bytes, &until, fd = fd.get()] {
        std::vector<unsigned char> message = noise(kLengthBytes + kMaxMessage);
        std::vector<unsigned char> scratch(64UL * 1024);
        for (std::uint64_t sent = 0; sent + 2 * kMaxMessage <= kMaxFlowBytes;
             sent += 2 * kMaxMessage) {
          if (!round_trip(fd, message, scratch, until)) return;
          bytes += kMaxMessage;
        }
      });
    }
  }
  const double seconds = std::chrono::duration<double>(until.clock.steady() - began).count();
  if (bytes == 0) return {};
  return {kFlows, 8 * static_cast<double>(bytes) / seconds};
}

}  // namespace

Result<Link> measure_link(const std::string& peer, const std::string& address, const Ticket& ticket,
                          const Clock& clock, const std::stop_token& stop,
                          std::chrono::milliseconds limit, std::chrono::milliseconds flow_limit) {
  const Until until{clock, clock.steady() + limit, stop};
  const auto fd = open_flow(address, ticket, until);
  if (!fd) return std::unexpected(fd.error());

  std::vector<unsigned char> message = noise(kLengthBytes + kMaxMessage);
  std::vector<unsigned char> scratch(64UL * 1024);
  std::array<double, kSizes.size()> best{};
  best.fill(kNever);
  Link link{.peer = peer, .fit = {}, .flows = {}, .trips = {}};
  const auto measure = [&]() -> Status {
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < kSizes.size(); ++i) {
        if (link.bytes + 2 * kSizes[i] > kMaxLinkBytes) return {};
        link.bytes += 2 * kSizes[i];
        const auto took = round_trip(fd->get(), std::span(message).first(kLengthBytes + kSizes[i]),
                                     scratch, until);
        if (!took) return std::unexpected(took.error());
        best[i] = std::min(best[i], *took);
      }
    }
    return {};
  };
  // On a slow link the time ends before all sizes were sent.
  if (auto measured = measure(); !measured && measured.error().code != Code::kTimeout)
    return std::unexpected(measured.error());
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    if (best[i] != kNever) link.trips.push_back({kSizes[i], best[i]});
  }
  const auto fit = fit_link(link.trips);
  if (!fit) {
    return fail(Code::kTimeout, Origin::kProtocol,
                "only " + std::to_string(link.trips.size()) + " of " +
                    std::to_string(kSizes.size()) + " sizes came back in time",
                true);
  }
  link.fit = *fit;
  link.flows = measure_flows(address, ticket, until, flow_limit);
  link.measured = clock.wall();
  return link;
}

}  // namespace paceline::agent
