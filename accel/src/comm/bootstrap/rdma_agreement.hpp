// SPDX-License-Identifier: Apache-2.0
// The two ends of a link find out over its TCP connection whether both can use RDMA. Each tells the
// addresses of its queue pairs, connects them to the other's, and sends an empty message through
// each. After every step both ends know of either's refusal. So both use RDMA or neither does, and
// the connection carries nothing else afterwards.
//
// Ownership: the queue pairs go to the caller. Threads: one for each link. Blocking: on poll, until
// the deadline. Failure: an error that names the peer. That RDMA is not possible is no failure.
#pragma once

#include <expected>
#include <string>
#include <vector>

#include "comm/bootstrap/peer_info.hpp"
#include "comm/transport/rdma/rdma_link.hpp"

namespace paceline::comm {

struct Agreed {
  NicQueues nics;       // as many as both ends have; empty after a refusal
  std::string refusal;  // why the link uses TCP
};

// What both ends try. Both compute the same from the two peer infos.
struct Attempt {
  const Rdma& rdma;
  std::vector<std::size_t> nics;
  std::size_t slot_bytes;
  bool sends;  // this end of the link
};

std::expected<Agreed, Error> agree(const base::Fd& connection, std::uint32_t peer,
                                   const Attempt& wanted, FailureDetector& detector,
                                   Clock::time_point deadline);

}  // namespace paceline::comm
