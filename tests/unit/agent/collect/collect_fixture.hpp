// SPDX-License-Identifier: Apache-2.0
// A node's slots with the collector behind their sockets, a launcher's client in a pod, and a
// hostile client. Not thread-safe; the test fails if the fixture cannot be made.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "agent/collect/slot_collector.hpp"
#include "common/telemetry/metrics/text_sink.hpp"
#include "common/telemetry/slot/slot_client.hpp"
#include "testing/ring_fixture.hpp"
#include "testing/runtime_fixture.hpp"
#include "tests/unit/telemetry/hostile_peer.hpp"

namespace paceline::agent {

using telemetry::SlotFrame;
using telemetry::SlotKind;
using telemetry::test::ring_offer;

inline SlotFrame slot_frame(SlotKind kind) {
  SlotFrame frame;
  frame.size = sizeof frame;
  frame.kind = static_cast<std::uint16_t>(kind);
  return frame;
}

inline SlotFrame begin_frame(const std::string& job, const std::string& role, int processes = 1) {
  SlotFrame frame = slot_frame(SlotKind::kBegin);
  frame.processes = processes;
  job.copy(frame.job.data(), frame.job.size() - 1);
  role.copy(frame.role.data(), frame.role.size() - 1);
  return frame;
}

inline SlotFrame ring_frame(int rank, std::uint64_t number = 1) {
  SlotFrame frame = slot_frame(SlotKind::kRing);
  frame.ring = number;
  frame.offer = ring_offer(rank);
  return frame;
}

/// A hostile client in a container: sends any bytes with any descriptors.
class Stranger {
 public:
  explicit Stranger(const std::filesystem::path& folder)
      : fd_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (folder / telemetry::kSlotSocket).string();
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connected_ =
        ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  bool connected() const { return connected_; }
  bool send(const void* data, std::size_t size, const std::vector<int>& fds = {}) const {
    return telemetry::test::send_with_descriptors(fd_.get(), data, size, fds, MSG_DONTWAIT);
  }
  bool send(const SlotFrame& frame, const std::vector<int>& fds = {}) const {
    return send(&frame, sizeof frame, fds);
  }
  bool closed() const {
    char bytes[512];
    ssize_t got = 1;
    while (got > 0) got = ::recv(fd_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return got == 0 || (errno != EAGAIN && errno != EINTR);
  }

 private:
  UniqueFd fd_;
  bool connected_ = false;
};

/// An agent that sends to a launcher's client what the test wants.
class Peer {
 public:
  explicit Peer(const std::filesystem::path& folder)
      : listener_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (folder / telemetry::kSlotSocket).string();
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    std::filesystem::remove(path);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
  }
  bool accept() const {
    peer_.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    return peer_.valid();
  }
  void hang_up() const { peer_.reset(); }
  bool send(const void* data, std::size_t size) const {
    return telemetry::send_message(peer_.get(), data, size, -1);
  }
  /// What arrived since the last call; `last` is the newest.
  std::vector<SlotKind> kinds(SlotFrame* last = nullptr) const {
    std::vector<SlotKind> all;
    while (true) {
      SlotFrame frame;
      if (telemetry::receive_message(peer_.get(), &frame, sizeof frame).size <= 0) return all;
      all.push_back(static_cast<SlotKind>(frame.kind));
      if (last != nullptr) *last = frame;
    }
  }

 private:
  UniqueFd listener_;
  mutable UniqueFd peer_;
};

class CollectTest : public testing::Test {
 protected:
  explicit CollectTest(CollectLimits limits = {}) : limits_(limits) { start(); }

  /// A start of the agent: the folders exist already, the sockets are made anew.
  void start() {
    collector_.emplace("node-a", clock_, limits_);
    for (const char* slot :
         {"slot-0", "slot-1", "slot-2", "slot-3", "slot-4", "slot-5", "slot-6"}) {
      std::filesystem::create_directories(folder(slot));
      const auto opened = collector_->open(slot, folder(slot));
      EXPECT_TRUE(opened) << opened.error().message;
    }
  }

  std::filesystem::path folder(const std::string& slot) const { return scratch_ / slot; }

  /// The kubelet's answer to a question asked now.
  void tell() { collector_->tell(pods_, clock_.steady()); }

  /// A launcher in the container with the slot; the kubelet lists its pod.
  std::unique_ptr<telemetry::SlotClient> launcher(const std::string& slot, const std::string& job,
                                                  int processes = 1, int incarnation = 0) {
    pods_.erase(slot);
    pods_.emplace(slot, SlotOwner(PodName{"team", job + "-worker-0-" + std::to_string(incarnation)},
                                  devices_[slot]));
    auto client = std::make_unique<telemetry::SlotClient>(
        folder(slot), telemetry::SlotClaim{job, "worker", 0, incarnation}, clock_);
    client->begin_attempt(0, 0, 0, processes);
    meet(*client);
    return client;
  }

  void meet(telemetry::SlotClient& client) {
    client.tend();
    collector_->pump();
    tell();
    client.tend();
    collector_->pump();
  }

  /// Kills the agent and starts another.
  void restart(telemetry::SlotClient& client) {
    collector_.reset();
    client.tend();
    EXPECT_FALSE(client.held());
    start();
    clock_.advance(std::chrono::seconds(1));
    meet(client);
    EXPECT_TRUE(client.held());
  }

  std::map<std::string, double> series() const {
    telemetry::TextSink sink;
    collector_->export_metrics(sink);
    std::map<std::string, double> found;
    std::stringstream lines(sink.text());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('#')) continue;
      const std::size_t space = line.rfind(' ');
      EXPECT_TRUE(found.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
          << line << " stands there twice";
    }
    return found;
  }

  static std::string of(const std::string& job, int rank = 0) {
    return "{namespace=\"team\",job=\"" + job + "\",role=\"worker\",rank=\"" +
           std::to_string(rank) + "\",node=\"node-a\",gpu=\"\"}";
  }
  double steps(const std::string& job, int rank = 0) const {
    return at("paceline_steps_total" + of(job, rank));
  }
  double dropped(const std::string& job) const {
    return at("paceline_dropped_records_total" + of(job));
  }
  double refused(const std::string& reason) const {
    return at("paceline_agent_slot_refusals_total{node=\"node-a\",reason=\"" + reason + "\"}");
  }
  /// -1 if there is no such series
  double at(const std::string& name) const {
    const auto found = series();
    const auto entry = found.find(name);
    return entry == found.end() ? -1 : entry->second;
  }

  Scratch scratch_;
  ManualClock clock_;
  const CollectLimits limits_;
  SlotPods pods_;
  std::map<std::string, std::vector<PodDevice>> devices_;  // of the container that has the slot
  std::vector<std::unique_ptr<telemetry::test::TestRing>> rings_;
  std::optional<SlotCollector> collector_;
};

}  // namespace paceline::agent
