// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/stream.hpp"

#include <stdexcept>

#include "common/kube/api/kueue.hpp"

namespace paceline::sim {

void Journal::add(const kube::FakeCluster::Sight& sight, const std::string& name) {
  entries.push_back({sight.type, sight.resource_version, sight.text});
  if (sight.type == kube::WatchEventType::kDeleted) {
    present.erase(name);
  } else {
    present[name] = sight.text;
  }
}

void Stream::relist(std::uint64_t version) {
  next_ = listed_ = journal_.entries.size();
  sink_.begin_replace();
  for (const auto& [name, object] : journal_.present) {
    const auto seen =
        defect_ == Defect::kNone ? *object : seen_through(defect_, journal_.resource, *object);
    if (seen && !sink_.add(*seen)) throw std::runtime_error("a list that cannot be read");
  }
  sink_.end_replace(version);
}

void Stream::apply(const Journal::Entry& entry) {
  if (defect_ == Defect::kMissesWithdrawals && entry.type == kube::WatchEventType::kDeleted &&
      journal_.resource.plural == kube::kKueueWorkloads.plural)
    return;
  if (defect_ == Defect::kNone) {
    if (!sink_.apply({entry.type, *entry.object}))
      throw std::runtime_error("an event that cannot be read");
    return;
  }
  const auto seen = seen_through(defect_, journal_.resource, *entry.object);
  const auto type = seen ? entry.type : kube::WatchEventType::kDeleted;
  if (!sink_.apply({type, seen ? *seen : *entry.object}))
    throw std::runtime_error("an event that cannot be read");
}

std::size_t Stream::deliver(std::size_t count) {
  std::size_t delivered = 0;
  for (; delivered < count && behind(); ++delivered) apply(journal_.entries[next_++]);
  return delivered;
}

void Stream::repeat() {
  if (next_ > listed_) apply(journal_.entries[next_ - 1]);
}

void Stream::bookmark(std::uint64_t version) {
  if (behind()) return;
  const std::string object =
      R"({"metadata":{"resourceVersion":")" + std::to_string(version) + "\"}}";
  if (!sink_.apply({kube::WatchEventType::kBookmark, object}))
    throw std::runtime_error("a bookmark that cannot be read");
}

void Stream::go_back(std::size_t count) { next_ -= std::min(count, next_ - listed_); }

}  // namespace paceline::sim
