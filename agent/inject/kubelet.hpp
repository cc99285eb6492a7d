// SPDX-License-Identifier: Apache-2.0
// The kubelet of this node as the injector meets it, without a word of gRPC: agent/plugin speaks
// it, tests play it.
//
// A DevicePlugin is called by threads of the Kubelet that serves it; the Kubelet's own calls belong
// to one thread. Failure is an Error for the log.
#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::agent {

/// What a container with a slot gets besides what its pod says. Every mount is read-only.
struct Grant {
  std::map<std::string, std::string> mounts;     // path in the container to path on the node
  std::map<std::string, std::string> variables;  // PACELINE_* only
};

struct Offer {
  std::vector<std::string> slots;
  bool healthy = false;  // the kubelet places nothing on slots that are not
  bool operator==(const Offer&) const = default;
};

struct PodName {
  std::string name_space;
  std::string name;
  bool operator==(const PodName&) const = default;
};
/// An accelerator that the kubelet gave to a container.
struct PodDevice {
  std::string resource;  // "nvidia.com/gpu"
  std::string id;        // as the vendor's device plugin names it
  bool operator==(const PodDevice&) const = default;
};
/// Who has a slot: the pod, and what else the same container was given.
struct SlotOwner {
  // NOLINTNEXTLINE(google-explicit-constructor): most have no accelerator
  SlotOwner(PodName its_pod, std::vector<PodDevice> given = {})
      : pod(std::move(its_pod)), devices(std::move(given)) {}
  PodName pod;
  std::vector<PodDevice> devices;
  bool operator==(const SlotOwner&) const = default;
};
/// By slot. One that stands there twice is nobody's for sure.
using SlotPods = std::multimap<std::string, SlotOwner>;

class DevicePlugin {
 public:
  virtual ~DevicePlugin() = default;
  virtual Offer offer() = 0;
  /// For one container. Ids come from outside: kInvalid where they are not one slot of ours.
  virtual Result<Grant> grant(const std::vector<std::string>& ids) = 0;
};

class Kubelet {
 public:
  virtual ~Kubelet() = default;

  /// Changes with every start of the kubelet (it makes its socket anew); empty while it has none.
  virtual std::string incarnation() = 0;

  /// (Re)opens the plugin's socket. The plugin outlives the serving.
  virtual Status serve(DevicePlugin& plugin) = 0;
  /// Open, and its name still leads to it: a starting kubelet removes the names of all.
  virtual bool serving() = 0;
  virtual void stop_serving() = 0;

  /// Tells the kubelet where the plugin listens.
  virtual Status enroll(const std::stop_token& stop) = 0;
  /// How many streams of offers the kubelet holds open.
  virtual int watchers() = 0;
  /// The offer may have changed: tells it to those who watch.
  virtual void offer_changed() = 0;

  /// Slots of pods that have not ended, by the kubelet's word.
  virtual Result<SlotPods> slots_in_use(const std::stop_token& stop) = 0;
};

}  // namespace paceline::agent
