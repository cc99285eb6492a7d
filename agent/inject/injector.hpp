// SPDX-License-Identifier: Apache-2.0
// Injector: brings the runtime into pods of this node. It stages the runtime, offers slots to the
// kubelet, answers what a container with a slot gets, and removes unused versions. Every second it
// checks that all of this still holds and repairs it: after a restart of the kubelet, an ended
// stream, an emptied folder or a full disk. main.cpp runs it with --inject.
//
// Borrows the Kubelet and the Clock, which must outlive it. `tick` and `run` belong to one thread;
// `state`, `offer` and `grant` may be called from any. Failures are logged once per message and
// shown in `state`; only the stop token ends the loop.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "agent/checks/summary.hpp"
#include "agent/inject/kubelet.hpp"
#include "agent/inject/runtime_store.hpp"
#include "agent/inject/slot_sockets.hpp"
#include "agent/inject/slots.hpp"
#include "common/base/clock.hpp"

namespace paceline::agent {

struct InjectorOptions {
  std::filesystem::path source;  // the runtime that the image's init container left
  std::filesystem::path folder;  // on the node, under the same path in the agent's container
  int slots = 128;
  SlotSockets* sockets = nullptr;  // must outlive the injector; null: slots have no socket
  std::chrono::milliseconds look_interval{1000};
  std::chrono::milliseconds retry_first{1000};
  std::chrono::milliseconds retry_most{30000};
  /// How long the kubelet may take to open its stream after the plugin registered, before it
  /// registers again.
  std::chrono::milliseconds stream_grace{10000};
  std::chrono::milliseconds collect_interval{600000};
  /// A slot counts as used for this long after it was assigned, because the kubelet may not list
  /// its pod yet.
  std::chrono::milliseconds young{600000};
};

class Injector final : public DevicePlugin {
 public:
  Injector(Kubelet& kubelet, const Clock& clock, InjectorOptions options);
  ~Injector() override;

  SteadyTime tick(const std::stop_token& stop = {});
  void run(const std::stop_token& stop);

  /// For the NodeFabric's condition RuntimeReady.
  Summary state() const;

  Offer offer() override;
  Result<Grant> grant(const std::vector<std::string>& ids) override;

 private:
  struct Given {
    std::string version;
    SteadyTime seen{};
  };

  bool lead();
  bool stage(const std::stop_token& stop);
  bool keep_slots();
  bool open_sockets();
  void name_pods(const std::stop_token& stop);
  bool enroll(const std::stop_token& stop);
  void collect(const std::stop_token& stop);
  void failed(const char* reason, const Error& error);
  void say(Summary state);
  void set_version(const std::string& version);

  Kubelet& kubelet_;
  const Clock& clock_;
  const InjectorOptions options_;
  RuntimeStore store_;
  const Slots slots_;
  UniqueFd leader_;
  std::string enrolled_;  // the kubelet's incarnation at which the plugin registered
  SteadyTime enrolled_at_{};
  bool heard_ = false;  // the kubelet has opened its stream since
  SteadyTime try_at_;
  SteadyTime collect_at_;
  std::chrono::milliseconds pause_;
  std::map<std::string, Given> given_;
  std::string complaint_;
  std::string nameless_;  // why the kubelet did not name pods, as logged

  mutable std::mutex mutex_;  // guards what follows
  std::string version_;       // empty: no slot may be assigned
  Summary state_;
};

}  // namespace paceline::agent
