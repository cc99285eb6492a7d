// SPDX-License-Identifier: Apache-2.0
// Whom a FailureDetector blames, judged by two detectors of one process.
#include <sys/socket.h>

#include <array>

#include "check.hpp"
#include "comm/failure/failure_detector.hpp"

namespace {

using paceline::base::Fd;
using paceline::comm::Call;
using paceline::comm::Clock;
using paceline::comm::FailureDetector;
using paceline::comm::Kind;
using std::chrono::milliseconds;

constexpr milliseconds kHeartbeatTimeout{5000};  // a heartbeat a second
constexpr milliseconds kCallTime{4000};

std::vector<Fd> connections(uint32_t peer, int connection) {
  std::vector<Fd> both(2);
  both[peer] = Fd(connection);
  return both;
}

}  // namespace

// At the end of the call's time its thread looks at its bell once more. If another thread of the
// rank judges meanwhile, it must not take the rank itself for the one that hangs.
CASE(comm_a_rank_whose_wait_has_just_timed_out_does_not_blame_itself) {
  std::array<int, 2> ends{};
  CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  FailureDetector first(0, connections(1, ends[0]), kHeartbeatTimeout);
  FailureDetector second(1, connections(0, ends[1]), kHeartbeatTimeout);
  const Call call{.sequence = 1, .kind = Kind::kAllReduce, .type = 0, .count = 1, .root = 0};
  const auto deadline = Clock::now() + kCallTime;
  CHECK(first.begin(call, deadline) && second.begin(call, deadline));
  {
    const auto seconds_wait = second.may_wait(0);
    const auto firsts_wait = first.may_wait(1);
    CHECK(seconds_wait && firsts_wait);
    std::this_thread::sleep_until(deadline);
  }
  std::thread([&] { first.blame_late(1); }).join();
  CHECK_EQ(first.failure().rank, 1);
}
