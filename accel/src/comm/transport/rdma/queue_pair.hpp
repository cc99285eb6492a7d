// SPDX-License-Identifier: Apache-2.0
// A reliable connected queue pair over libibverbs. Completions go to a completion queue that its
// owner passes in.
//
// Ownership: of the queue pair; port, settings and completion queue outlive it. Threads: one at a
// time. Failure: a text.
#pragma once

#include <expected>
#include <string>
#include <utility>

#include "comm/transport/rdma/rdma.hpp"
#include "comm/transport/rdma/verbs.hpp"

namespace paceline::comm {

struct NicPort {
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  std::string name;  // "mlx5_0", or "mlx5_0:2" for a port other than the first
  std::uint8_t number = 1;
  int gid_index = -1;        // for Ethernet
  QueuePairAddress address;  // without the queue pair's own fields
};

// Whether this end's memory or device caused the error. The peer only sees that this end does not
// answer.
bool is_own(ibv_wc_status status);

class QueuePair {
 public:
  QueuePair(const Verbs& verbs, const RdmaSettings& settings, const NicPort& port)
      : verbs_(verbs), settings_(settings), port_(port) {}
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair() { end(); }

  // Call once. `depth` messages may be under way in each direction. Returns an error text, or an
  // empty one.
  std::string make(ibv_cq* completions, std::uint32_t depth);
  QueuePairAddress address() const;
  // Receives that were posted before are ready when the peer learns of it. Returns an error text,
  // or an empty one.
  std::string connect(const QueuePairAddress& peer);
  // Must run before the completion queue is destroyed.
  void end() {
    if (pair_ != nullptr) verbs_.destroy_qp(std::exchange(pair_, nullptr));
  }
  // Sends a message from registered memory, or receives one into it; 0 bytes: an empty message.
  // Returns an error text, or an empty one.
  std::string send(std::uint64_t id, ibv_sge piece);
  std::string receive(std::uint64_t id, ibv_sge piece);

 private:
  const Verbs& verbs_;
  const RdmaSettings& settings_;
  const NicPort& port_;
  ibv_qp* pair_ = nullptr;
  std::uint32_t sequence_ = 0;
};

}  // namespace paceline::comm
