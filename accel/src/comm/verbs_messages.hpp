// SPDX-License-Identifier: Apache-2.0
// messages.hpp over libibverbs. A range is registered by its dma-buf descriptor or, where that
// cannot be, by its address, which takes a kernel module of the GPU's (nvidia_peermem). Ownership,
// threads, failure: as there; the port's context and domain outlive it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "messages.hpp"
#include "queue_pair.hpp"

namespace paceline::comm {

class VerbsMessages final : public Messages {
 public:
  static std::expected<std::unique_ptr<Messages>, std::string> make(
      const Verbs& verbs, const RdmaSettings& settings, const RailPort& port,
      std::span<const DeviceRange> ranges, std::size_t pairs, std::uint32_t depth);
  VerbsMessages(const VerbsMessages&) = delete;
  VerbsMessages& operator=(const VerbsMessages&) = delete;
  ~VerbsMessages() override;

  RailAddress address(std::size_t pair) const override { return pairs_[pair].queue.address(); }
  std::string connect(std::size_t pair, const RailAddress& peer) override {
    return pairs_[pair].queue.connect(peer);
  }
  using Messages::send;
  void send(std::size_t pair, const DevicePiece& head, const DevicePiece& piece) override;
  void receive(std::size_t pair, const DevicePiece& into) override;
  std::uint64_t delivered(std::size_t pair) const override { return pairs_[pair].delivered; }
  std::uint64_t arrived(std::size_t pair) const override { return pairs_[pair].arrived; }
  bool look() override;
  void listen() override;
  void heard() override;
  int file() const override { return channel_->fd; }
  const std::optional<Fault>& fault() const override { return fault_; }

 private:
  struct Pair {
    QueuePair queue;
    std::uint64_t delivered = 0, arrived = 0;
  };
  struct Registered {
    std::uint64_t begin, end;
    ibv_mr* region;
  };

  VerbsMessages(const Verbs& verbs, const RdmaSettings& settings, const RailPort& port)
      : verbs_(verbs), settings_(settings), port_(port) {}
  std::string prepare(std::span<const DeviceRange> ranges, std::size_t pairs, std::uint32_t depth);
  std::string add(const DeviceRange& range);
  ibv_sge registered(const DevicePiece& piece) const;
  void fail(std::optional<std::size_t> pair, const std::string& why);

  const Verbs& verbs_;
  const RdmaSettings& settings_;
  const RailPort& port_;
  std::vector<Registered> registered_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completions_ = nullptr;
  std::vector<Pair> pairs_;
  std::optional<Fault> fault_;
};

}  // namespace paceline::comm
