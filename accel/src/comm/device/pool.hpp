// SPDX-License-Identifier: Apache-2.0
// What a rank has of its GPU for allreduces: memory of a fixed size that the other ranks of its
// host map by CUDA IPC, theirs mapped here, pinned memory that the lane across hosts sends from and
// receives into, and four streams. Everything is begun here and ends in its stream.
//
// Ownership: of all of it, freed with the object, but the stream that results are written in: the
// next pool of the device has it, and it lives as long as the process, as kernels and context do.
// Threads: each stream by one at a time. Failure: the driver's status, or a text. Nothing waits for
// the device but is_idle, and the end of it all: a driver frees memory when everything that the
// process has given the device is done, kernels of NCCL's among it, which may wait for a rank that
// is gone. So a pool ends by end_by.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../../cuda/driver.hpp"
#include "../region.hpp"
#include "../sum.hpp"
#include "../watch.hpp"

namespace paceline::comm::device {

// What a rank tells the others of its memory. A value, sent as it lies in memory.
struct PoolCard {
  cuda::IpcHandle memory{};
  std::array<char, 32> pci{};       // address of its GPU
  std::array<char, 256> refusal{};  // why it has none; empty: it has
};

class Pool {
 public:
  // Chunks go into slots by `giving` and out of them by `taking`, sums and what follows go by
  // `adding`, what came from other hosts by `raising`.
  enum Way : std::size_t { kGiving, kAdding, kRaising, kTaking, kWays };

  struct Size {
    std::size_t chunk;  // bytes of a slot
    // bytes of a slot for results, which has room for those that begin at any address
    std::size_t shard;
    bool across_hosts;  // this rank's results go over the host's memory
    // bytes of a slot of the host's memory, for what goes by it both ways; 0: none
    std::size_t staging;
  };

  // Of device `device` of this process; `folder` has the kernels' modules.
  static std::expected<std::unique_ptr<Pool>, std::string> make(int device,
                                                                const std::string& folder,
                                                                const Size& size);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] PoolCard card() const;
  // Maps the memory of the ranks of this host, in their order; `local` is this one. A text that
  // says which cannot be read, and why.
  std::expected<void, std::string> map(std::span<const PoolCard> cards, std::uint32_t local);
  void unmap();
  // Another process may still read this memory: it stays until this one ends.
  void keep_memory() { base_ = 0; }
  // Of the device, for this rank alone and as long as the pool.
  std::expected<cuda::Address, std::string> allocate_more(std::size_t bytes);

  // Of what is mapped, and of all that is the device's.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t all_bytes() const { return bytes_ + more_bytes_; }
  [[nodiscard]] std::size_t chunk() const { return size_.chunk; }
  [[nodiscard]] std::size_t shard() const { return size_.shard; }
  [[nodiscard]] cuda::Address base() const { return base_; }
  [[nodiscard]] int device() const { return kernels_.device(); }
  [[nodiscard]] const char* pci() const { return pci_.data(); }
  [[nodiscard]] cuda::Stream stream(Way way) const { return streams_[way]; }
  [[nodiscard]] const cuda::Driver& driver() const { return kernels_.driver(); }
  [[nodiscard]] cuda::Current current() const { return kernels_.current(); }

  // What rank `local` gives.
  [[nodiscard]] cuda::Address slot(std::uint32_t local, std::uint32_t number) const {
    return mapped_[local] + number % kDepth * size_.chunk;
  }
  // Where a lane's shard of the result lies that begins so many bytes into its chunk: as far from a
  // good address as it does.
  [[nodiscard]] cuda::Address result(std::uint32_t lane, std::uint32_t number,
                                     std::uint64_t begin) const {
    return mapped_[lane] + kDepth * size_.chunk + number % kDepth * size_.shard +
           begin % kAlignment;
  }
  // The same in pinned memory of the host, as far as it is there.
  [[nodiscard]] std::byte* host_result(std::uint32_t number) const {
    return host_ + number % kDepth * size_.shard;
  }

  // Pinned memory of this rank alone.
  [[nodiscard]] std::byte* staging(std::uint32_t number) const {
    return staging_ + number % kDepth * size_.staging;
  }
  [[nodiscard]] std::size_t staging_bytes() const { return size_.staging; }

  // What the device says when it is given something that is nothing.
  [[nodiscard]] int ask() const { return driver().event_record(question_, streams_[kTaking]); }
  // Whether it has done all that it was given here, at the latest at `deadline`; not where it
  // refuses to say.
  [[nodiscard]] bool is_idle(Clock::time_point deadline) const;
  // What is given from here on, whichever way, is done after all that was given before. The
  // driver's status.
  [[nodiscard]] int join_ways() const;
  [[nodiscard]] int copy(cuda::Address to, cuda::Address from, std::size_t bytes, Way way) const;
  [[nodiscard]] int sum(Type type, cuda::Address target, std::span<const cuda::Address> sources,
                        std::uint64_t count, Way way) const;

  static constexpr std::size_t kAlignment = 16;
  // Room for a shard of so many bytes that begins at any address.
  static std::size_t room_of(std::size_t bytes);
  // Of whole allocations of the driver, which is what processes and devices map.
  static std::size_t allocated(std::size_t bytes);

 private:
  Pool(const cuda::Kernels& kernels, const Size& size) : kernels_(kernels), size_(size) {}
  std::string allocate();
  std::string allocate_on_host(std::byte*& memory, std::size_t bytes);

  const cuda::Kernels& kernels_;
  const Size size_;
  std::size_t bytes_ = 0;
  std::size_t more_bytes_ = 0;
  cuda::Address base_ = 0;
  std::vector<cuda::Address> more_;
  cuda::IpcHandle handle_{};
  std::array<char, 32> pci_{};
  std::byte* host_ = nullptr;
  std::byte* staging_ = nullptr;
  std::array<cuda::Stream, kWays> streams_{};
  cuda::Event question_ = nullptr;
  std::uint32_t local_ = 0;
  std::vector<cuda::Address> mapped_;
};

// Ends it, in a thread of its own that is waited for until `deadline`, and then left to itself.
void end_by(Clock::time_point deadline, std::unique_ptr<Pool> pool);

}  // namespace paceline::comm::device
