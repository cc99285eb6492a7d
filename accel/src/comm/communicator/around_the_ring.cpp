// SPDX-License-Identifier: Apache-2.0
// The collectives that go around the flat ring of all ranks: reduce-scatter, all-gather, broadcast
// and reduce. The last two take a tree instead where the plan says that latency counts.
#include <algorithm>
#include <cstring>

#include "comm/communicator/communicator.hpp"

namespace paceline::comm {

// Send a few columns of every piece at a time, to limit the memory for what passes through.
bool Communicator::scatter_columns(const Call& call, const std::byte* in, std::byte* out,
                                   std::uint64_t count, Type type) {
  const std::size_t size = size_of(type);
  const std::uint32_t n = ranks();
  constexpr std::uint64_t kLeast = 1024;
  const std::uint64_t most = std::max(kLeast, 4 * plan_.chunk / n / size);
  std::vector<std::byte> passing((n - 1) * std::min(most, count) * size);
  for (std::uint64_t begin = 0; begin < count; begin += most) {
    const std::uint64_t columns = std::min(most, count - begin);
    const auto piece = [&](std::uint32_t position) {
      return in + (at(position) * count + begin) * size;
    };
    std::vector<Step> steps;
    // The piece of position p starts at position p + 1 and is complete at p.
    for (std::uint32_t s = 0; s + 1 < n; ++s) {
      std::byte* const scratch = passing.data() + s * columns * size;
      steps.push_back({.out = s == 0 ? piece(topology_.position + n - 1) : scratch - columns * size,
                       .out_bytes = columns * size,
                       .after = static_cast<std::int64_t>(s) - 1,
                       .in = s + 2 == n ? out + begin * size : scratch,
                       .over = -1,
                       .in_bytes = columns * size,
                       .own = piece(topology_.position + 2 * n - 2 - s),
                       .gate = 0});
    }
    if (!ring_->run(call, type, steps)) return false;
  }
  return true;
}

int Communicator::reduce_scatter(const std::byte* in, std::byte* out, std::uint64_t count,
                                 Type type) {
  if (ranks() == 1 && count > 0) std::memcpy(out, in, count * size_of(type));
  return call_all(Kind::kReduceScatter, count, type, 0,
                  [&](const Call& call) { return scatter_columns(call, in, out, count, type); });
}

bool Communicator::gather_parts(const Call& call, std::byte* out,
                                const std::vector<std::uint64_t>& ends) {
  const std::uint32_t n = ranks();
  std::vector<Step> steps;
  for (std::uint32_t s = 0; s + 1 < n; ++s) {
    const std::uint32_t sent = at(topology_.position + n - s);
    const std::uint32_t got = at(topology_.position + n - s - 1);
    steps.push_back({.out = out + ends[sent],
                     .out_bytes = ends[sent + 1] - ends[sent],
                     .after = static_cast<std::int64_t>(s) - 1,
                     .in = out + ends[got],
                     .over = -1,
                     .in_bytes = ends[got + 1] - ends[got],
                     .own = nullptr,
                     .gate = 0});
  }
  return ring_->run(call, Type::kI32, steps);
}

bool Communicator::gather_pieces(const Call& call, std::byte* out, std::uint64_t count, Type type) {
  std::vector<std::uint64_t> ends(ranks() + 1);
  for (std::uint32_t rank = 0; rank <= ranks(); ++rank) ends[rank] = rank * count * size_of(type);
  return gather_parts(call, out, ends);
}

int Communicator::all_gather(const std::byte* in, std::byte* out, std::uint64_t count, Type type) {
  const std::size_t bytes = count * size_of(type);
  std::byte* const place = out + topology_.rank * bytes;
  if (bytes > 0 && in != place) std::memmove(place, in, bytes);
  return call_all(Kind::kAllGather, count, type, 0,
                  [&](const Call& call) { return gather_pieces(call, out, count, type); });
}

bool Communicator::pass_on(const Call& call, std::byte* data, std::uint64_t count, Type type,
                           std::uint32_t root) {
  const std::size_t bytes = count * size_of(type);
  if (is_latency_bound(way_of(plan_, bytes).algorithm))
    return broadcast_tree(call, data, bytes, position_of(root));
  const bool first = topology_.rank == root;
  const bool last = at(topology_.position + 1) == root;
  const Step step{.out = data,
                  .out_bytes = last ? 0 : bytes,
                  .after = first ? -1 : 0,
                  .in = data,
                  .over = -1,
                  .in_bytes = first ? 0 : bytes,
                  .own = nullptr,
                  .gate = 0};
  return ring_->run(call, type, {step});
}

int Communicator::broadcast(std::byte* data, std::uint64_t count, Type type, std::uint32_t root) {
  return call_all(Kind::kBroadcast, count, type, root,
                  [&](const Call& call) { return pass_on(call, data, count, type, root); });
}

std::uint32_t Communicator::position_of(std::uint32_t rank) const {
  return static_cast<std::uint32_t>(std::ranges::find(topology_.order, rank) -
                                    topology_.order.begin());
}

// Once around the ring, from the root's successor to the root, in parts that limit the memory.
bool Communicator::reduce_ring(const Call& call, std::byte* data, std::uint64_t count, Type type,
                               std::uint32_t root) {
  const std::size_t size = size_of(type);
  const std::uint64_t most = std::max<std::uint64_t>(1, 4 * plan_.chunk / size);
  const bool first = at(topology_.position + ranks() - 1) == root;
  const bool last = topology_.rank == root;
  std::vector<std::byte> passing(first || last ? 0 : std::min(most, count) * size);
  for (std::uint64_t begin = 0; begin < count; begin += most) {
    const std::uint64_t bytes = std::min(most, count - begin) * size;
    std::byte* const own = data + begin * size;
    std::byte* const sum = first || last ? own : passing.data();
    const Step step{.out = sum,
                    .out_bytes = last ? 0 : bytes,
                    .after = first ? -1 : 0,
                    .in = sum,
                    .over = -1,
                    .in_bytes = first ? 0 : bytes,
                    .own = own,
                    .gate = 0};
    if (!ring_->run(call, type, {step})) return false;
  }
  return true;
}

int Communicator::reduce(std::byte* data, std::uint64_t count, Type type, std::uint32_t root) {
  return call_all(Kind::kReduce, count, type, root, [&](const Call& call) {
    const std::size_t bytes = count * size_of(type);
    if (!is_latency_bound(way_of(plan_, bytes).algorithm))
      return reduce_ring(call, data, count, type, root);
    if (topology_.rank == root) return reduce_tree(call, data, count, type, topology_.position);
    std::vector<std::byte> sums(data, data + bytes);
    return reduce_tree(call, sums.data(), count, type, position_of(root));
  });
}

}  // namespace paceline::comm
