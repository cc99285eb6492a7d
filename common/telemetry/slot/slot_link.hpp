// SPDX-License-Identifier: Apache-2.0
// What a launcher and its node's agent say to each other over the socket in the slot's folder: who
// the ranks are, their rings, and how far these were read. SOCK_SEQPACKET, one frame a message,
// little-endian, no pointers: the two may be of different releases. docs/designs/contracts.md holds
// the order of the frames.
//
// Whoever is in the container can say any of this: the agent believes of it only what the kubelet
// confirms.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "paceline/step_record.h"

namespace paceline::telemetry {

/// Name of the socket in the slot's folder.
inline constexpr std::string_view kSlotSocket = "telemetry.sock";

inline constexpr std::uint32_t kSlotMagic = 0x544C5350;  // "PSLT"
inline constexpr std::uint16_t kSlotVersion = 1;
/// A frame of a later release may be longer; nothing is.
inline constexpr std::size_t kMostSlotFrame = 1024;

enum class SlotKind : std::uint16_t {
  kBegin = 1,  // launcher: this attempt's ranks; earlier rings are over
  // agent, once: the pod is who it says, and its ranks' metrics are the agent's to serve from now
  // on
  kTaken = 2,
  kRing = 3,  // launcher: a ring, with its memfd
  kGone = 4,  // launcher: the rank behind that ring is gone
  kRead = 5,  // agent: how far it has counted and read a ring
  kDone = 6,  // agent: what it was told under that number is counted to its end
  // agent: a bound keeps that ring out; its rank's metrics are the launcher's to serve
  kRefused = 7,
  kPast = 8,  // launcher: a ring of an earlier attempt, with its memfd, to be read out at once
  kLost = 9,  // launcher: so many of a rank's records could not be kept for an agent
  // launcher: what a check found in this pod; its text follows the frame (slot_finding.hpp)
  kFinding = 10,
};

/// Of `features`: knows kRead, kDone, kRefused, kPast and kLost. Neither side sends what the other
/// does not know.
inline constexpr std::uint32_t kSlotHandsOver = 1;
/// Knows kFinding.
inline constexpr std::uint32_t kSlotFindings = 2;

struct SlotFrame {
  std::uint32_t magic = kSlotMagic;
  std::uint16_t version = kSlotVersion;
  std::uint16_t size = 0;  // bytes that the sender filled
  std::uint16_t kind = 0;
  std::uint16_t reserved = 0;
  std::uint32_t attempt = 0;
  // kBegin
  std::int32_t node_rank = 0;
  std::int32_t first_rank = 0;
  std::int32_t processes = 0;
  std::int32_t replica_index = 0;
  std::int32_t incarnation = 0;
  std::uint32_t features = 0;  // kTaken as well
  std::array<char, 64> job{};  // NUL-terminated, so is the next
  std::array<char, 64> role{};
  // all that are about a ring
  std::uint64_t ring = 0;   // a number of the launcher's, never used twice on a connection
  std::uint64_t start = 0;  // records before this one were counted; of kLost: how many were lost
  paceline_ring_offer offer{};
  // records before this one were read: those from `start` on wait for what amends them
  std::uint64_t read = 0;
};

static_assert(offsetof(SlotFrame, job) == 40 && offsetof(SlotFrame, ring) == 168 &&
              offsetof(SlotFrame, offer) == 184);
static_assert(offsetof(SlotFrame, read) == 248 && sizeof(SlotFrame) == 256, "a frame is 256 bytes");
/// The first release's frame ended with the offer.
inline constexpr std::size_t kLeastSlotFrame = offsetof(SlotFrame, read);

}  // namespace paceline::telemetry
