// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/bootstrap.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <tuple>

#include "comm/bootstrap/handshake.hpp"

namespace paceline::comm {
namespace {

struct Outgoing {
  std::uint32_t peer;
  std::uint32_t purpose;
  std::uint32_t flow;
  std::size_t endpoint;
  base::Fd* place;
  base::Fd socket;
};

class Connector {
 public:
  Connector(const Topology& topology, const std::vector<PeerInfo>& peers,
            const std::vector<base::Fd>& listeners)
      : topology_(topology), peers_(peers), listeners_(listeners) {}

  // Spread the connections over the endpoints. Each channel of a host starts at a different
  // endpoint.
  void connect_to(std::uint32_t peer, std::uint32_t purpose, std::uint32_t flow, base::Fd& place) {
    const std::uint32_t turn = flow + (purpose == kChannelRing ? topology_.local : 0);
    outgoing_.push_back({peer, purpose, flow, turn % peers_[peer].endpoints.size(), &place, {}});
  }
  void expect_from(std::uint32_t peer, std::uint32_t purpose, std::uint32_t flow, base::Fd& place) {
    expected_[{peer, purpose, flow}] = &place;
  }
  std::expected<void, Error> run(const std::vector<base::Fd>& watched, Clock::time_point deadline);

 private:
  bool connect(Outgoing& one);
  bool send_handshake(Outgoing& one);
  void accept_some(const base::Fd& listener);
  void receive(PendingConnection& one);
  std::expected<void, Error> turn(const std::vector<base::Fd>& watched, int timeout_ms);
  Error refused(std::uint32_t rank, const std::string& why, std::size_t endpoint = 0) const {
    return {PACELINE_COMM_EPEER, static_cast<int>(rank),
            rank_name(rank) + " at " + peers_[rank].endpoints[endpoint].address + ": " + why};
  }
  Error unreached(const Outgoing& one) const {
    return refused(one.peer, std::string("cannot connect: ") + std::strerror(errno), one.endpoint);
  }

  const Topology& topology_;
  const std::vector<PeerInfo>& peers_;
  const std::vector<base::Fd>& listeners_;
  std::vector<Outgoing> outgoing_;
  std::vector<PendingConnection> incoming_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, base::Fd*> expected_;
};

bool Connector::connect(Outgoing& one) {
  one.socket = start_connecting(peers_[topology_.rank], peers_[one.peer], one.endpoint);
  return static_cast<bool>(one.socket);
}

bool Connector::send_handshake(Outgoing& one) {
  errno = comm::send_handshake(one.socket, peers_[one.peer], topology_.rank, one.purpose, one.flow);
  if (errno != 0) return false;
  *one.place = std::move(one.socket);
  return true;
}

void Connector::accept_some(const base::Fd& listener) {
  for (;;) {
    base::Fd socket = accept_next(listener);
    if (!socket) return;
    // Cap pending unauthenticated connections, so that they cannot use up the memory: drop the
    // oldest.
    if (incoming_.size() > expected_.size() + 64) incoming_.erase(incoming_.begin());
    incoming_.push_back({std::move(socket), {}, 0});
  }
}

void Connector::receive(PendingConnection& one) {
  Handshake handshake;
  const HandshakeRead read = read_handshake(one, peers_[topology_.rank], handshake);
  if (read == HandshakeRead::kIncomplete) return;
  base::Fd socket = std::move(one.socket);
  if (read == HandshakeRead::kWrong) return;
  const auto found = expected_.find({handshake.from, handshake.purpose, handshake.flow});
  if (found == expected_.end()) return;
  *found->second = std::move(socket);
  expected_.erase(found);
}

std::expected<void, Error> Connector::turn(const std::vector<base::Fd>& watched, int timeout_ms) {
  std::vector<pollfd> files;
  for (const base::Fd& listener : listeners_)
    files.push_back({.fd = listener.get(), .events = POLLIN, .revents = 0});
  for (const Outgoing& one : outgoing_)
    files.push_back({.fd = one.socket.get(), .events = POLLOUT, .revents = 0});
  for (const PendingConnection& one : incoming_)
    files.push_back({.fd = one.socket.get(), .events = POLLIN, .revents = 0});
  // Also watch the accepted connections for an end. poll skips negative descriptors.
  for (const base::Fd& one : watched)
    files.push_back({.fd = one.get(), .events = POLLRDHUP, .revents = 0});
  ::poll(files.data(), files.size(), timeout_ms);
  const std::size_t first_outgoing = listeners_.size();
  const std::size_t first_incoming = first_outgoing + outgoing_.size();
  const std::size_t first_detected = first_incoming + incoming_.size();
  for (std::size_t i = 0; i < watched.size(); ++i)
    if (files[first_detected + i].revents != 0)
      return std::unexpected(
          refused(static_cast<std::uint32_t>(i), "has ended while ranks connected"));
  for (std::size_t i = 0; i < incoming_.size(); ++i)
    if (files[first_incoming + i].revents != 0) receive(incoming_[i]);
  for (std::size_t i = 0; i < outgoing_.size(); ++i)
    if (files[first_outgoing + i].revents != 0 && !send_handshake(outgoing_[i]))
      return std::unexpected(unreached(outgoing_[i]));
  std::erase_if(incoming_, [](const PendingConnection& one) { return !one.socket; });
  std::erase_if(outgoing_, [](const Outgoing& one) { return !one.socket; });
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    if (files[i].revents != 0) accept_some(listeners_[i]);
  return {};
}

std::expected<void, Error> Connector::run(const std::vector<base::Fd>& watched,
                                          Clock::time_point deadline) {
  for (Outgoing& one : outgoing_)
    if (!connect(one)) return std::unexpected(unreached(one));
  while (!outgoing_.empty() || !expected_.empty()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0)
      return std::unexpected(refused(
          outgoing_.empty() ? std::get<0>(expected_.begin()->first) : outgoing_.front().peer,
          "has not connected in the time that timeout_ms allows",
          outgoing_.empty() ? 0 : outgoing_.front().endpoint));
    if (auto done = turn(watched, static_cast<int>(std::min<std::int64_t>(left, 1'000'000)) + 1);
        !done)
      return done;
  }
  return {};
}

}  // namespace

std::uint32_t channel_next(const Topology& topology) {
  return topology.groups[(topology.group + 1) % topology.hosts()][topology.local];
}

std::uint32_t channel_previous(const Topology& topology) {
  return topology
      .groups[(topology.group + topology.hosts() - 1) % topology.hosts()][topology.local];
}

std::expected<Connections, Error> connect_ranks(const Topology& topology,
                                                const std::vector<PeerInfo>& peers,
                                                const std::vector<base::Fd>& listeners,
                                                std::uint32_t flows, bool channels,
                                                Clock::time_point deadline) {
  Connections connections;
  const std::uint32_t ranks = topology.ranks();
  connections.detector.resize(ranks);
  Connector meeting(topology, peers, listeners);
  for (std::uint32_t other = 0; other < ranks; ++other) {
    if (other < topology.rank)
      meeting.connect_to(other, kFailureDetector, 0, connections.detector[other]);
    if (other > topology.rank)
      meeting.expect_from(other, kFailureDetector, 0, connections.detector[other]);
  }
  const auto ring = [&](std::uint32_t next, std::uint32_t previous, Purpose purpose,
                        std::vector<base::Fd>& to, std::vector<base::Fd>& from) {
    const bool far_next = topology.group_of(next) != topology.group;
    const bool far_previous = topology.group_of(previous) != topology.group;
    to.resize(far_next ? flows : 0);
    from.resize(far_previous ? flows : 0);
    for (std::uint32_t flow = 0; flow < to.size(); ++flow)
      meeting.connect_to(next, purpose, flow, to[flow]);
    for (std::uint32_t flow = 0; flow < from.size(); ++flow)
      meeting.expect_from(previous, purpose, flow, from[flow]);
  };
  ring(topology.order[(topology.position + 1) % ranks],
       topology.order[(topology.position + ranks - 1) % ranks], kFlatRing, connections.to_next,
       connections.from_previous);
  if (channels && topology.has_channel())
    ring(channel_next(topology), channel_previous(topology), kChannelRing,
         connections.channel_to_next, connections.channel_from_previous);
  if (auto met = meeting.run(connections.detector, deadline); !met)
    return std::unexpected(met.error());
  return connections;
}

}  // namespace paceline::comm
