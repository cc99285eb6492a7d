// SPDX-License-Identifier: Apache-2.0
// kube::Api: the Kubernetes API as verbs over JSON text. Client implements it over any
// HttpTransport (the fake cluster included); decorators such as FailPointApi wrap it. The operator
// uses nothing else.
//
// Bodies are JSON text. Writers build them with nlohmann-json, readers project them with
// json_reader.hpp; nothing here keeps a document. Thread-safe. Every call blocks its caller,
// observes `stop` and has a time-out.
//
// On failure the Error carries the server's own message and one of these codes:
//
// - kAlreadyExists: 409 on create. kConflict: any other 409, and a failed uid or resourceVersion
//   precondition.
// - kNotFound: 404. kGone: 410. kForbidden: 403 (authorization, quota, policy).
// - kInvalid: 400 or 422. kUnauthorized: 401. kExhausted: 429 after the waits that the server asked
//   for.
// - kTimeout, kUnavailable: the write may or may not have been applied. Every write must therefore
// be
//   safe to repeat.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "common/kube/api/resource.hpp"

namespace paceline::kube {

struct WriteOptions {
  std::string subresource{};    // "status", or "" for the object itself
  bool dry_run = false;         // dryRun=All: validated, admitted, not stored
  bool strict = true;           // fieldValidation=Strict: an unknown or repeated field is an error
  std::string field_manager{};  // empty: the client's
};

enum class PatchType {
  kMerge,  // JSON merge patch (RFC 7386)
  kApply,  // server-side apply; needs a field manager
};

struct PatchOptions : WriteOptions {
  PatchType type = PatchType::kMerge;
  bool force = false;  // apply: take fields over from other managers
};

struct DeleteOptions {
  // precondition, so that an object that reuses the name is not deleted
  std::string uid{};
  std::string resource_version{};  // precondition
  std::optional<std::int64_t> grace_period_seconds{};
  std::string propagation = "Background";
  bool dry_run = false;
};

struct ListOptions {
  std::string label_selector{};
  std::string field_selector{};
  std::int64_t limit = 0;
  std::string continue_token{};
};

struct WatchOptions {
  std::string label_selector{};
  std::string field_selector{};
  std::string resource_version{};
  std::chrono::seconds timeout{300};
  /// Start with the present state: one ADDED event per object, then a bookmark that
  /// `ends_initial_events`. kInvalid if the server does not support it.
  bool initial_events = false;
};

enum class WatchEventType { kAdded, kModified, kDeleted, kBookmark };

struct WatchEvent {
  WatchEventType type = WatchEventType::kAdded;
  std::string_view object;  // JSON bytes, valid during the call only
};

/// False ends the watch.
using WatchHandler = std::function<bool(const WatchEvent&)>;

class Api {
 public:
  virtual ~Api() = default;

  virtual Result<std::string> get(const Resource& resource, const std::string& ns,
                                  const std::string& name, const std::stop_token& stop = {}) = 0;
  virtual Result<std::string> list(const Resource& resource, const std::string& ns,
                                   const ListOptions& options,
                                   const std::stop_token& stop = {}) = 0;
  virtual Result<std::string> create(const Resource& resource, const std::string& ns,
                                     const std::string& body, const WriteOptions& options = {},
                                     const std::stop_token& stop = {}) = 0;
  /// PUT: the body carries the resourceVersion that it is based on, or none to overwrite.
  virtual Result<std::string> update(const Resource& resource, const std::string& ns,
                                     const std::string& name, const std::string& body,
                                     const WriteOptions& options = {},
                                     const std::stop_token& stop = {}) = 0;
  virtual Result<std::string> patch(const Resource& resource, const std::string& ns,
                                    const std::string& name, const std::string& body,
                                    const PatchOptions& options = {},
                                    const std::stop_token& stop = {}) = 0;
  /// Returns the object (if it still exists and is terminating) or a Status.
  virtual Result<std::string> remove(const Resource& resource, const std::string& ns,
                                     const std::string& name, const DeleteOptions& options = {},
                                     const std::stop_token& stop = {}) = 0;
  /// Delivers events until the server ends the watch, the handler returns false (both are success),
  /// or an error occurs. kGone: list again.
  virtual Status watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
                       const WatchHandler& handler, const std::stop_token& stop = {}) = 0;
  /// GET of any path ("/version", "/apis").
  virtual Result<std::string> get_raw(const std::string& path,
                                      const std::stop_token& stop = {}) = 0;
};

}  // namespace paceline::kube
