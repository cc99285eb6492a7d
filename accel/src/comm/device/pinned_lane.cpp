// SPDX-License-Identifier: Apache-2.0
#include "pinned_lane.hpp"

#include <utility>
#include <vector>

namespace paceline::comm::device {
namespace {

cuda::Address address_of(const std::byte* memory) {
  return reinterpret_cast<cuda::Address>(memory);
}

}  // namespace

void PinnedLane::start(Stage& stage, Work work) {
  stage_ = &stage;
  work_ = std::move(work);
  opened_.store(0);
  sent_.store(0);
  received_.store(0);
  const std::uint64_t each = 2 * (std::uint64_t{hosts_} - 1);  // steps of a chunk
  std::vector<Step> steps;
  for (std::uint32_t number = 0; number < work_.chunks; ++number)
    add_allreduce(steps, pool_.host_result(work_.base + number), work_.shard(number).count,
                  size_of(work_.type), hosts_, position_, number + 1);
  ring_.start(work_.call, work_.type, std::move(steps),
              {.sent =
                   [this, each](std::uint64_t done) {
                     if (done % each != 0) return;
                     sent_.store(done / each, std::memory_order_release);
                     stage_->ring();
                   },
               .received =
                   [this, each](std::uint64_t done) {
                     if (done % each != 0) return;
                     received_.store(done / each, std::memory_order_release);
                     raise(static_cast<std::uint32_t>(done / each - 1));
                   }});
}

void PinnedLane::open(std::uint32_t chunks) {
  opened_.store(chunks, std::memory_order_release);
  ring_.open(chunks);
}

std::optional<std::uint32_t> PinnedLane::awaited() const {
  if (received_.load(std::memory_order_acquire) >= opened_.load(std::memory_order_acquire))
    return std::nullopt;
  return ring_.previous();
}

bool PinnedLane::lower(std::uint32_t number) {
  const Shard shard = work_.shard(number);
  return stage_->good(pool_.copy(address_of(pool_.host_result(work_.base + number)), shard.result,
                                 shard.count * size_of(work_.type), Pool::kAdding),
                      "cuMemcpyAsync");
}

void PinnedLane::raise(std::uint32_t number) {
  const cuda::Current current = pool_.current();
  const Shard shard = work_.shard(number);
  if (stage_->good(pool_.copy(shard.result, address_of(pool_.host_result(work_.base + number)),
                              shard.count * size_of(work_.type), Pool::kRaising),
                   "cuMemcpyAsync"))
    stage_->expect_raised(number);
}

}  // namespace paceline::comm::device
