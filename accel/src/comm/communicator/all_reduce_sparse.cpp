// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "comm/communicator/communicator.hpp"
#include "comm/communicator/sparse.hpp"

namespace paceline::comm {

Sparse merged(std::span<const std::int64_t> indices, const std::byte* values, std::uint64_t width,
              Type type) {
  std::vector<std::uint64_t> order(indices.size());
  std::iota(order.begin(), order.end(), 0);
  // Equal indices keep the order of the input.
  std::ranges::sort(order, {},
                    [&](std::uint64_t place) { return std::pair(indices[place], place); });
  const std::size_t row = width * size_of(type);
  Sparse result;
  result.indices.reserve(order.size());
  for (const std::uint64_t place : order) {
    if (result.indices.empty() || result.indices.back() != indices[place])
      result.indices.push_back(indices[place]);
  }
  result.values.resize(result.indices.size() * row);
  std::vector<const std::byte*> same;
  std::size_t at = 0;
  for (std::size_t i = 0; i < result.indices.size(); ++i) {
    same.clear();
    for (; at < order.size() && indices[order[at]] == result.indices[i]; ++at)
      same.push_back(values + order[at] * row);
    if (same.size() == 1) {
      std::memcpy(result.values.data() + i * row, same.front(), row);
    } else {
      sum(type, result.values.data() + i * row, same, width);
    }
  }
  return result;
}

// Every rank's rows go around once, and each rank adds them up in the same order.
bool Communicator::gather_rows(const Call& call, const Rows& own, Type type, Sparse& result) {
  const std::uint32_t n = ranks();
  std::vector<std::uint64_t> counts(n);
  counts[topology_.rank] = own.count;
  std::vector<std::uint64_t> ends(n + 1);
  for (std::uint32_t rank = 0; rank <= n; ++rank) ends[rank] = rank * sizeof(std::uint64_t);
  if (!gather_parts(call, reinterpret_cast<std::byte*>(counts.data()), ends)) return false;

  const std::size_t row = own.width * size_of(type);
  std::vector<std::uint64_t> rows(n + 1);
  std::partial_sum(counts.begin(), counts.end(), rows.begin() + 1);
  std::vector<std::int64_t> indices(rows.back());
  std::vector<std::byte> values(rows.back() * row);
  const auto around = [&](std::byte* all, const void* mine, std::size_t size) {
    for (std::uint32_t rank = 0; rank <= n; ++rank) ends[rank] = rows[rank] * size;
    if (own.count > 0) std::memcpy(all + ends[topology_.rank], mine, own.count * size);
    return gather_parts(call, all, ends);
  };
  if (!around(reinterpret_cast<std::byte*>(indices.data()), own.indices, sizeof(std::int64_t)) ||
      !around(values.data(), own.values, row))
    return false;
  result = merged(indices, values.data(), own.width, type);
  return true;
}

int Communicator::all_reduce_sparse(const Rows& own, Type type, Sparse& result) {
  if (ranks() == 1) result = merged({own.indices, own.count}, own.values, own.width, type);
  return call_all(Kind::kSparse, own.width, type, 0, [&](const Call& call) {
    try {
      return gather_rows(call, own, type, result);
    } catch (const std::exception& error) {
      // The peers are in this call and would wait for this rank.
      give_up(std::string("a sparse allreduce: ") + error.what());
      return false;
    }
  });
}

}  // namespace paceline::comm
