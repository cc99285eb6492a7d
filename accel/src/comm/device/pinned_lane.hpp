// SPDX-License-Identifier: Apache-2.0
// A lane through the host's memory: shards are copied there, go around the communicator's ring of
// this lane (TCP or RDMA), and come back. As lane.hpp.
#pragma once

#include <atomic>

#include "../ring.hpp"
#include "lane.hpp"
#include "pool.hpp"

namespace paceline::comm::device {

class PinnedLane final : public Lane {
 public:
  // `position` of `hosts` in the lane.
  PinnedLane(Pool& pool, Ring& ring, std::uint32_t hosts, std::uint32_t position)
      : pool_(pool), ring_(ring), hosts_(hosts), position_(position) {}

  void start(Stage& stage, Work work) override;
  bool ready(std::uint32_t number) const override {
    return number < sent_.load(std::memory_order_acquire) + kDepth;
  }
  bool lower(std::uint32_t number) override;
  void open(std::uint32_t chunks) override;
  void landed(std::uint32_t number) override { stage_->finished(work_.base + number + 1); }
  std::optional<std::uint32_t> awaited() const override;
  void finish() override { ring_.finish(); }

 private:
  // What the ring has finished goes back to the device; on the ring's thread.
  void raise(std::uint32_t number);

  Pool& pool_;
  Ring& ring_;
  const std::uint32_t hosts_;
  const std::uint32_t position_;
  Stage* stage_ = nullptr;
  Work work_{};
  // Chunks of this call.
  std::atomic<std::uint32_t> opened_{0};    // that the ring may send
  std::atomic<std::uint64_t> sent_{0};      // that it is done sending
  std::atomic<std::uint64_t> received_{0};  // that it has got
};

}  // namespace paceline::comm::device
