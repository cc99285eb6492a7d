// SPDX-License-Identifier: Apache-2.0
// The first message on every connection: who connects, for which purpose, and the nonce from the
// peer info of the rank that it connects to.
//
// Ownership: values. Threads: pure functions. Failure: an empty Fd and errno; kWrong for a wrong
// handshake.
#pragma once

#include <array>
#include <cstdint>

#include "base/fd.hpp"
#include "comm/bootstrap/peer_info.hpp"

namespace paceline::comm {

enum Purpose : std::uint32_t {
  kFailureDetector = 0,
  kFlatRing = 1,
  kChannelRing = 2,
  kDirectly = 3,
  kTogether = 4,
  kMemory = 5
};

struct Handshake {
  std::array<char, 16> magic{'p', 'a', 'c', 'e', 'l', 'i', 'n', 'e',
                             '-', 'c', 'o', 'm', 'm', '-', '1', '\0'};
  std::array<char, 32> nonce{};
  std::uint32_t from = 0;
  std::uint32_t purpose = 0;
  std::uint32_t flow = 0;
  std::uint32_t zero = 0;
};
static_assert(sizeof(Handshake) == 64);

// An accepted connection that has not sent its whole handshake yet.
struct PendingConnection {
  base::Fd socket;
  std::array<char, sizeof(Handshake)> bytes{};
  std::size_t got = 0;
};

Handshake handshake_to(const PeerInfo& peer, std::uint32_t from, std::uint32_t purpose,
                       std::uint32_t flow);
// Whether the handshake shows the nonce of `mine`.
bool shows_nonce(const Handshake& handshake, const PeerInfo& mine);

// Starts to connect from this rank's endpoint of that number to the peer's. The socket becomes
// writable once the attempt has ended.
base::Fd start_connecting(const PeerInfo& mine, const PeerInfo& peer, std::size_t endpoint);
// Checks the result of the attempt and sends the handshake. Returns 0 or an errno.
int send_handshake(const base::Fd& socket, const PeerInfo& peer, std::uint32_t from,
                   std::uint32_t purpose, std::uint32_t flow);
// Accepts the next connection at the listener, without waiting.
base::Fd accept_next(const base::Fd& listener);
enum class HandshakeRead : std::uint8_t { kIncomplete, kComplete, kWrong };
// Reads more of the handshake, without waiting. Returns kComplete and sets `handshake` if it is
// complete and shows the nonce of `mine`.
HandshakeRead read_handshake(PendingConnection& caller, const PeerInfo& mine, Handshake& handshake);

}  // namespace paceline::comm
