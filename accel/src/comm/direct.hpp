// SPDX-License-Identifier: Apache-2.0
// Connections between any two ranks, for what goes from one to one: made when first needed, in each direction one, by TCP also inside a host.
// The sender dials; the receiver answers at the door that its card names, and keeps who comes early.
//
// Ownership: of the connections and the door. Threads: one for `to`, one for `from`. Blocking: on poll, until the watch's deadline.
// Failure: null, and the watch knows why.
#pragma once

#include <memory>
#include <vector>

#include "card.hpp"
#include "hello.hpp"
#include "tcp_link.hpp"
#include "watch.hpp"

namespace paceline::comm {

class Direct {
 public:
  Direct(std::uint32_t rank, std::vector<Card> cards, Fd door, Watch& watch);
  SendLink* to(std::uint32_t peer);
  ReceiveLink* from(std::uint32_t peer);
  void forked();  // in a child: only closes

 private:
  bool await(std::vector<pollfd>& files, std::uint32_t peer);
  void answer_some();
  void hear_some();

  const std::uint32_t rank_;
  const std::vector<Card> cards_;
  Fd door_;
  Watch& watch_;
  std::vector<std::unique_ptr<TcpSender>> to_;
  std::vector<std::unique_ptr<TcpReceiver>> from_;
  std::vector<Caller> callers_;
  std::vector<int> to_files_, from_files_;
};

}  // namespace paceline::comm
