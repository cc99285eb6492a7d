// SPDX-License-Identifier: Apache-2.0
// SlotCollector: collects the telemetry of all pods that have a slot of this node. A launcher
// connects to its slot's socket, says whose ranks it starts and hands over the ranks' rings. After
// the kubelet has named the pod of the slot, and it is the pod that the launcher named, the
// collector reads the rings and serves the metrics. main.cpp runs it beside the agent's loop.
//
// Ownership: owns the sockets, the connections and the data read. Thread-safe: one thread calls
// `run`; the injector and the HTTP server call the rest. Failure: a client that breaks a rule is
// closed and counted (`paceline_agent_slot_refusals_total`). Other pods and this program are not
// affected.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "agent/checks/check.hpp"
#include "agent/collect/limits.hpp"
#include "agent/collect/pod_table.hpp"
#include "agent/collect/slot_listener.hpp"
#include "agent/inject/slot_sockets.hpp"
#include "common/telemetry/metrics/metrics_sink.hpp"
#include "common/telemetry/slot/descriptor_message.hpp"

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
  /// The node's GPUs from the last probe.
  void know(const std::vector<Gpu>& gpus);

  void run(const std::stop_token& stop);
  /// One round without waiting. What was sent and published before the call is counted after it.
  void pump();
  void export_metrics(telemetry::MetricsSink& sink) const;
  /// The findings that live pods reported (docs/designs/checks.md), with "pod NAMESPACE/NAME"
  /// before each subject.
  std::vector<Finding> findings() const;

 private:
  enum class Refusal : std::uint8_t {
    kNone,
    kFrame,
    kClaim,
    kUnknownPod,
    kSecondClient,
    kRing,
    kFlood
  };
  struct Handed {
    std::uint64_t key = 0;  // the collector's number of the ring
    std::uint64_t counted = 0;
    std::uint64_t read = 0;  // as reported to the launcher
  };
  struct Client {
    UniqueFd fd;
    std::string slot;
    SteadyTime since;
    telemetry::SlotFrame begin;  // size 0: the client has sent nothing yet
    PodTable::Entry* entry = nullptr;
    std::map<std::uint64_t, Handed> rings;     // by the client's number of the ring
    std::deque<telemetry::SlotFrame> answers;  // answers that did not fit into its socket
    bool over = false;
    bool hands_over() const { return (begin.features & telemetry::kSlotHandsOver) != 0; }
  };

  void round(bool read_rings);
  void accept_all(SteadyTime now);
  void receive(Client& client, SteadyTime now);
  Refusal hear(Client& client, const telemetry::SlotFrame& frame, std::string_view text,
               const std::vector<UniqueFd>& descriptors);
  static Refusal hear_finding(Client& client, std::string_view text);
  Refusal hear_ring(Client& client, const telemetry::SlotFrame& frame, int ring);
  void take(Client& client, const SlotOwner& owner);
  void answer(Client& client, telemetry::SlotKind kind, std::uint64_t ring);
  void send_answers(Client& client);
  void tell_progress(Client& client, const std::vector<telemetry::Progress>& progress);
  void refuse(Client& client, Refusal why);
  void count(const std::string& slot, Refusal why);
  void drop_closed();

  const std::string node_;
  const Clock& clock_;
  const CollectLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, SlotListener> slots_;
  std::vector<Client> clients_;
  PodTable book_;
  std::array<std::uint64_t, 7> refusals_{};
  SteadyTime complain_at_;
};

}  // namespace paceline::agent
