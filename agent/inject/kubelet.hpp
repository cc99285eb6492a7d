// SPDX-License-Identifier: Apache-2.0
// The kubelet of this node as an interface without gRPC. agent/plugin implements it, the tests have
// a fake, and Injector uses it.
//
// Threads of the Kubelet call the DevicePlugin; the Kubelet's own functions belong to one thread.
// Failure is an Error for the log.
#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.hpp"

namespace paceline::agent {

/// What a container with a slot gets in addition to its pod's spec. Every mount is read-only.
struct Grant {
  std::map<std::string, std::string> mounts;     // path in the container to path on the node
  std::map<std::string, std::string> variables;  // PACELINE_* only
};

struct Offer {
  std::vector<std::string> slots;
  bool healthy = false;  // the kubelet assigns only healthy slots
  bool operator==(const Offer&) const = default;
};

struct PodName {
  std::string name_space;
  std::string name;
  bool operator==(const PodName&) const = default;
};
/// An accelerator that the kubelet assigned to a container.
struct PodDevice {
  std::string resource;  // "nvidia.com/gpu"
  std::string id;        // in the form of the vendor's device plugin
  bool operator==(const PodDevice&) const = default;
};
/// The owner of a slot: the pod, and the other devices of the same container.
struct SlotOwner {
  // NOLINTNEXTLINE(google-explicit-constructor): most have no accelerator
  SlotOwner(PodName its_pod, std::vector<PodDevice> given = {})
      : pod(std::move(its_pod)), devices(std::move(given)) {}
  PodName pod;
  std::vector<PodDevice> devices;
  bool operator==(const SlotOwner&) const = default;
};
/// By slot. A slot that is listed twice has no certain owner.
using SlotPods = std::multimap<std::string, SlotOwner>;

class DevicePlugin {
 public:
  virtual ~DevicePlugin() = default;
  virtual Offer offer() = 0;
  /// Assigns slots to one container. kInvalid unless the ids, which come from outside, name exactly
  /// one slot of this node.
  virtual Result<Grant> grant(const std::vector<std::string>& ids) = 0;
};

class Kubelet {
 public:
  virtual ~Kubelet() = default;

  /// Changes with every start of the kubelet, which creates its socket anew; empty while there is
  /// no socket.
  virtual std::string incarnation() = 0;

  /// Opens the plugin's socket, or opens it again. The plugin must outlive it.
  virtual Status serve(DevicePlugin& plugin) = 0;
  /// True if the socket is open and its name still leads to it: a starting kubelet removes all
  /// names.
  virtual bool serving() = 0;
  virtual void stop_serving() = 0;

  /// Registers the plugin's socket with the kubelet.
  virtual Status enroll(const std::stop_token& stop) = 0;
  /// How many streams of offers the kubelet has open.
  virtual int watchers() = 0;
  /// Sends the offer again to all open streams.
  virtual void offer_changed() = 0;

  /// The slots of pods that have not ended, as the kubelet lists them.
  virtual Result<SlotPods> slots_in_use(const std::stop_token& stop) = 0;
};

}  // namespace paceline::agent
