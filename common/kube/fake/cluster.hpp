// SPDX-License-Identifier: Apache-2.0
// FakeCluster: an API server's object model in memory: resource versions, watch history with
// compaction, preconditions, finalizers, graceful deletion of bound pods, status subresource, dry
// run, merge patch and (simplified) apply, pod quota, strict fields where the schema is known. It
// answers requests, so the real client talks to it without a socket (FakeTransport) or through one
// (FakeServer), and the simulation feeds stores from it step by step.
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

#include <nlohmann/json_fwd.hpp>

#include "common/base/clock.hpp"
#include "common/http/transport.hpp"
#include "common/kube/api/api.hpp"
#include "common/kube/watch/object_sink.hpp"

namespace paceline::kube {

/// What a request meets instead of, or besides, its normal fate.
struct Fault {
  // answer this status without doing anything (429, 500, …)
  int status = 0;
  std::optional<int> retry_after_seconds{};  // with the status
  bool drop_after_apply = false;             // do it, then lose the answer
  std::string message{};                     // of the Status; empty: a standard one
};

class FakeCluster {
 public:
  explicit FakeCluster(const Clock& clock);
  ~FakeCluster();

  /// Answers one unary request. Nothing when the answer was lost by a fault.
  Result<http::Response> handle(const http::Request& request);
  /// Serves a watch: frames go to `on_chunk` until time-out, stop or false. Blocks.
  Result<http::Response> watch(const http::Request& request, const http::ChunkHandler& on_chunk,
                               const std::stop_token& stop);

  /// Asked for every request; tests and the simulation decide. Called without locks held.
  void set_faults(std::function<std::optional<Fault>(const http::Request&)> decide);

  /// Sees every change at the moment it happens, in the order of versions; `before` is null for a
  /// new object. Called with the cluster locked: it must not call back. Set before the first
  /// change.
  struct Sight {
    const Resource& resource;
    WatchEventType type;
    std::uint64_t resource_version;
    const nlohmann::json* before;
    const nlohmann::json& object;  // of a deletion: the last state
    const std::shared_ptr<const std::string>& text;
  };
  void set_observer(std::function<void(const Sight&)> observer);

  struct Change {
    WatchEventType type;
    std::uint64_t resource_version;
    std::string object;  // JSON
  };
  /// All changes of a collection after a version; kGone when compacted away.
  Result<std::vector<Change>> changes_since(const Resource& resource,
                                            std::uint64_t resource_version) const;
  std::vector<std::string> objects(const Resource& resource) const;
  std::uint64_t resource_version() const;
  /// Forgets history: older watches and continue tokens get 410.
  void compact();

  /// Applies a JSON merge patch as the system would (no generation rules, no preconditions); false
  /// when there is no such object.
  bool poke(const Resource& resource, std::string_view ns, std::string_view name,
            std::string_view merge_patch);
  /// The kubelet's end of a graceful deletion, or a node loss: the object is gone at once,
  /// finalizers or not.
  bool erase(const Resource& resource, std::string_view ns, std::string_view name);
  /// Deletes what belongs to owners that are gone (by UID). Returns how many objects went.
  std::size_t collect_garbage();

  struct Counts {
    std::uint64_t creates = 0, updates = 0, patches = 0, deletes = 0, reads = 0;
    std::uint64_t writes() const { return creates + updates + patches + deletes; }
  };
  /// Of applied requests; a no-op write counts too.
  Counts counts() const;

  struct Impl;  // for the other files of this folder

 private:
  std::unique_ptr<Impl> impl_;
};

/// The cluster as a transport: the real Client on it, without sockets. The cluster outlives it.
std::shared_ptr<http::HttpTransport> make_fake_transport(FakeCluster& cluster);
/// The real Client on the fake cluster; never sleeps (429 is returned at once).
std::shared_ptr<Api> make_fake_api(FakeCluster& cluster);

/// Feeds one sink from a fake cluster step by step, as a reflector would: for the single-threaded
/// simulation.
class FakeFeed {
 public:
  FakeFeed(const FakeCluster& cluster, const Resource& resource, ObjectSink& sink);
  /// A full list: atomic replace.
  void relist();
  /// Delivers up to `count` waiting changes; returns how many. Relists by itself after kGone.
  std::size_t deliver(std::size_t count);
  std::size_t pending() const;

 private:
  const FakeCluster& cluster_;
  const Resource resource_;
  ObjectSink& sink_;
  std::uint64_t resource_version_ = 0;
};

}  // namespace paceline::kube
