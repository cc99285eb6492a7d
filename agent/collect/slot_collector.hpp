// SPDX-License-Identifier: Apache-2.0
// SlotCollector: the telemetry of all pods that have a slot of this node. Launchers connect to their slots' sockets, say whose ranks they start and hand
// over the ranks' rings; once the kubelet has named the pod behind the slot, and it is the one that was said, its rings are read and its metrics served here.
//
// Ownership: owns the sockets, the connections and what was read. Thread-safe: `run` is one thread's loop; the injector and the HTTP server call the rest.
// Failure: whoever breaks a rule is closed and counted (`paceline_agent_slot_refusals_total`); it touches neither other pods nor this program.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "agent/collect/limits.hpp"
#include "agent/collect/pod_book.hpp"
#include "agent/collect/slot_listener.hpp"
#include "agent/inject/slot_sockets.hpp"
#include "common/telemetry/descriptor_message.hpp"
#include "common/telemetry/metrics_sink.hpp"

namespace paceline::agent {

class SlotCollector final : public SlotSockets {
 public:
  SlotCollector(std::string node, const Clock& clock, CollectLimits limits = {});
  SlotCollector(const SlotCollector&) = delete;
  SlotCollector& operator=(const SlotCollector&) = delete;
  ~SlotCollector() override;

  Status open(const std::string& slot, const std::filesystem::path& folder) override;
  bool asks() const override;
  void tell(const SlotPods& pods, SteadyTime asked) override;

  void run(const std::stop_token& stop);
  /// One round without waiting: what was sent and published before the call is counted after it.
  void pump();
  void export_metrics(telemetry::MetricsSink& sink) const;

 private:
  enum class Refusal : std::uint8_t { kNone, kFrame, kClaim, kUnknownPod, kSecondClient, kRing, kFlood };
  struct Client {
    telemetry::UniqueFd fd;
    std::string slot;
    SteadyTime since;
    telemetry::SlotFrame begin;  // size 0: it has said nothing yet
    PodBook::Entry* entry = nullptr;
    std::map<std::uint64_t, std::uint64_t> rings;  // its number of a ring to ours
    bool over = false;
  };

  void round(bool read_rings);
  void accept_all(SteadyTime now);
  void receive(Client& client, SteadyTime now);
  Refusal hear(Client& client, const telemetry::SlotFrame& frame, const std::vector<telemetry::UniqueFd>& descriptors);
  void take(Client& client, const PodName& pod);
  void refuse(Client& client, Refusal why);
  void count(const std::string& slot, Refusal why);
  void drop_closed();

  const std::string node_;
  const Clock& clock_;
  const CollectLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, SlotListener> slots_;
  std::vector<Client> clients_;
  PodBook book_;
  std::array<std::uint64_t, 7> refusals_{};
  SteadyTime complain_at_;
};

}  // namespace paceline::agent
