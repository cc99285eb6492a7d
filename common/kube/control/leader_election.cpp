// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "common/kube/control/leader_election.hpp"

#include <condition_variable>
#include <mutex>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/timestamp.hpp"

namespace paceline::kube {
namespace {

using Document = nlohmann::json;

std::string text_at(const Document& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string holder_of(const Document& lease) {
  return lease.contains("spec") ? text_at(lease["spec"], "holderIdentity") : std::string();
}

}  // namespace

LeaderElection::LeaderElection(Api& api, const Clock& clock, LeaderElectionOptions options)
    : api_(api), clock_(clock), options_(std::move(options)) {}

Status LeaderElection::try_acquire_or_renew(const std::stop_token& stop) {
  const SteadyTime began = clock_.steady();
  const std::string now = format_micro_time(clock_.wall());
  const auto seconds = std::max<std::int64_t>(
      1, std::chrono::duration_cast<std::chrono::seconds>(options_.lease_duration).count());
  auto existing = api_.get(kLeases, options_.ns, options_.name, stop);
  if (!existing && existing.error().code != Code::kNotFound)
    return std::unexpected(existing.error());
  if (!existing) {
    const Document lease = {{"apiVersion", kLeases.api_version()},
                            {"kind", kLeases.kind},
                            {"metadata", {{"name", options_.name}, {"namespace", options_.ns}}},
                            {"spec",
                             {{"holderIdentity", options_.identity},
                              {"leaseDurationSeconds", seconds},
                              {"acquireTime", now},
                              {"renewTime", now},
                              {"leaseTransitions", 0}}}};
    auto created = api_.create(kLeases, options_.ns, lease.dump(), {}, stop);
    if (!created) return std::unexpected(created.error());
    leading_ = true;
    renewed_at_ = began;
    note_holder(options_.identity);
    return {};
  }
  Document lease = Document::parse(*existing, nullptr, false);
  if (lease.is_discarded() || !lease.is_object())
    return fail(Code::kInvalid, Origin::kProtocol, "the Lease is not a JSON object");
  if (!lease["spec"].is_object()) lease["spec"] = Document::object();
  Document& spec = lease["spec"];
  std::string record = spec.dump();
  if (record != observed_) {
    observed_ = std::move(record);
    observed_at_ = clock_.steady();
  }
  const std::string holder = holder_of(lease);
  note_holder(holder);
  const bool ours = holder == options_.identity;
  // Use the duration in the other holder's record: its configuration may differ.
  const auto theirs = spec.value("leaseDurationSeconds", seconds);
  if (!ours && !holder.empty() && clock_.steady() < observed_at_ + std::chrono::seconds(theirs)) {
    leading_ = false;
    return {};
  }
  if (!ours) {
    spec["acquireTime"] = now;
    spec["leaseTransitions"] = spec.value("leaseTransitions", 0) + 1;
  }
  spec["holderIdentity"] = options_.identity;
  spec["leaseDurationSeconds"] = seconds;
  spec["renewTime"] = now;
  // The update carries the resourceVersion just read, so that two candidates cannot both win.
  auto updated = api_.update(kLeases, options_.ns, options_.name, lease.dump(), {}, stop);
  if (!updated) {
    if (updated.error().code == Code::kConflict && !ours) return {};
    return std::unexpected(updated.error());
  }
  leading_ = true;
  renewed_at_ = began;
  note_holder(options_.identity);
  return {};
}

std::string LeaderElection::holder() const {
  const std::lock_guard lock(holder_mutex_);
  return holder_;
}

void LeaderElection::note_holder(std::string holder) {
  const std::lock_guard lock(holder_mutex_);
  holder_ = std::move(holder);
}

bool LeaderElection::step(const std::stop_token& stop) {
  if (const Status status = try_acquire_or_renew(stop); !status && !stop.stop_requested()) {
    spdlog::warn("lease {}/{}: {}", options_.ns, options_.name, to_string(status.error()));
  }
  // Our lease ends before another process may consider it expired.
  if (leading_ && clock_.steady() - renewed_at_ >= options_.renew_deadline) leading_ = false;
  return leading_;
}

bool LeaderElection::run(const std::function<void()>& on_start, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any nothing;
  bool held = false;
  while (!stop.stop_requested()) {
    const bool leads = step(stop);
    if (leads && !held) {
      held = true;
      spdlog::info("{} leads ({}/{})", options_.identity, options_.ns, options_.name);
      on_start();
    } else if (!leads && held) {
      spdlog::error("{} lost the lease {}/{}", options_.identity, options_.ns, options_.name);
      return true;
    }
    std::unique_lock lock(mutex);
    nothing.wait_for(lock, stop, options_.retry_period, [] { return false; });
  }
  if (held) release();
  return held;
}

void LeaderElection::release() {
  if (!leading_) return;
  leading_ = false;
  auto existing = api_.get(kLeases, options_.ns, options_.name);
  if (!existing) return;
  Document lease = Document::parse(*existing, nullptr, false);
  if (lease.is_discarded() || holder_of(lease) != options_.identity) return;
  lease["spec"]["holderIdentity"] = "";
  lease["spec"]["leaseDurationSeconds"] = 1;
  if (const auto updated = api_.update(kLeases, options_.ns, options_.name, lease.dump());
      !updated) {
    spdlog::warn("lease {}/{} could not be released: {}", options_.ns, options_.name,
                 to_string(updated.error()));
  }
}

}  // namespace paceline::kube
