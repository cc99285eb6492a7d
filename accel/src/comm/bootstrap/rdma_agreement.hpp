// SPDX-License-Identifier: Apache-2.0
// The two ends of a link find out over its connection whether both can go by RDMA, and which way
// back and forth really works: each tells its queue pairs' addresses, connects them to the other's,
// and sends an empty message through each. After every step both know of either's refusal, so both
// go by RDMA or none does, and the connection has nothing on it but what comes next.
//
// Ownership: the queue pairs go to the caller. Threads: one for each link. Blocking: on poll, until
// the deadline. Failure: an error that names the peer; that RDMA cannot be is none.
#pragma once

#include <expected>
#include <string>
#include <vector>

#include "comm/bootstrap/peer_info.hpp"
#include "comm/transport/rdma/rdma_link.hpp"

namespace paceline::comm {

struct Agreed {
  Rails rails;          // as many as both have; none where there is a refusal
  std::string refusal;  // why by TCP
};

// What both ends try, the same from their cards.
struct Attempt {
  const Rdma& rdma;
  std::vector<std::size_t> rails;
  std::size_t slot_bytes;
  bool sends;  // this end of the link
};

std::expected<Agreed, Error> agree(const base::Fd& connection, std::uint32_t peer,
                                   const Attempt& wanted, Watch& watch, Clock::time_point deadline);

}  // namespace paceline::comm
