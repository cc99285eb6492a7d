// SPDX-License-Identifier: Apache-2.0
// Journal: every change of one collection. Stream: one operator's watch of it, which may lag. It
// delivers events one by one or twice, resumes from an older version, or loses events and replaces
// them with a new list.
//
// The journal and the sink must outlive the Stream. One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/kube/fake/cluster.hpp"
#include "common/kube/watch/object_sink.hpp"
#include "tests/sim/defects.hpp"

namespace paceline::sim {

struct Journal {
  using Text = std::shared_ptr<const std::string>;
  struct Entry {
    kube::WatchEventType type;
    std::uint64_t version;
    Text object;
  };
  kube::Resource resource;
  std::vector<Entry> entries{};
  std::map<std::string, Text> present{};  // by name

  void add(const kube::FakeCluster::Sight& sight, const std::string& name);
};

class Stream {
 public:
  Stream(const Journal& journal, kube::ObjectSink& sink, Defect defect)
      : journal_(journal), sink_(sink), defect_(defect) {}

  /// Delivers the present state at the cluster's version; the events before are never seen.
  void relist(std::uint64_t version);
  /// Delivers up to `count` events; returns how many there were.
  std::size_t deliver(std::size_t count);
  /// Delivers the last event again.
  void repeat();
  /// Delivers the last `count` events again, in order.
  void go_back(std::size_t count);
  /// Delivers a bookmark of the cluster's version, if every event was delivered.
  void bookmark(std::uint64_t version);
  bool behind() const { return next_ < journal_.entries.size(); }

 private:
  void apply(const Journal::Entry& entry);

  const Journal& journal_;
  kube::ObjectSink& sink_;
  const Defect defect_;
  std::size_t next_ = 0;
  std::size_t listed_ = 0;  // events before this one were never delivered one by one
};

}  // namespace paceline::sim
