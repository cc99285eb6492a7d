// SPDX-License-Identifier: Apache-2.0
// Brings the runtime into pods of this node: stages it, offers slots to the kubelet, answers what a
// container with a slot gets, and removes versions that nobody uses. Looks every second whether all
// of that still stands, and mends what does not: a kubelet that started anew, a stream that ended,
// a folder that somebody emptied, a disk that was full.
//
// Borrows the Kubelet and the Clock, which outlive it. `tick` and `run` belong to one thread;
// `state`, `offer` and `grant` may be called from any. Failures are logged once per message and
// shown in `state`; nothing ends the loop but the stop token.
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
  std::filesystem::path source;  // the runtime as the image's init container left it
  std::filesystem::path folder;  // on the node, under the same path in the agent's container
  int slots = 128;
  SlotSockets* sockets = nullptr;  // outlives the injector; null: slots have no socket
  std::chrono::milliseconds look_interval{1000};
  std::chrono::milliseconds retry_first{1000};
  std::chrono::milliseconds retry_most{30000};
  /// How long the kubelet may take to open its stream after it was told of the plugin, before it is
  /// told again.
  std::chrono::milliseconds stream_grace{10000};
  std::chrono::milliseconds collect_interval{600000};
  /// A slot that was given out counts as used for so long, whatever the kubelet says: its pod is
  /// not on record yet.
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
  std::string enrolled_;  // the kubelet's incarnation that knows of us
  SteadyTime enrolled_at_{};
  bool heard_ = false;  // it has watched since
  SteadyTime try_at_;
  SteadyTime collect_at_;
  std::chrono::milliseconds pause_;
  std::map<std::string, Given> given_;
  std::string complaint_;
  std::string nameless_;  // why the kubelet did not name pods, as it was logged

  mutable std::mutex mutex_;  // of what follows
  std::string version_;       // empty: nothing may be given out
  Summary state_;
};

}  // namespace paceline::agent
