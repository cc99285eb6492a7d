// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/shm/region.hpp"

namespace paceline::comm {

std::size_t Region::bytes(std::uint32_t ranks, std::size_t chunk) {
  return ranks * kPart + (ranks + std::size_t{1}) * kDepth * chunk;
}

base::Fd Region::create(std::uint32_t ranks, std::size_t chunk) {
  return make_memory_file("paceline-comm", bytes(ranks, chunk));
}

std::unique_ptr<Region> Region::map(const base::Fd& file, std::uint32_t ranks, std::size_t chunk) {
  auto mapping = Mapping::of(file, bytes(ranks, chunk));
  if (mapping == nullptr) return nullptr;
  return std::unique_ptr<Region>(new Region(std::move(mapping), ranks, chunk));
}

std::unique_ptr<Region> Region::alone(std::size_t chunk) {
  auto mapping = Mapping::alone(bytes(1, chunk));
  if (mapping == nullptr) return nullptr;
  return std::unique_ptr<Region>(new Region(std::move(mapping), 1, chunk));
}

}  // namespace paceline::comm
