// SPDX-License-Identifier: Apache-2.0
// A queue pair over libibverbs with its ring of registered slots: the NicQueue of rdma.hpp.
//
// Ownership: of what it has made; the port's context and domain outlive it. Threads: one at a time.
// Failure: broken().
#pragma once

#include "comm/transport/rdma/queue_pair.hpp"

namespace paceline::comm {

class VerbsQueue final : public NicQueue {
 public:
  static std::expected<std::unique_ptr<NicQueue>, std::string> make(const Verbs& verbs,
                                                                    const RdmaSettings& settings,
                                                                    const NicPort& port, bool sends,
                                                                    std::size_t slot_bytes);
  VerbsQueue(const VerbsQueue&) = delete;
  VerbsQueue& operator=(const VerbsQueue&) = delete;
  ~VerbsQueue() override;

  QueuePairAddress address() const override { return pair_.address(); }
  std::string connect(const QueuePairAddress& peer) override;
  std::byte* slot(std::uint64_t number) override { return memory_ + number % kSlots * slot_bytes_; }
  std::size_t slot_bytes() const override { return slot_bytes_; }
  void send(std::size_t bytes) override;
  void receive_again() override;
  std::uint64_t sent() const override { return sent_; }
  std::uint64_t delivered() const override { return delivered_; }
  std::uint64_t arrived() const override { return arrived_; }
  std::size_t length(std::uint64_t number) const override { return lengths_[number % kSlots]; }
  bool look() override;
  void wait(Clock::time_point until, int abort_fd) override;
  const std::string& broken() const override { return broken_; }
  bool broken_here() const override { return broken_here_; }
  int file() const override { return channel_->fd; }

 private:
  VerbsQueue(const Verbs& verbs, const RdmaSettings& settings, const NicPort& port, bool sends,
             std::size_t slot_bytes)
      : verbs_(verbs),
        port_(port),
        sends_(sends),
        slot_bytes_(slot_bytes),
        pair_(verbs, settings, port) {}
  std::size_t ring_bytes() const { return kSlots * slot_bytes_; }
  std::string prepare();
  ibv_sge piece(std::uint64_t number, std::size_t bytes);
  enum class End { kHere, kThere };
  void fail(End end, const std::string& why);
  void take(const ibv_wc& done);

  const Verbs& verbs_;
  const NicPort& port_;
  const bool sends_;
  const std::size_t slot_bytes_;
  std::byte* memory_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completions_ = nullptr;
  QueuePair pair_;
  std::uint64_t sent_ = 0, delivered_ = 0, arrived_ = 0, awaited_ = 0;
  std::array<std::uint32_t, kSlots> lengths_{};
  std::string broken_;
  bool broken_here_ = false;
};

}  // namespace paceline::comm
