// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/host_stage.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

namespace paceline::comm {

HostStage::HostStage(const Topology& topology, Region& region, Ring* channel,
                     FailureDetector& detector)
    : Pipeline(topology, region, detector), channel_(channel), sent_(0) {}

Part HostStage::chunk_of(const Work& work, std::uint32_t number) const {
  const std::uint64_t begin = number * work.chunk;
  return {.begin = begin, .count = std::min(work.chunk, work.count - begin)};
}

// Where a channel puts its shard of a result. The place is the same in every chunk, even in the
// shorter last one. Otherwise one channel could overwrite what a slower one is still sending.
std::byte* HostStage::result(const Work& work, std::uint32_t number, std::uint32_t channel) const {
  return region_.slot(ranks_, base_ + number) +
         part_of(work.chunk, topology_.channels, channel).begin * size_of(work.type);
}

bool HostStage::copy_in(Work& work) {
  if (work.copied_in == work.chunks) return false;
  // The slot is free once the channels have added up its previous contents.
  if (!all_reached(&Cell::added, base_ + work.copied_in + 1 - kDepth, topology_.channels))
    return false;
  const Part part = chunk_of(work, work.copied_in);
  const std::size_t size = size_of(work.type);
  std::memcpy(region_.slot(topology_.local, base_ + work.copied_in), work.data + part.begin * size,
              part.count * size);
  ++work.copied_in;
  mine().copied_in.store(base_ + work.copied_in, std::memory_order_release);
  ring_all();
  return true;
}

bool HostStage::add(Work& work) {
  if (!adds_ || work.added == work.chunks) return false;
  // The result's slot is free once all ranks have copied it out and the ring has sent it.
  if (!all_reached(&Cell::copied_in, base_ + work.added + 1, ranks_)) return false;
  if (!all_reached(&Cell::copied_out, base_ + work.added + 1 - kDepth, ranks_)) return false;
  if (channel_ != nullptr && sent_.load(std::memory_order_acquire) + kDepth <= work.added)
    return false;
  const Part shard = part_of(chunk_of(work, work.added).count, topology_.channels, topology_.local);
  const std::size_t size = size_of(work.type);
  std::vector<const std::byte*> sources;
  for (std::uint32_t local = 0; local < ranks_; ++local)
    sources.push_back(region_.slot(local, base_ + work.added) + shard.begin * size);
  sum(work.type, result(work, work.added, topology_.local), sources, shard.count);
  if (work.ring != nullptr)
    work.ring->begin(reinterpret_cast<const float*>(result(work, work.added, topology_.local)),
                     work.residual + work.added * stride(work) * work.ring->coding().residuals(),
                     coded(work, work.added), shard.count);
  ++work.added;
  mine().added.store(base_ + work.added, std::memory_order_release);
  if (channel_ == nullptr) mine().finished.store(base_ + work.added, std::memory_order_release);
  ring_all();
  if (channel_ != nullptr) channel_->open(work.added);
  return true;
}

bool HostStage::copy_out(Work& work) {
  if (work.copied_out == work.chunks) return false;
  if (!all_reached(&Cell::finished, base_ + work.copied_out + 1, topology_.channels)) return false;
  const Part part = chunk_of(work, work.copied_out);
  const std::size_t size = size_of(work.type);
  for (std::uint32_t channel = 0; channel < topology_.channels; ++channel) {
    const Part shard = part_of(part.count, topology_.channels, channel);
    std::memcpy(work.data + (part.begin + shard.begin) * size,
                result(work, work.copied_out, channel), shard.count * size);
  }
  ++work.copied_out;
  mine().copied_out.store(base_ + work.copied_out, std::memory_order_release);
  ring_all();
  return true;
}

// Does all work that can be done now. Returns whether there was any.
bool HostStage::advance(Work& work) {
  bool some = false;
  while (copy_out(work)) some = true;
  while (add(work)) some = true;
  if (copy_in(work)) some = true;
  return some;
}

void HostStage::start_channel(const Call& call, const Work& work) {
  const std::uint32_t hosts = topology_.hosts();
  const std::size_t size = size_of(work.type);
  std::vector<Step> steps;
  for (std::uint32_t number = 0; number < work.chunks; ++number) {
    const Part shard = part_of(chunk_of(work, number).count, topology_.channels, topology_.local);
    add_all_reduce(steps, result(work, number, topology_.local), shard.count, size, hosts,
                   topology_.group, number + 1);
  }
  start_ring(call, work, std::move(steps), 2 * (std::uint64_t{hosts} - 1));
}

// `each`: steps for one chunk.
void HostStage::start_ring(const Call& call, const Work& work, std::vector<Step> steps,
                           std::uint64_t each) {
  sent_.store(0);
  channel_->start(call, work.type, std::move(steps),
                  {.sent =
                       [this, each](std::uint64_t done) {
                         if (done % each != 0) return;
                         sent_.store(done / each, std::memory_order_release);
                         mine().bell.ring();
                       },
                   .received =
                       [this, each, work](std::uint64_t done) {
                         if (done % each != 0) return;
                         const auto number = static_cast<std::uint32_t>(done / each - 1);
                         if (work.ring != nullptr)
                           work.ring->end(
                               coded(work, number),
                               reinterpret_cast<float*>(result(work, number, topology_.local)),
                               shard_count(work, number));
                         mine().finished.store(base_ + number + 1, std::memory_order_release);
                         ring_all();
                       }});
}

std::uint64_t HostStage::stride(const Work& work) const {
  return part_of(work.chunk, topology_.channels, topology_.local).count;
}

std::uint64_t HostStage::shard_count(const Work& work, std::uint32_t number) const {
  return part_of(chunk_of(work, number).count, topology_.channels, topology_.local).count;
}

std::byte* HostStage::coded(const Work& work, std::uint32_t number) {
  return coded_.data() + number % kDepth * work.ring->bytes(stride(work));
}

std::uint64_t HostStage::residual_count(std::uint64_t count, std::size_t chunk_bytes) const {
  if (channel_ == nullptr || count == 0) return 0;
  const Work work = work_of(Type::kF32, nullptr, count, chunk_bytes);
  return (work.chunks - 1) * stride(work) + shard_count(work, work.chunks - 1);
}

void HostStage::start_coded_channel(const Call& call, const Work& work) {
  coded_.resize(kDepth * work.ring->bytes(stride(work)));
  std::vector<Step> steps;
  for (std::uint32_t number = 0; number < work.chunks; ++number)
    work.ring->add_steps(steps,
                         reinterpret_cast<const float*>(result(work, number, topology_.local)),
                         work.residual + number * stride(work) * work.ring->coding().residuals(),
                         coded(work, number), shard_count(work, number), number + 1);
  start_ring(call, work, std::move(steps), work.ring->steps());
}

HostStage::Work HostStage::work_of(Type type, std::byte* data, std::uint64_t count,
                                   std::size_t chunk_bytes) {
  const std::uint64_t chunk = chunk_bytes / size_of(type);
  return {.type = type,
          .data = data,
          .count = count,
          .chunk = chunk,
          .chunks = static_cast<std::uint32_t>((count + chunk - 1) / chunk)};
}

bool HostStage::all_reduce(const Call& call, Type type, std::byte* data, std::uint64_t count,
                           std::size_t chunk_bytes) {
  Work work = work_of(type, data, count, chunk_bytes);
  if (channel_ != nullptr) start_channel(call, work);
  return run(call, work);
}

bool HostStage::all_reduce_coded(const Call& call, const CodedRing& ring, float* data,
                                 std::uint64_t count, std::size_t chunk_bytes, float* residual) {
  Work work = work_of(Type::kF32, reinterpret_cast<std::byte*>(data), count, chunk_bytes);
  if (channel_ != nullptr) {
    work.ring = &ring;
    work.residual = residual;
    start_coded_channel(call, work);
  }
  return run(call, work);
}

bool HostStage::run(const Call& call, Work& work) {
  Pipeline::run(call, {.copy_in = [&] { return copy_in(work); },
                       .advance = [&] { return advance(work); },
                       .is_done = [&] { return work.copied_out == work.chunks; },
                       .awaited_across = channel_ == nullptr ? nullptr : std::function([this] {
                         return channel_->previous();
                       })});
  if (channel_ != nullptr) channel_->finish();
  next(work.chunks);
  return !detector_.failed();
}

}  // namespace paceline::comm
