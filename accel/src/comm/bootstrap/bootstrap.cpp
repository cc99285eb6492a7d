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

class Meeting {
 public:
  Meeting(const Topology& topology, const std::vector<Card>& cards,
          const std::vector<base::Fd>& doors)
      : topology_(topology), cards_(cards), doors_(doors) {}

  // Flows go over the endpoints in turn, those of a host's lanes from different ones on.
  void connect_to(std::uint32_t peer, std::uint32_t purpose, std::uint32_t flow, base::Fd& place) {
    const std::uint32_t turn = flow + (purpose == kLaneRing ? topology_.local : 0);
    outgoing_.push_back({peer, purpose, flow, turn % cards_[peer].endpoints.size(), &place, {}});
  }
  void expect_from(std::uint32_t peer, std::uint32_t purpose, std::uint32_t flow, base::Fd& place) {
    expected_[{peer, purpose, flow}] = &place;
  }
  std::expected<void, Error> run(const std::vector<base::Fd>& watched, Clock::time_point deadline);

 private:
  bool dial(Outgoing& one);
  bool greet(Outgoing& one);
  void accept_some(const base::Fd& door);
  void hear(Caller& one);
  std::expected<void, Error> turn(const std::vector<base::Fd>& watched, int timeout_ms);
  Error refused(std::uint32_t rank, const std::string& why, std::size_t endpoint = 0) const {
    return {PACELINE_COMM_EPEER, static_cast<int>(rank),
            rank_name(rank) + " at " + cards_[rank].endpoints[endpoint].address + ": " + why};
  }
  Error unreached(const Outgoing& one) const {
    return refused(one.peer, std::string("cannot connect: ") + std::strerror(errno), one.endpoint);
  }

  const Topology& topology_;
  const std::vector<Card>& cards_;
  const std::vector<base::Fd>& doors_;
  std::vector<Outgoing> outgoing_;
  std::vector<Caller> incoming_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, base::Fd*> expected_;
};

bool Meeting::dial(Outgoing& one) {
  one.socket = comm::dial(cards_[topology_.rank], cards_[one.peer], one.endpoint);
  return static_cast<bool>(one.socket);
}

bool Meeting::greet(Outgoing& one) {
  errno = comm::greet(one.socket, cards_[one.peer], topology_.rank, one.purpose, one.flow);
  if (errno != 0) return false;
  *one.place = std::move(one.socket);
  return true;
}

void Meeting::accept_some(const base::Fd& door) {
  for (;;) {
    base::Fd socket = answer(door);
    if (!socket) return;
    // Strangers cannot fill the memory: who has not introduced itself is dropped when too many more
    // come.
    if (incoming_.size() > expected_.size() + 64) incoming_.erase(incoming_.begin());
    incoming_.push_back({std::move(socket), {}, 0});
  }
}

void Meeting::hear(Caller& one) {
  Hello hello;
  const Heard heard = comm::hear(one, cards_[topology_.rank], hello);
  if (heard == Heard::kMore) return;
  base::Fd socket = std::move(one.socket);
  if (heard == Heard::kStranger) return;
  const auto found = expected_.find({hello.from, hello.purpose, hello.flow});
  if (found == expected_.end()) return;
  *found->second = std::move(socket);
  expected_.erase(found);
}

std::expected<void, Error> Meeting::turn(const std::vector<base::Fd>& watched, int timeout_ms) {
  std::vector<pollfd> files;
  for (const base::Fd& door : doors_)
    files.push_back({.fd = door.get(), .events = POLLIN, .revents = 0});
  for (const Outgoing& one : outgoing_)
    files.push_back({.fd = one.socket.get(), .events = POLLOUT, .revents = 0});
  for (const Caller& one : incoming_)
    files.push_back({.fd = one.socket.get(), .events = POLLIN, .revents = 0});
  // Of those who have come already: whether they end meanwhile. poll skips what is -1.
  for (const base::Fd& one : watched)
    files.push_back({.fd = one.get(), .events = POLLRDHUP, .revents = 0});
  ::poll(files.data(), files.size(), timeout_ms);
  const std::size_t first_outgoing = doors_.size();
  const std::size_t first_incoming = first_outgoing + outgoing_.size();
  const std::size_t first_watched = first_incoming + incoming_.size();
  for (std::size_t i = 0; i < watched.size(); ++i)
    if (files[first_watched + i].revents != 0)
      return std::unexpected(
          refused(static_cast<std::uint32_t>(i), "has ended while ranks connected"));
  for (std::size_t i = 0; i < incoming_.size(); ++i)
    if (files[first_incoming + i].revents != 0) hear(incoming_[i]);
  for (std::size_t i = 0; i < outgoing_.size(); ++i)
    if (files[first_outgoing + i].revents != 0 && !greet(outgoing_[i]))
      return std::unexpected(unreached(outgoing_[i]));
  std::erase_if(incoming_, [](const Caller& one) { return !one.socket; });
  std::erase_if(outgoing_, [](const Outgoing& one) { return !one.socket; });
  for (std::size_t i = 0; i < doors_.size(); ++i)
    if (files[i].revents != 0) accept_some(doors_[i]);
  return {};
}

std::expected<void, Error> Meeting::run(const std::vector<base::Fd>& watched,
                                        Clock::time_point deadline) {
  for (Outgoing& one : outgoing_)
    if (!dial(one)) return std::unexpected(unreached(one));
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

std::uint32_t lane_next(const Topology& topology) {
  return topology.groups[(topology.group + 1) % topology.hosts()][topology.local];
}

std::uint32_t lane_previous(const Topology& topology) {
  return topology
      .groups[(topology.group + topology.hosts() - 1) % topology.hosts()][topology.local];
}

std::expected<Wires, Error> meet(const Topology& topology, const std::vector<Card>& cards,
                                 const std::vector<base::Fd>& doors, std::uint32_t flows,
                                 bool lanes, Clock::time_point deadline) {
  Wires wires;
  const std::uint32_t ranks = topology.ranks();
  wires.watch.resize(ranks);
  Meeting meeting(topology, cards, doors);
  for (std::uint32_t other = 0; other < ranks; ++other) {
    if (other < topology.rank) meeting.connect_to(other, kWatching, 0, wires.watch[other]);
    if (other > topology.rank) meeting.expect_from(other, kWatching, 0, wires.watch[other]);
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
       topology.order[(topology.position + ranks - 1) % ranks], kFlatRing, wires.to_next,
       wires.from_previous);
  if (lanes && topology.has_lane())
    ring(lane_next(topology), lane_previous(topology), kLaneRing, wires.lane_to_next,
         wires.lane_from_previous);
  if (auto met = meeting.run(wires.watch, deadline); !met) return std::unexpected(met.error());
  return wires;
}

}  // namespace paceline::comm
