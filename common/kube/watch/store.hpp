// SPDX-License-Identifier: Apache-2.0
// Store<T>: a cache of objects projected to structs. Documents are never kept. T has a member
// `ObjectMeta meta`, which the projection fills.
//
// Ownership: entries are immutable and shared; a pointer stays valid after its entry is replaced.
// Thread-safe: one writer (the reflector), any number of readers. Handlers run on the writer's
// thread, after the change is visible and without locks held. If a projection fails or throws, the
// old entry stays, the failure is counted, and the reflector logs the error.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/kube/api/object_meta.hpp"
#include "common/kube/api/object_version.hpp"
#include "common/kube/watch/object_sink.hpp"

namespace paceline::kube {

/// The untyped part of a store, for gates and readiness.
class StoreState {
 public:
  virtual ~StoreState() = default;
  /// All changes up to this version have been seen; 0 before the first list.
  std::uint64_t resource_version() const {
    return resource_version_.load(std::memory_order_acquire);
  }
  bool synced() const { return synced_.load(std::memory_order_acquire); }

 protected:
  std::atomic<std::uint64_t> resource_version_{0};
  std::atomic<bool> synced_{false};
};

template <typename T>
class Store final : public ObjectSink, public StoreState {
 public:
  using Ptr = std::shared_ptr<const T>;
  using Projection = std::function<Result<T>(std::string_view json)>;
  // an empty string: not indexed
  using Index = std::function<std::string(const T&)>;
  // `before` null: added; `after` null: deleted
  using Handler = std::function<void(const Ptr& before, const Ptr& after)>;

  explicit Store(Projection projection, Index index = {})
      : projection_(std::move(projection)), index_(std::move(index)) {}

  /// Call it before the first event.
  void subscribe(Handler handler) { handlers_.push_back(std::move(handler)); }

  Ptr get(std::string_view ns, std::string_view name) const {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(Place{ns, name});
    return found == entries_.end() ? nullptr : *found;
  }
  /// By `key_of(ns, name)`.
  Ptr get(std::string_view key) const {
    const auto slash = key.find('/');
    return slash == std::string_view::npos ? get({}, key)
                                           : get(key.substr(0, slash), key.substr(slash + 1));
  }
  std::vector<Ptr> list() const {
    const std::shared_lock lock(mutex_);
    return {entries_.begin(), entries_.end()};
  }
  std::vector<Ptr> by_index(const std::string& value) const {
    const std::shared_lock lock(mutex_);
    std::vector<Ptr> found;
    if (const auto bucket = buckets_.find(value); bucket != buckets_.end()) found = bucket->second;
    return found;
  }
  std::size_t size() const {
    const std::shared_lock lock(mutex_);
    return entries_.size();
  }
  std::uint64_t failed_projections() const { return failed_.load(std::memory_order_relaxed); }

  void begin_replace() override { incoming_.clear(); }
  void abort_replace() override { Entries().swap(incoming_); }
  Status add(std::string_view object) override {
    auto value = project(object);
    if (!value) return std::unexpected(value.error());
    if (const auto twice = incoming_.find(place_of(**value)); twice != incoming_.end())
      incoming_.erase(twice);
    incoming_.insert(std::move(*value));
    return {};
  }
  void end_replace(std::uint64_t resource_version) override {
    std::vector<std::pair<Ptr, Ptr>> changes;
    {
      const std::unique_lock lock(mutex_);
      std::vector<Ptr> unchanged;  // keep the entry that readers share already
      for (const Ptr& entry : incoming_) {
        const auto old = entries_.find(place_of(*entry));
        if (old == entries_.end()) {
          changes.emplace_back(nullptr, entry);
        } else if ((*old)->meta.uid != entry->meta.uid ||
                   (*old)->meta.resource_version != entry->meta.resource_version) {
          changes.emplace_back(*old, entry);
        } else {
          unchanged.push_back(*old);
        }
      }
      for (Ptr& entry : unchanged) {
        incoming_.erase(incoming_.find(place_of(*entry)));
        incoming_.insert(std::move(entry));
      }
      for (const Ptr& entry : entries_) {
        if (!incoming_.contains(place_of(*entry))) changes.emplace_back(entry, nullptr);
      }
      entries_.swap(incoming_);
      buckets_.clear();
      for (const Ptr& entry : entries_) index_in(entry);
    }
    Entries().swap(incoming_);
    resource_version_.store(resource_version, std::memory_order_release);
    synced_.store(true, std::memory_order_release);
    for (const auto& [before, after] : changes) notify(before, after);
  }
  Status apply(const WatchEvent& event) override;

 private:
  // Entries are found by their own metadata. A second copy of every name would cost a tenth of the
  // cache.
  struct Place {
    std::string_view ns;
    std::string_view name;
    bool operator==(const Place&) const = default;
  };
  static Place place_of(const T& value) { return {value.meta.ns, value.meta.name}; }
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(const Place& place) const noexcept {
      return std::hash<std::string_view>{}(place.ns) * 31 +
             std::hash<std::string_view>{}(place.name);
    }
    std::size_t operator()(const Ptr& entry) const noexcept { return (*this)(place_of(*entry)); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const Ptr& a, const Ptr& b) const { return place_of(*a) == place_of(*b); }
    bool operator()(const Place& a, const Ptr& b) const { return a == place_of(*b); }
    bool operator()(const Ptr& a, const Place& b) const { return place_of(*a) == b; }
  };
  using Entries = std::unordered_set<Ptr, Hash, Equal>;

  Result<Ptr> project(std::string_view object) {
    Result<T> value = read(object);
    if (!value) {
      failed_.fetch_add(1, std::memory_order_relaxed);
      return std::unexpected(value.error());
    }
    return std::make_shared<const T>(std::move(*value));
  }
  /// An exception would end the thread that reads all other objects, too.
  Result<T> read(std::string_view object) const {
    try {
      return projection_(object);
    } catch (const std::exception& error) {
      return fail(Code::kInternal, Origin::kKube, std::string("internal error: ") + error.what());
    }
  }
  void index_in(const Ptr& entry) {
    if (!index_) return;
    if (std::string value = index_(*entry); !value.empty())
      buckets_[std::move(value)].push_back(entry);
  }
  void index_out(const Ptr& entry) {
    if (!index_) return;
    const auto bucket = buckets_.find(index_(*entry));
    if (bucket == buckets_.end()) return;
    std::erase(bucket->second, entry);
    if (bucket->second.empty()) buckets_.erase(bucket);
  }
  void notify(const Ptr& before, const Ptr& after) {
    for (const Handler& handler : handlers_) handler(before, after);
  }

  const Projection projection_;
  const Index index_;
  std::vector<Handler> handlers_;
  mutable std::shared_mutex mutex_;
  Entries entries_;
  Entries incoming_;
  std::unordered_map<std::string, std::vector<Ptr>> buckets_;
  std::atomic<std::uint64_t> failed_{0};
};

template <typename T>
Status Store<T>::apply(const WatchEvent& event) {
  if (event.type == WatchEventType::kBookmark) {
    const auto version = version_of(event.object);
    if (version > resource_version()) resource_version_.store(version, std::memory_order_release);
    return {};
  }
  auto projected = project(event.object);
  if (!projected) return std::unexpected(projected.error());
  const Ptr after = std::move(*projected);
  const std::uint64_t version = after->meta.resource_version;
  Ptr before;
  {
    const std::unique_lock lock(mutex_);
    const auto found = entries_.find(place_of(*after));
    if (found != entries_.end()) {
      before = *found;
      index_out(before);
      entries_.erase(found);
    }
    if (event.type != WatchEventType::kDeleted) {
      entries_.insert(after);
      index_in(after);
    }
  }
  if (version > resource_version()) resource_version_.store(version, std::memory_order_release);
  if (event.type == WatchEventType::kDeleted) {
    if (before) notify(before, nullptr);
  } else {
    notify(before, after);
  }
  return {};
}

}  // namespace paceline::kube
