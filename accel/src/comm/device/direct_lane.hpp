// SPDX-License-Identifier: Apache-2.0
// A lane by GPUDirect RDMA: the RDMA device reads and writes the GPU's memory, and nothing passes
// the host's. As lane.hpp.
//
// A ring would take a kernel and a turn of the host for each of its 2(N-1) hops. Here a shard goes
// in two: each of the N hosts sends the j-th part of it to host j, which adds up what it gets in
// the ring's order, host after host from j on, and sends the sum to all others. So as many bytes as
// by the ring, half as much memory again, and the latency of two hops; the bits are the ring's,
// since halves are rounded after each host's here too.
//
// A part comes into a slot of an inbox, a sum straight into the shard's place. The messages need no
// credits: who sends a part has posted the receive of its sum before, and who sends a sum has
// posted that of the part which may follow it, so each message says that the answer to it has a
// place. They are two queue pairs for each peer, since parts and sums overtake each other. Chunk k
// goes by rail k mod rails.
//
// What the RDMA device has written is flushed to the GPU before a kernel or another process reads
// it, unless the GPU orders such writes by itself.
//
// Ownership: of inbox, registrations and queue pairs; pool, ring and watch outlive it. Threads: as
// lane.hpp, and one of its own for each call. Failure: of making and connecting a text; of a call
// the watch knows.
#pragma once

#include <array>
#include <atomic>
#include <expected>
#include <memory>
#include <span>
#include <string>

#include "../progress.hpp"
#include "../rdma.hpp"
#include "../ring.hpp"
#include "lane.hpp"
#include "pool.hpp"
#include "rdma_writes.hpp"

namespace paceline::comm::device {

// beyond, parts are too small for messages of their own
inline constexpr std::uint32_t kMostDirectHosts = 64;
inline constexpr std::size_t kMostDirectRails = kDepth;  // a chunk goes by one

enum Phase : std::size_t { kParts, kSums, kPhases };

// What the lane's ranks tell each other of their queue pairs: of each rail and phase.
using PeerAddresses = std::array<std::array<RailAddress, kPhases>, kMostDirectRails>;

class DirectLane final : public Lane {
 public:
  struct Terms {
    const Rdma& rdma;
    std::vector<std::uint32_t> ranks;  // of the lane, by host
    std::uint32_t position;            // of this rank among them
    std::uint32_t lane;                // its number, the same on all hosts
    bool alone;                        // on its host: nobody else reads the results
    Ring& ring;                        // of the lane; carries what is called, not the data
    Watch& watch;
  };

  // The pool's memory and an inbox, registered with the rails that are nearest to the GPU.
  static std::expected<std::unique_ptr<DirectLane>, std::string> make(Pool& pool, Terms terms);
  DirectLane(const DirectLane&) = delete;
  DirectLane& operator=(const DirectLane&) = delete;
  ~DirectLane() override;

  [[nodiscard]] std::size_t rails() const { return rails_.size(); }
  // Of the queue pairs to host `host`.
  [[nodiscard]] PeerAddresses addresses(std::uint32_t host) const;
  // Over so many rails, to each host's queue pairs with this one; `peers` by host. Empty, or why
  // not.
  std::string connect(std::size_t rails, std::span<const PeerAddresses> peers);
  // "mlx5_0+mlx5_1"
  [[nodiscard]] std::string names() const;

  // A call that nobody is told of: until it has come to its end, or `until`. Empty, or why not.
  std::string attempt(Stage& stage, Work work, Clock::time_point until);

  void start(Stage& stage, Work work) override;
  bool ready(std::uint32_t number) const override {
    return number < sent_.load(std::memory_order_acquire) + kDepth;
  }
  bool lower(std::uint32_t /*number*/) override { return true; }
  void open(std::uint32_t chunks) override;
  void landed(std::uint32_t number) override;
  std::optional<std::uint32_t> awaited() const override;
  void finish() override;
  std::vector<int> files() const override;

 private:
  // Counts of chunks, of all calls.
  struct Peer {
    std::uint32_t host;
    std::uint64_t offered = 0;  // parts sent
    std::array<std::uint64_t, kPhases> arrived{}, delivered{};
  };

  DirectLane(Pool& pool, Terms terms, RdmaWrites writes)
      : pool_(pool), terms_(std::move(terms)), writes_(std::move(writes)) {}
  std::string prepare();

  void begin(Stage& stage, Work work);
  void run();
  bool turn();
  bool look();
  // Each does what can be done now; whether there was anything.
  bool send_parts();
  bool add();
  bool send_sums();
  bool end();
  // Whether all peers' messages of this phase are here, of the call's chunk `number`.
  [[nodiscard]] bool have_all(std::uint32_t number, Phase phase) const;
  [[nodiscard]] bool is_done() const;
  // Where a rail has failed, or the time is over.
  bool is_lost();
  void lose(const Peer& peer, const std::string& why);
  void give_up(const std::string& why);
  [[nodiscard]] bool has_fault() const;  // of any rail's
  void wait();
  void wake() const;
  // Who has not done its part; null: this rank's own GPU, or its host.
  [[nodiscard]] const Peer* behind() const;

  [[nodiscard]] std::uint32_t hosts() const {
    return static_cast<std::uint32_t>(terms_.ranks.size());
  }
  // The places of queue pairs: two for each peer, in the order of hosts from the next one on.
  static std::size_t pair_of(std::size_t peer, Phase phase) { return peer * kPhases + phase; }
  [[nodiscard]] cuda::Address inbox(std::size_t peer, std::uint64_t chunk) const {
    return inbox_ + (chunk % kDepth * peers_.size() + peer) * slot_bytes_;
  }
  // Memory that nobody writes to, behind the inbox.
  [[nodiscard]] cuda::Address padding() const {
    return inbox(0, 0) + kDepth * peers_.size() * slot_bytes_;
  }
  // Of a shard, where host `host`'s part lies.
  struct Piece {
    cuda::Address address;
    std::size_t bytes;
    std::uint64_t count;
    [[nodiscard]] DevicePiece memory() const { return {.address = address, .bytes = bytes}; }
  };
  [[nodiscard]] Piece piece_of(const Shard& shard, std::uint32_t host) const;

  Pool& pool_;
  const Terms terms_;
  cuda::Address inbox_ = 0;
  std::size_t slot_bytes_ = 0;
  const RdmaWrites writes_;
  Fd wake_;
  std::vector<std::size_t> rail_numbers_;
  std::vector<std::unique_ptr<Messages>> rails_;
  std::vector<Peer> peers_;

  Stage* stage_ = nullptr;
  Work work_{};
  Clock::time_point until_;
  bool attempting_ = false;
  std::string trouble_;                       // of an attempt
  bool stopped_ = false;                      // by a refusal of the driver, or a loss
  std::uint64_t first_ = 0;                   // chunks of all calls before
  std::atomic<std::uint32_t> opened_{0};      // chunks of this call: this host's sum is there
  std::atomic<std::uint32_t> summed_{0};      // this rank's part of all hosts is there
  std::atomic<std::uint64_t> sent_{0};        // nothing of them is to be sent any more
  std::atomic<bool> compared_{false};         // the rank before this one in the ring calls the same
  std::atomic<const Peer*> behind_{nullptr};  // when last there was nothing to do
  std::uint32_t added_ = 0, returned_ = 0, finished_ = 0;
  Worker worker_;  // first to end
};

}  // namespace paceline::comm::device
