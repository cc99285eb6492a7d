// SPDX-License-Identifier: Apache-2.0
// Reflector: keeps one ObjectSink equal to one collection of the API server. It reads the present
// state, then watches from its version, with bookmarks and random time-outs. After 410 (as an
// answer or as an event) it reads the state again and replaces it atomically. After 429 it waits
// and resumes. When the server ends a watch, it resumes at once. The state is read as the start of
// a watch (WatchList), so that no server has to hold a whole list; if the server does not support
// that, as a consistent list in pages.
//
// Ownership: the Api and the sink must outlive it. `run` belongs to one thread and returns only
// when stopped. Memory: one page, or one event. Failure: errors of the API are logged, counted and
// retried with back-off. Objects that cannot be projected are logged and skipped.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "common/kube/api/api.hpp"
#include "common/kube/watch/object_sink.hpp"

namespace paceline::kube {

struct ReflectorOptions {
  std::string ns{};  // empty: all namespaces
  std::string label_selector{};
  std::string field_selector{};
  std::int64_t page_size = 500;
  std::chrono::seconds min_watch{300};
  std::chrono::seconds max_watch{600};
  std::chrono::milliseconds min_backoff{200};
  std::chrono::milliseconds max_backoff{30000};
  std::function<std::uint64_t()> random{};  // empty: seeded from the system
  bool stream_lists = true;                 // use WatchList if the server supports it
  // treat a resource that the server does not know (its CRD is missing) as empty
  bool absent_is_empty = false;
  // told of each error of the API, before the wait; a version that is no longer kept is none
  std::function<void(const Error&)> on_error{};
};

struct ReflectorCounts {
  std::atomic<std::uint64_t> lists{0};
  std::atomic<std::uint64_t> watches{0};
  std::atomic<std::uint64_t> events{0};
  std::atomic<std::uint64_t> errors{0};
};

class Reflector {
 public:
  Reflector(Api& api, const Resource& resource, ReflectorOptions options, ObjectSink& sink);
  void run(const std::stop_token& stop);
  const ReflectorCounts& counts() const { return counts_; }

 private:
  Status list(const std::stop_token& stop);
  Status watch(const std::stop_token& stop);
  void add(std::string_view object);
  void pause(const std::stop_token& stop);
  std::uint64_t random();

  Api& api_;
  const Resource resource_;
  const ReflectorOptions options_;
  ObjectSink& sink_;
  ReflectorCounts counts_;
  std::string resource_version_;  // empty: read the present state next
  bool streams_;
  std::chrono::milliseconds backoff_{0};
  std::uint64_t random_state_;
};

}  // namespace paceline::kube
