// SPDX-License-Identifier: Apache-2.0
// What the other end needs to connect to a queue pair. Ownership: a value, sent as it lies in
// memory. Threads: a value. Nothing fails.
#pragma once

#include <array>
#include <cstdint>

namespace paceline::comm {

struct QueuePairAddress {
  std::uint32_t number = 0;    // the queue pair's number
  std::uint32_t sequence = 0;  // number of its first packet
  std::array<std::uint8_t, 16> gid{};
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;       // 1 is 256 bytes, 5 is 4096
  std::uint8_t ethernet = 0;  // 1: reached by GID; 0: by LID
  std::uint32_t zero = 0;
};
static_assert(sizeof(QueuePairAddress) == 32);

}  // namespace paceline::comm
