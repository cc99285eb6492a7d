// SPDX-License-Identifier: Apache-2.0
// The part of a hierarchical all-reduce inside a host, through shared slots. Every rank copies its
// chunks in. Each channel adds up its shard of them and, with several hosts, sends it around its
// ring across hosts. Every rank copies the results out. The three steps overlap on different
// chunks, at most kDepth of them.
//
// Ownership: none; region, failure detector and ring outlive it. Threads: one call at a time.
// Failure: false; the failure detector has the reason.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/codec/sum.hpp"
#include "comm/collective/coded_ring.hpp"
#include "comm/collective/pipeline.hpp"
#include "comm/collective/ring.hpp"
#include "comm/failure/call.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/plan/plan.hpp"
#include "comm/transport/shm/region.hpp"

namespace paceline::comm {

class HostStage : private Pipeline {
 public:
  // `channel` is null if there is one host, or if this rank has no channel.
  HostStage(const Topology& topology, Region& region, Ring* channel, FailureDetector& detector);
  // `chunk_bytes` is at most the size of a slot.
  bool all_reduce(const Call& call, Type type, std::byte* data, std::uint64_t count,
                  std::size_t chunk_bytes);
  // As all_reduce, for floats in coded form between hosts. `residual` has residual_count() values.
  bool all_reduce_coded(const Call& call, const CodedRing& ring, float* data, std::uint64_t count,
                        std::size_t chunk_bytes, float* residual);
  std::uint64_t residual_count(std::uint64_t count, std::size_t chunk_bytes) const;

 private:
  struct Work {
    Type type;
    std::byte* data;
    std::uint64_t count;
    std::uint64_t chunk;  // in elements
    std::uint32_t chunks;
    std::uint32_t copied_in = 0, added = 0, copied_out = 0;
    const CodedRing* ring = nullptr;
    float* residual = nullptr;
  };

  static Work work_of(Type type, std::byte* data, std::uint64_t count, std::size_t chunk_bytes);
  bool run(const Call& call, Work& work);
  // The size of this rank's shard in elements, for every chunk but the last.
  std::uint64_t stride(const Work& work) const;
  std::uint64_t shard_count(const Work& work, std::uint32_t number) const;
  std::byte* coded(const Work& work, std::uint32_t number);
  void start_coded_channel(const Call& call, const Work& work);
  void start_ring(const Call& call, const Work& work, std::vector<Step> steps, std::uint64_t each);

  bool copy_in(Work& work);
  bool add(Work& work);
  bool copy_out(Work& work);
  bool advance(Work& work);
  void start_channel(const Call& call, const Work& work);
  std::byte* result(const Work& work, std::uint32_t number, std::uint32_t channel) const;
  Part chunk_of(const Work& work, std::uint32_t number) const;

  Ring* channel_;
  std::atomic<std::uint64_t> sent_;  // chunks of this call that the channel has sent
  std::vector<std::byte> coded_;     // coded data of kDepth chunks that goes around the channel
};

}  // namespace paceline::comm
