// SPDX-License-Identifier: Apache-2.0
// The protocol between a launcher and its node's agent, over the socket in the slot's folder: the
// identity of the ranks, their rings, and how far these were read. SOCK_SEQPACKET, one frame per
// message, little-endian, no pointers, because the two may be of different releases.
// docs/designs/contracts.md defines the order of the frames.
//
// Any process in the container can send these frames. The agent believes only what the kubelet
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
/// A frame of a later release may be longer than SlotFrame, but never longer than this.
inline constexpr std::size_t kMostSlotFrame = 1024;

enum class SlotKind : std::uint16_t {
  kBegin = 1,  // launcher: the ranks of this attempt; earlier rings are closed
  // agent, once: the pod's identity is confirmed, and from now on the agent serves the metrics of
  // its ranks
  kTaken = 2,
  kRing = 3,  // launcher: a ring, with its memfd
  kGone = 4,  // launcher: the rank behind that ring is gone
  kRead = 5,  // agent: how far it has counted and read a ring
  kDone = 6,  // agent: everything sent under that number is counted to its end
  // agent: a limit excludes that ring; the launcher serves the metrics of its rank
  kRefused = 7,
  // launcher: a ring of an earlier attempt, with its memfd, to be read to its end at once
  kPast = 8,
  kLost = 9,  // launcher: this many of a rank's records could not be kept for an agent
  // launcher: what a check found in this pod; the text follows the frame (slot_finding.hpp)
  kFinding = 10,
};

/// A bit of `features`: the sender knows kRead, kDone, kRefused, kPast and kLost. Neither side
/// sends kinds that the other does not know.
inline constexpr std::uint32_t kSlotHandsOver = 1;
/// A bit of `features`: the sender knows kFinding.
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
  // all kinds about a ring
  std::uint64_t ring = 0;   // the launcher's number, never used twice on a connection
  std::uint64_t start = 0;  // records before this one were counted; in kLost: how many were lost
  paceline_ring_offer offer{};
  // records before this one were read; those from `start` on wait for amendments
  std::uint64_t read = 0;
};

static_assert(offsetof(SlotFrame, job) == 40 && offsetof(SlotFrame, ring) == 168 &&
              offsetof(SlotFrame, offer) == 184);
static_assert(offsetof(SlotFrame, read) == 248 && sizeof(SlotFrame) == 256, "a frame is 256 bytes");
/// The frame of the first release ended with the offer.
inline constexpr std::size_t kLeastSlotFrame = offsetof(SlotFrame, read);

}  // namespace paceline::telemetry
