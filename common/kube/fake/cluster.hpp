// SPDX-License-Identifier: Apache-2.0
// FakeCluster: an API server's object model in memory. It has resource versions, watch history with
// compaction, preconditions, finalizers, graceful deletion of bound pods, status subresources and
// dry run. Merge patch, a simplified apply, pod quota, and strict fields (where the schema is
// known) work too. The real client talks to it without a socket (make_fake_transport) or through
// one (FakeServer). The simulation feeds stores from it step by step.
//
// It has no controllers: tests bind pods, set phases and call `collect_garbage` themselves.
// Thread-safe. Deterministic: uids and times come from counters and the Clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.hpp"
#include "common/http/transport.hpp"
#include "common/kube/api/api.hpp"
#include "common/kube/fake/types.hpp"
#include "common/kube/watch/object_sink.hpp"

namespace paceline::kube {

struct FakeModel;

class FakeCluster {
 public:
  explicit FakeCluster(const Clock& clock);
  ~FakeCluster();

  /// Answers one unary request. An Error if a fault lost the answer.
  Result<http::Response> handle(const http::Request& request);
  /// Serves a watch: sends frames to `on_chunk` until the time-out, `stop`, or false. Blocks.
  Result<http::Response> watch(const http::Request& request, const http::ChunkHandler& on_chunk,
                               const std::stop_token& stop);

  /// `decide` is called for every request, without locks held.
  void set_faults(std::function<std::optional<Fault>(const http::Request&)> decide);

  /// `observer` sees every change when it happens, in the order of versions; `before` is null for a
  /// new object. It is called with the cluster locked and must not call back. Set it before the
  /// first change.
  using Sight = FakeSight;
  void set_observer(std::function<void(const Sight&)> observer);

  /// `admit` changes or completes every new object, dry runs included, as admission plugins and
  /// webhooks do. It is called with the cluster locked and must not call back.
  void set_admission(std::function<void(const Resource&, nlohmann::json&)> admit);

  struct Change {
    WatchEventType type;
    std::uint64_t resource_version;
    std::string object;  // JSON
  };
  /// All changes of a collection after a version; kGone if that history was compacted.
  Result<std::vector<Change>> changes_since(const Resource& resource,
                                            std::uint64_t resource_version) const;
  std::vector<std::string> objects(const Resource& resource) const;
  std::uint64_t resource_version() const;
  /// Forgets the history: older watches and continue tokens get 410.
  void compact();

  /// Applies a JSON merge patch as the system would, without generation rules and preconditions.
  /// False if the object does not exist.
  bool poke(const Resource& resource, std::string_view ns, std::string_view name,
            std::string_view merge_patch);
  /// Removes the object at once, finalizers or not, as the kubelet does at the end of a graceful
  /// deletion or as a lost node does.
  bool erase(const Resource& resource, std::string_view ns, std::string_view name);
  /// Deletes objects whose owners are gone (by UID). Returns how many objects were deleted.
  std::size_t collect_garbage();

  using Counts = FakeCounts;
  /// Counts of applied requests, including writes that changed nothing.
  Counts counts() const;

 private:
  std::unique_ptr<FakeModel> impl_;
};

/// A transport that leads to the cluster without sockets. The cluster must outlive it.
std::shared_ptr<http::HttpTransport> make_fake_transport(FakeCluster& cluster);
/// The real Client on the fake cluster. It never sleeps: 429 is returned at once.
std::shared_ptr<Api> make_fake_api(FakeCluster& cluster);

/// Feeds one sink from a fake cluster step by step, as a reflector would. For the single-threaded
/// simulation.
class FakeFeed {
 public:
  FakeFeed(const FakeCluster& cluster, const Resource& resource, ObjectSink& sink);
  /// Lists everything and replaces the sink's objects atomically.
  void relist();
  /// Delivers up to `count` waiting changes and returns how many. Lists again by itself after
  /// kGone.
  std::size_t deliver(std::size_t count);
  std::size_t pending() const;

 private:
  const FakeCluster& cluster_;
  const Resource resource_;
  ObjectSink& sink_;
  std::uint64_t resource_version_ = 0;
};

}  // namespace paceline::kube
