// SPDX-License-Identifier: Apache-2.0
// Links between any two ranks, for what goes from one to one: made when first needed, in each
// direction one, and another for what all ranks do together, so that neither gets into the other's
// way. Ranks that share memory have a pipe in a memory file of their own, which the sender makes
// and hands over at the door that the receiver's card names; others, and those that are refused it,
// a TCP connection, over which those of different hosts agree on RDMA. Who comes early is kept.
//
// Ownership: of the links and the doors. Threads: one for `to`, one for `from`; note and forked
// any. Blocking: on poll, until the watch's deadline. Failure: null, and the watch knows why.
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
  // What it takes for RDMA: null where this rank has none.
  struct Far {
    const Rdma* rdma;
    Transport transport;
  };
  // `near`: of each rank, whether it shares memory with this one.
  Direct(std::uint32_t rank, std::vector<Card> cards, Doors doors, std::vector<bool> near,
         const Far& far, Watch& watch);
  SendLink* to(std::uint32_t peer, Channel channel);
  ReceiveLink* from(std::uint32_t peer, Channel channel);
  void forked();  // in a child: only closes
  // why the first one goes by TCP that could have gone otherwise; mostly empty
  std::string note() const;

 private:
  using Senders = std::vector<std::unique_ptr<SendLink>>;
  using Receivers = std::vector<std::unique_ptr<ReceiveLink>>;

  std::unique_ptr<SendLink> hand_memory(std::uint32_t peer, Channel channel);
  // Of a rank with which there may be RDMA.
  bool may_try(std::uint32_t peer) const;
  PairTerms terms_with(std::uint32_t peer, bool sends);
  void tell_first(const std::string& note);
  std::unique_ptr<SendLink> connect(std::uint32_t peer, Channel channel);
  bool await(std::vector<pollfd>& files, std::uint32_t peer);
  void answer_some(const base::Fd& door, std::vector<Caller>& callers);
  void hear_some();
  void take_memory();
  std::unique_ptr<ReceiveLink>* expected(const Hello& hello);

  const std::uint32_t rank_;
  const std::vector<Card> cards_;
  Doors doors_;
  const std::vector<bool> near_;
  const Far far_;
  Watch& watch_;
  std::array<Senders, 2> to_;
  std::array<Receivers, 2> from_;
  std::vector<Caller> callers_;
  std::vector<Caller> local_callers_;
  std::vector<int> to_files_, from_files_;
  mutable std::mutex mutex_;
  std::string note_;
};

}  // namespace paceline::comm
