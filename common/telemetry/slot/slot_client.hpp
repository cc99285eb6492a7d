// SPDX-License-Identifier: Apache-2.0
// SlotClient: hands the rings of this pod's ranks to the node's agent, again after every broken
// connection. Where the agent has taken them, it serves their metrics, and this pod must not serve
// them a second time. The agent says how far it has read, so that its successor goes on there: no
// record is counted twice, and none is lost that a ring still holds, rings of ended ranks and
// attempts included.
//
// Ownership: owns its connection and duplicates of the rings' descriptors. Thread-safe. `tend`
// never waits; it is called a few times a second. Nothing fails: an agent that is absent or refuses
// us is tried again, at once where it is absent, ever more rarely (30 s) where it refuses.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "common/base/unique_fd.hpp"
#include "common/telemetry/slot/slot_finding.hpp"
#include "common/telemetry/slot/slot_link.hpp"

namespace paceline::telemetry {

/// Who this pod's ranks are, as the agent compares it with the kubelet's word.
struct SlotClaim {
  std::string job;
  std::string role;
  int replica_index = 0;
  int incarnation = 0;
};

class SlotClient {
 public:
  /// `folder` is PACELINE_SLOT_DIR; empty: there is no slot, and nothing is ever handed over.
  SlotClient(const std::filesystem::path& folder, const SlotClaim& claim, const Clock& clock);

  /// As Collector::begin_attempt.
  void begin_attempt(std::uint32_t attempt, int node_rank, int first_rank, int processes);
  /// A ring that was taken here under this key.
  void add(std::uint64_t key, const paceline_ring_offer& offer, int fd);
  void remove(std::uint64_t key);
  void tend();
  /// What checks found in this pod; the first kMostFindings of them. Told to every agent that wants
  /// to know, also before the first attempt.
  void report(std::vector<SlotFinding> findings);
  /// Nothing is left to tell: an agent that takes us knows it, or there is no slot.
  bool reported() const;

  /// The agent has the rings: it serves the metrics of the ranks.
  bool held() const;
  /// While it does, the ranks that a bound of its keeps out, whose metrics are to be served here.
  /// Absent: all of them.
  std::optional<std::set<int>> served_here() const;

 private:
  /// Without a descriptor it is what is left of rings that could not be kept: `start` records of
  /// that rank.
  struct Ring {
    paceline_ring_offer offer{};
    UniqueFd fd;
    dev_t device = 0;
    ino_t inode = 0;
    std::uint64_t start = 0;  // agents have counted what is before
    std::uint64_t known = 0;  // and looked at what is before this
    bool past = false;        // of an attempt that is over
    bool gone = false;        // its rank is
    bool sent = false;
    bool told_gone = false;
    bool refused = false;
  };
  using Rings = std::map<std::uint64_t, Ring>;

  void connect();
  bool hear();
  void heed(const SlotFrame& frame);
  bool send(SlotKind kind, std::uint64_t key, const Ring* ring);
  static void cut(Ring& ring);
  bool send_ring(Rings::iterator& at);
  void send_findings();
  void send_rings();
  void lose();
  void keep_few();

  const std::string path_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  SlotFrame begin_;  // size 0 before the first attempt
  Rings rings_;
  std::set<int> refused_;  // ranks, in this attempt and by this agent
  std::uint64_t losses_ = 0;
  std::vector<SlotFinding> findings_;
  std::size_t told_ = 0;  // of them, on this connection
  UniqueFd socket_;
  bool taken_ = false;
  bool hands_over_ = false;  // the agent knows kSlotHandsOver
  bool hears_ = false;       // and kSlotFindings
  SteadyTime try_at_{};
  std::chrono::seconds pause_{1};
};

}  // namespace paceline::telemetry
