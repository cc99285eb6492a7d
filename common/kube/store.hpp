// SPDX-License-Identifier: Apache-2.0
// Store<T>: a cache of objects projected to structs; documents are never kept. T has a member `ObjectMeta meta`, filled by the projection.
//
// Ownership: entries are immutable and shared; a pointer stays valid after the entry was replaced.
// Thread-safe: one writer (the reflector), any number of readers. Handlers run on the writer's thread after the change is visible, without locks held.
// Failure: a projection that fails leaves the old entry in place, is counted, and the error is returned to the reflector, which logs it.
#pragma once

#include <atomic>
#include <cstdint>
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

#include "common/kube/object_meta.hpp"
#include "common/kube/object_sink.hpp"

namespace paceline::kube {

/// What is known of a store without its type: for gates and readiness.
class StoreState {
 public:
  virtual ~StoreState() = default;
  /// Everything up to this version has been seen; 0 before the first list.
  std::uint64_t resource_version() const { return resource_version_.load(std::memory_order_acquire); }
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
  using Index = std::function<std::string(const T&)>;                        // an empty string: not indexed
  using Handler = std::function<void(const Ptr& before, const Ptr& after)>;  // null before: added; null after: deleted

  explicit Store(Projection projection, Index index = {})
      : projection_(std::move(projection)), index_(std::move(index)) {}

  /// Before the first event only.
  void subscribe(Handler handler) { handlers_.push_back(std::move(handler)); }

  Ptr get(std::string_view ns, std::string_view name) const { return get(key_of(ns, name)); }
  Ptr get(const std::string& key) const {
    const std::shared_lock lock(mutex_);
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second;
  }
  std::vector<Ptr> list() const {
    const std::shared_lock lock(mutex_);
    std::vector<Ptr> all;
    all.reserve(entries_.size());
    for (const auto& [key, entry] : entries_) all.push_back(entry);
    return all;
  }
  std::vector<Ptr> by_index(const std::string& value) const {
    const std::shared_lock lock(mutex_);
    std::vector<Ptr> found;
    if (const auto bucket = buckets_.find(value); bucket != buckets_.end())
      found.assign(bucket->second.begin(), bucket->second.end());
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
    std::string key = key_of((*value)->meta.ns, (*value)->meta.name);
    incoming_.insert_or_assign(std::move(key), std::move(*value));
    return {};
  }
  void end_replace(std::uint64_t resource_version) override {
    std::vector<std::pair<Ptr, Ptr>> changes;
    {
      const std::unique_lock lock(mutex_);
      for (auto& [key, entry] : incoming_) {
        const auto old = entries_.find(key);
        if (old == entries_.end()) {
          changes.emplace_back(nullptr, entry);
        } else if (old->second->meta.uid != entry->meta.uid ||
                   old->second->meta.resource_version != entry->meta.resource_version) {
          changes.emplace_back(old->second, entry);
        } else {
          entry = old->second;  // unchanged: readers keep sharing one copy
        }
      }
      for (const auto& [key, entry] : entries_) {
        if (!incoming_.contains(key)) changes.emplace_back(entry, nullptr);
      }
      entries_.swap(incoming_);
      buckets_.clear();
      for (const auto& [key, entry] : entries_) index_in(entry);
    }
    Entries().swap(incoming_);
    resource_version_.store(resource_version, std::memory_order_release);
    synced_.store(true, std::memory_order_release);
    for (const auto& [before, after] : changes) notify(before, after);
  }
  Status apply(const WatchEvent& event) override;

 private:
  using Entries = std::unordered_map<std::string, Ptr>;

  Result<Ptr> project(std::string_view object) {
    Result<T> value = projection_(object);
    if (!value) {
      failed_.fetch_add(1, std::memory_order_relaxed);
      return std::unexpected(value.error());
    }
    return std::make_shared<const T>(std::move(*value));
  }
  void index_in(const Ptr& entry) {
    if (!index_) return;
    if (std::string value = index_(*entry); !value.empty()) buckets_[std::move(value)].insert(entry);
  }
  void index_out(const Ptr& entry) {
    if (!index_) return;
    const auto bucket = buckets_.find(index_(*entry));
    if (bucket == buckets_.end()) return;
    bucket->second.erase(entry);
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
  std::unordered_map<std::string, std::unordered_set<Ptr>> buckets_;
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
    const std::string key = key_of(after->meta.ns, after->meta.name);
    const auto found = entries_.find(key);
    if (found != entries_.end()) {
      before = found->second;
      index_out(before);
    }
    if (event.type == WatchEventType::kDeleted) {
      if (found != entries_.end()) entries_.erase(found);
    } else {
      entries_.insert_or_assign(key, after);
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
