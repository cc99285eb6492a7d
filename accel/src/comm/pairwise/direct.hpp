// SPDX-License-Identifier: Apache-2.0
// Links between any two ranks, made when first used. send, recv and exchange use them, and so do
// all-to-all, trees and recursive doubling. Each direction has one link for pairwise calls and
// another for collectives, so that neither delays the other.
//
// Two ranks that share memory use a pipe in a memory file of their own. The sender makes it and
// sends it to the listener that the receiver's peer info names. Other ranks use a TCP connection,
// over which ranks of different hosts agree on RDMA. A connection that arrives before it is needed
// is kept.
//
// Ownership: of the links and the listeners. Threads: one for `to`, one for `from`; `note` and
// `forked` may be called from any. Blocking: on poll, until the failure detector's deadline.
// Failure: null; the failure detector has the reason.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/bootstrap/handshake.hpp"
#include "comm/bootstrap/peer_info.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/pairwise/pair_link.hpp"
#include "comm/transport/link.hpp"

struct pollfd;

namespace paceline::comm {

enum class Channel : std::uint8_t { kPair, kTogether };

class Direct {
 public:
  // What RDMA needs; null if this rank has none.
  struct InterNode {
    const Rdma* rdma;
    Transport transport;
  };
  // `shares_memory`: for each rank, whether it shares memory with this rank.
  Direct(std::uint32_t rank, std::vector<PeerInfo> peers, Listeners listeners,
         std::vector<bool> shares_memory, const InterNode& inter_node, FailureDetector& detector);
  SendLink* to(std::uint32_t peer, Channel channel);
  ReceiveLink* from(std::uint32_t peer, Channel channel);
  void forked();  // in a forked child: only closes descriptors
  // why the first link fell back to TCP; empty if none did
  std::string note() const;

 private:
  using Senders = std::vector<std::unique_ptr<SendLink>>;
  using Receivers = std::vector<std::unique_ptr<ReceiveLink>>;

  std::unique_ptr<SendLink> send_memory(std::uint32_t peer, Channel channel);
  bool may_try(std::uint32_t peer) const;  // whether both ends list RDMA devices
  // Call it only if may_try(peer).
  PairTerms terms_with(std::uint32_t peer, bool sends);
  void note_first(const std::string& note);
  std::unique_ptr<SendLink> connect(std::uint32_t peer, Channel channel);
  bool await(std::vector<pollfd>& files, std::uint32_t peer);
  void accept_some(const base::Fd& listener, std::vector<PendingConnection>& callers);
  void read_handshakes();
  void receive_memory();
  std::unique_ptr<ReceiveLink>* expected(const Handshake& handshake);

  const std::uint32_t rank_;
  const std::vector<PeerInfo> peers_;
  Listeners listeners_;
  const std::vector<bool> shares_memory_;
  const InterNode inter_node_;
  FailureDetector& detector_;
  std::array<Senders, 2> to_;
  std::array<Receivers, 2> from_;
  std::vector<PendingConnection> callers_;
  std::vector<PendingConnection> local_callers_;
  std::vector<int> to_files_, from_files_;
  mutable std::mutex mutex_;
  std::string note_;
};

}  // namespace paceline::comm
