// SPDX-License-Identifier: Apache-2.0
// The state behind FakeCluster, and the rules that its verbs share. Internal to this folder. Call
// everything here with `mutex` held.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "common/http/transport.hpp"
#include "common/kube/fake/types.hpp"

namespace paceline::kube {

using Document = nlohmann::json;

/// An error that is answered as a metav1.Status.
struct Refusal {
  int code = 500;
  std::string reason;
  std::string message;
};
template <typename T>
using Outcome = std::expected<T, Refusal>;
std::unexpected<Refusal> refuse(int code, std::string reason, std::string message);
http::Response status_response(const Refusal& refusal);

struct Selector {
  std::string labels;
  std::string fields;
  bool empty() const { return labels.empty() && fields.empty(); }
};
/// Refuses (400) a selector that it cannot parse.
Outcome<bool> matches(const Selector& selector, const Document& object);

/// The paths of fields that are not in the schema, as far as the schema is known here.
std::vector<std::string> unknown_fields(const Resource& resource, const Document& object);

const Resource* find_resource(std::string_view group, std::string_view version,
                              std::string_view plural);

struct FakeModel {
  explicit FakeModel(const Clock& c) : clock(c) {}

  using Text = std::shared_ptr<const std::string>;
  struct Stored {
    Document object;
    Text text;
  };
  struct Event {
    WatchEventType type;
    std::uint64_t version;
    std::string_view plural;
    std::string ns;
    Text object;
    Text before;
  };
  struct Snapshot {
    std::uint64_t version = 0;
    std::vector<Text> items;
  };
  using Objects = std::map<std::string, Stored>;  // by key_of(namespace, name)

  const Clock& clock;
  mutable std::mutex mutex;
  std::condition_variable_any changed;
  std::map<std::string_view, Objects> collections;  // by plural
  std::deque<Event> history;
  std::uint64_t version = 1;
  std::uint64_t compacted = 0;
  std::uint64_t next_uid = 1;
  std::uint64_t next_address = 1;
  std::map<std::uint64_t, Snapshot> snapshots;
  std::uint64_t next_snapshot = 1;
  FakeCounts counts;
  std::function<void(const FakeSight&)> observer;
  std::function<void(const Resource&, Document&)> admit;
  std::mutex faults_mutex;
  std::function<std::optional<Fault>(const http::Request&)> faults;

  Stored* find(const Resource& resource, std::string_view ns, std::string_view name);
  /// Stores a new state: version, history, waiting watchers. A state equal to the old one changes
  /// nothing, as on a real server.
  const Stored& commit(const Resource& resource, Document object);
  void erase(const Resource& resource, std::string_view ns, std::string_view name);

  // Verbs; the answer is the object's text.
  Outcome<std::string> create(const Resource& resource, std::string_view ns, Document object,
                              bool strict, bool dry_run);
  Outcome<std::string> replace(const Resource& resource, std::string_view ns, std::string_view name,
                               std::string_view subresource, Document object, bool strict,
                               bool dry_run);
  Outcome<std::string> remove(const Resource& resource, std::string_view ns, std::string_view name,
                              const Document& options, bool dry_run);
  Outcome<bool> check_new(const Resource& resource, std::string_view ns, Document& object,
                          bool strict);
  Outcome<bool> check_quota(std::string_view ns) const;
  void set_defaults(const Resource& resource, Document& object);
};

/// The string at two keys, or "" if there is none.
std::string string_at(const Document& object, const char* first, const char* second);
/// The names of a pod's scheduling gates.
std::vector<std::string> gates_of(const Document& pod);
/// Refuses (422) a change of a pod's spec that a real API server refuses.
Outcome<bool> check_pod_update(const Document& before, const Document& after);

// pods "x", trainingjobs.paceline.dev "x"
std::string full_name(const Resource& resource, std::string_view name);

}  // namespace paceline::kube
