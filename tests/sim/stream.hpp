// SPDX-License-Identifier: Apache-2.0
// Journal: every change of one collection. Stream: one operator's watch of it, as far behind as the
// simulation likes: events one by one, doubled, taken up again from an older version, or lost and
// replaced by a new list.
//
// A Stream refers to its journal and sink, which outlive it. One thread.
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

  /// The present state, at the cluster's version: what happened between is never seen.
  void relist(std::uint64_t version);
  /// Up to `count` events; returns how many there were.
  std::size_t deliver(std::size_t count);
  /// The last event comes once more.
  void repeat();
  /// The last `count` events come once more, in their order.
  void go_back(std::size_t count);
  bool behind() const { return next_ < journal_.entries.size(); }

 private:
  void apply(const Journal::Entry& entry);

  const Journal& journal_;
  kube::ObjectSink& sink_;
  const Defect defect_;
  std::size_t next_ = 0;
  std::size_t listed_ = 0;  // events before this one were never seen one by one
};

}  // namespace paceline::sim
