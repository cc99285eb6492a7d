// SPDX-License-Identifier: Apache-2.0
// Which kind of lane sums what lies in memory of GPUs over hosts: by GPUDirect RDMA where every
// rank can and has seen it work, else through the host's memory. All ranks agree over the
// processors' memory, step by step, so all take the same, for the same reason.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../communicator.hpp"
#include "direct_trial.hpp"
#include "pinned_lane.hpp"

namespace paceline::comm {
namespace {

constexpr std::chrono::seconds kLaneTrial{5};

// What a rank says in each step; behind it come its queue pairs' addresses for each host.
struct LaneWord {
  std::array<char, 248> refusal{};
  std::uint32_t rails = 0;
  std::uint32_t salt = 0;
};
static_assert(sizeof(LaneWord) % sizeof(std::int64_t) == 0 &&
              sizeof(device::PeerAddresses) % sizeof(std::int64_t) == 0);

// What all ranks say, each as much as this one.
class LaneWords {
 public:
  // Gives what this rank says, and gets what all say, in numbers of 64 bits; whether it could.
  using Gather = std::function<bool(const std::byte* own, std::byte* all, std::size_t count)>;

  LaneWords(std::uint32_t ranks, std::uint32_t hosts, Gather gather)
      : gather_(std::move(gather)),
        own_(sizeof(LaneWord) + hosts * sizeof(device::PeerAddresses)),
        all_(ranks * own_.size()) {}

  void say(std::uint32_t rails, std::uint32_t salt) {
    mine_.rails = rails;
    mine_.salt = salt;
  }
  void say(std::uint32_t host, const device::PeerAddresses& addresses) {
    std::memcpy(own_.data() + address_at(host), &addresses, sizeof addresses);
  }
  // The refusal of any rank, by its name, is one of all; false where they cannot be asked.
  bool agree(std::string& refusal) {
    mine_.refusal = {};
    refusal.copy(mine_.refusal.data(), mine_.refusal.size() - 1);
    std::memcpy(own_.data(), &mine_, sizeof mine_);
    if (!gather_(own_.data(), all_.data(), own_.size() / sizeof(std::int64_t))) return false;
    refusal.clear();
    for (std::uint32_t rank = 0; rank < all_.size() / own_.size() && refusal.empty(); ++rank) {
      LaneWord word = of(rank);
      word.refusal.back() = '\0';
      if (word.refusal[0] != '\0') refusal = rank_name(rank) + ": " + word.refusal.data();
    }
    return true;
  }

  LaneWord of(std::uint32_t rank) const { return get<LaneWord>(rank, 0); }
  // Of a rank's queue pairs to a host.
  device::PeerAddresses addresses(std::uint32_t rank, std::uint32_t host) const {
    return get<device::PeerAddresses>(rank, address_at(host));
  }

 private:
  static std::size_t address_at(std::uint32_t host) {
    return sizeof(LaneWord) + host * sizeof(device::PeerAddresses);
  }
  template <typename Value>
  Value get(std::uint32_t rank, std::size_t at) const {
    Value value;
    std::memcpy(&value, all_.data() + rank * own_.size() + at, sizeof value);
    return value;
  }

  const Gather gather_;
  LaneWord mine_;
  std::vector<std::byte> own_;
  std::vector<std::byte> all_;
};

}  // namespace

std::expected<std::unique_ptr<device::DirectLane>, Error> Communicator::make_direct_lane(
    device::Pool& pool, std::string& refusal) {
  const std::uint32_t hosts = topology_.hosts();
  LaneWords words(ranks(), hosts <= device::kMostDirectHosts ? hosts : 0,
                  [&](const std::byte* own, std::byte* all, std::size_t count) {
                    return allgather(own, all, count, Type::kI64) == PACELINE_OK;
                  });
  std::vector<std::uint32_t> members;  // of the lane, where this rank has one
  if (lane_ != nullptr)
    for (const auto& group : topology_.groups) members.push_back(group[topology_.local]);
  std::unique_ptr<device::DirectLane> direct;
  if (lane_ != nullptr && rdma_ == nullptr) refusal = no_rdma_;
  if (lane_ != nullptr && rdma_ != nullptr) {
    auto made = device::DirectLane::make(pool, {.rdma = *rdma_,
                                                .ranks = members,
                                                .position = topology_.group,
                                                .lane = topology_.local,
                                                .alone = topology_.mates().size() == 1,
                                                .ring = *lane_,
                                                .watch = *watch_});
    if (made) {
      direct = std::move(*made);
      std::uint32_t salt = 0;
      ::syscall(SYS_getrandom, &salt, sizeof salt, 0);
      words.say(static_cast<std::uint32_t>(direct->rails()), salt);
      for (std::uint32_t host = 0; host < hosts; ++host)
        if (host != topology_.group) words.say(host, direct->addresses(host));
    } else {
      refusal = made.error();
    }
  }
  if (!words.agree(refusal)) return std::unexpected(error());
  if (!refusal.empty()) return nullptr;

  std::vector<device::PeerAddresses> peers;
  std::vector<std::uint32_t> salts;
  std::size_t rails = device::kMostDirectRails;
  for (const std::uint32_t rank : members) {
    peers.push_back(words.addresses(rank, topology_.group));
    salts.push_back(words.of(rank).salt);
    rails = std::min<std::size_t>(rails, words.of(rank).rails);
  }
  if (direct != nullptr) refusal = direct->connect(rails, peers);
  if (!words.agree(refusal)) return std::unexpected(error());
  if (!refusal.empty()) return nullptr;

  if (direct != nullptr)
    refusal = device::try_lane(*direct, pool, salts, topology_.group, topology_.local,
                               Clock::now() + kLaneTrial);
  if (!words.agree(refusal)) return std::unexpected(error());
  if (!refusal.empty()) return nullptr;
  return direct;
}

std::expected<std::unique_ptr<device::Lane>, Error> Communicator::make_device_lane(
    device::Pool& pool) {
  if (topology_.hosts() == 1) return nullptr;
  std::string refusal;
  // What the plan says is said to all ranks, and needs no reason.
  if (plan_.gpudirect && plan_.transport != Transport::kTcp) {
    auto direct = make_direct_lane(pool, refusal);
    if (!direct) return std::unexpected(direct.error());
    if (*direct != nullptr) {
      const std::vector<int> files = (*direct)->files();
      const std::lock_guard lock(mutex_);
      descriptors_.insert(descriptors_.end(), files.begin(), files.end());
      ways_ += " # " + rank_name(options_.rank) + " to its lane by GPUDirect " + (*direct)->names();
      return std::move(*direct);
    }
  }
  if (!refusal.empty()) {
    const std::lock_guard lock(mutex_);
    ways_ += " # GPUs' lanes through the host's memory: " + refusal;
  }
  if (lane_ == nullptr) return nullptr;
  return std::make_unique<device::PinnedLane>(pool, *lane_, topology_.hosts(), topology_.group);
}

}  // namespace paceline::comm
