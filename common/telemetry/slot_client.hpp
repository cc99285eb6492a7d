// SPDX-License-Identifier: Apache-2.0
// SlotClient: hands the rings of this pod's ranks to the node's agent, again after every broken connection. Where the agent has taken them, it serves their
// metrics, and this pod must not serve them a second time.
//
// Ownership: owns its connection and duplicates of the rings' descriptors. Thread-safe. `tend` never waits; it is called a few times a second. Nothing
// fails: an agent that is absent or refuses us is tried again, at once where it is absent, ever more rarely (30 s) where it refuses.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "common/base/clock.hpp"
#include "common/telemetry/slot_link.hpp"
#include "common/telemetry/unique_fd.hpp"

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

  /// The agent has the rings: it alone serves the metrics of the ranks.
  bool held() const;

 private:
  struct Ring {
    paceline_ring_offer offer;
    UniqueFd fd;
    std::uint64_t start = 0;
    bool sent = false;
    bool gone = false;
  };

  void connect();
  bool hear();
  bool send(SlotKind kind, std::uint64_t key, const Ring* ring);
  void send_rings();
  void lose();

  const std::string path_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  SlotFrame begin_;  // size 0 before the first attempt
  std::map<std::uint64_t, Ring> rings_;
  UniqueFd socket_;
  bool taken_ = false;
  SteadyTime try_at_{};
  std::chrono::seconds pause_{1};
};

}  // namespace paceline::telemetry
