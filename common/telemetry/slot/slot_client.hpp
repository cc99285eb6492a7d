// SPDX-License-Identifier: Apache-2.0
// SlotClient: hands the rings of this pod's ranks to the node's agent, and does so again after
// every broken connection. If the agent has accepted them, it serves their metrics, and this pod
// must not serve them a second time. The agent reports how far it has read, so that its successor
// continues there. No record is counted twice. No record that a ring still holds is lost, not even
// of ended ranks and attempts.
//
// Ownership: owns its connection and duplicates of the rings' descriptors. Thread-safe. `tend`
// never waits; call it a few times a second. Nothing fails. If the agent is absent, the client
// tries again soon; if it refuses, the pauses grow to 30 s.
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

/// The identity of this pod's ranks; the agent compares it with the kubelet's information.
struct SlotClaim {
  std::string job;
  std::string role;
  int replica_index = 0;
  int incarnation = 0;
};

class SlotClient {
 public:
  /// `folder` is PACELINE_SLOT_DIR. If it is empty there is no slot, and nothing is handed over.
  SlotClient(const std::filesystem::path& folder, const SlotClaim& claim, const Clock& clock);

  /// As Collector::begin_attempt.
  void begin_attempt(std::uint32_t attempt, int node_rank, int first_rank, int processes);
  /// Adds a ring that the collector took under this key.
  void add(std::uint64_t key, const paceline_ring_offer& offer, int fd);
  void remove(std::uint64_t key);
  void tend();
  /// Reports what checks found in this pod, at most kMostFindings findings. Every agent that
  /// understands findings gets them, also before the first attempt.
  void report(std::vector<SlotFinding> findings);
  /// True if an agent that accepted this pod has all findings, or there is no slot.
  bool reported() const;

  /// True if the agent has the rings and serves the metrics of the ranks.
  bool held() const;
  /// The ranks that the agent's limits exclude: their metrics must be served here. nullopt: all
  /// ranks.
  std::optional<std::set<int>> served_here() const;

 private:
  /// Without a descriptor, it stands for rings that could not be kept: `start` records of that
  /// rank.
  struct Ring {
    paceline_ring_offer offer{};
    UniqueFd fd;
    dev_t device = 0;
    ino_t inode = 0;
    std::uint64_t start = 0;  // agents have counted the records before this one
    std::uint64_t known = 0;  // and have seen the records before this one
    bool past = false;        // of an earlier attempt
    bool gone = false;        // its rank has ended
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
  std::set<int> refused_;  // ranks refused in this attempt by this agent
  std::uint64_t losses_ = 0;
  std::vector<SlotFinding> findings_;
  std::size_t told_ = 0;  // how many findings this connection has sent
  UniqueFd socket_;
  bool taken_ = false;
  bool hands_over_ = false;  // the agent knows kSlotHandsOver
  bool hears_ = false;       // the agent knows kSlotFindings
  SteadyTime try_at_{};
  std::chrono::seconds pause_{1};
};

}  // namespace paceline::telemetry
