// SPDX-License-Identifier: Apache-2.0
// What who connects says first, and what a connection is for. Shows the nonce from the card of the
// rank it connects to.
//
// Ownership: values. Threads: pure functions. Failure: a socket that is none, with errno; false for
// a stranger.
#pragma once

#include <array>
#include <cstdint>

#include "base/fd.hpp"
#include "comm/bootstrap/peer_info.hpp"

namespace paceline::comm {

enum Purpose : std::uint32_t {
  kWatching = 0,
  kFlatRing = 1,
  kLaneRing = 2,
  kDirectly = 3,
  kTogether = 4,
  kMemory = 5
};

struct Hello {
  std::array<char, 16> magic{'p', 'a', 'c', 'e', 'l', 'i', 'n', 'e',
                             '-', 'c', 'o', 'm', 'm', '-', '1', '\0'};
  std::array<char, 32> nonce{};
  std::uint32_t from = 0;
  std::uint32_t purpose = 0;
  std::uint32_t flow = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(Hello) == 64);

// Who has connected and has not said all of it.
struct Caller {
  base::Fd socket;
  std::array<char, sizeof(Hello)> bytes{};
  std::size_t got = 0;
};

Hello hello_to(const Card& peer, std::uint32_t from, std::uint32_t purpose, std::uint32_t flow);
// Whether it shows the nonce of `mine`.
bool is_proper(const Hello& hello, const Card& mine);

// A connection begun, from this rank's endpoint of that number to the peer's; writable when it is
// there.
base::Fd dial(const Card& mine, const Card& peer, std::size_t endpoint);
// What has become of it; then says hello: 0, or an errno.
int greet(const base::Fd& socket, const Card& peer, std::uint32_t from, std::uint32_t purpose,
          std::uint32_t flow);
// The next one at the door, without waiting.
base::Fd answer(const base::Fd& door);
enum class Heard : std::uint8_t { kMore, kAll, kStranger };
// Reads on, without waiting: kAll with `hello` where it shows the nonce of `mine`.
Heard hear(Caller& caller, const Card& mine, Hello& hello);

}  // namespace paceline::comm
