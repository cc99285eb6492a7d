// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "agent/inject/injector.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <set>
#include <system_error>

#include "common/contract/env.hpp"
#include "common/contract/injection.hpp"
#include "common/contract/labels.hpp"

namespace paceline::agent {
namespace {

constexpr const char* kStandingBy = "StandingBy";

}  // namespace

Injector::Injector(Kubelet& kubelet, const Clock& clock, InjectorOptions options)
    : kubelet_(kubelet),
      clock_(clock),
      options_(std::move(options)),
      store_(options_.folder / "runtimes"),
      slots_(options_.folder, options_.slots),
      try_at_(clock.steady()),
      collect_at_(clock.steady()),
      pause_(options_.retry_first),
      state_{false, "Starting", "the runtime is not staged yet"} {}

Injector::~Injector() { kubelet_.stop_serving(); }

SteadyTime Injector::tick(const std::stop_token& stop) {
  const SteadyTime look_again = clock_.steady() + options_.look_interval;
  if (clock_.steady() < try_at_) return std::min(try_at_, look_again);
  // Each step depends on the one before. The first that fails logs it and is tried again after a
  // pause.
  const bool leads = lead();
  if (!leads && state().reason == kStandingBy) return look_again;
  if (!leads || !stage(stop) || !keep_slots() || !open_sockets() || !enroll(stop)) {
    try_at_ = clock_.steady() + pause_;
    pause_ = std::min(pause_ * 2, options_.retry_most);
    return std::min(try_at_, look_again);
  }
  pause_ = options_.retry_first;
  name_pods(stop);
  if (!enrolled_.empty()) complaint_.clear();
  if (!enrolled_.empty() && clock_.steady() >= collect_at_) collect(stop);
  return look_again;
}

void Injector::run(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  while (!stop.stop_requested()) {
    const auto next = tick(stop);
    std::unique_lock lock(mutex);
    stopped.wait_until(lock, stop, next, [] { return false; });
  }
}

/// Only one agent of a node serves its slots. A second one, which can run for a while after a node
/// comes back, would otherwise take over the socket's name for ever.
bool Injector::lead() {
  if (leader_.valid()) return true;
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  const std::string path = (options_.folder / "leader").string();
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    failed("NotStaged", fail_errno("open " + path, errno).error());
    return false;
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    say({false, kStandingBy,
         "another agent of this node serves its slots; this one takes over when that one ends"});
    return false;
  }
  leader_ = std::move(fd);
  return true;
}

bool Injector::stage(const std::stop_token& stop) {
  const std::string before = store_.current();
  if (!before.empty() && store_.intact()) return true;
  if (offer().healthy) {
    spdlog::warn("the staged runtime is gone from {}: staging it again",
                 store_.path_of(before).string());
    set_version("");
  }
  const auto staged = store_.stage(options_.source, stop);
  if (!staged) {
    failed("NotStaged", staged.error());
    return false;
  }
  if (auto prepared = slots_.prepare(); !prepared) {
    failed("NotStaged", prepared.error());
    return false;
  }
  spdlog::info("runtime {} is staged in {}", *staged, store_.path_of(*staged).string());
  set_version(*staged);
  collect_at_ = clock_.steady();
  return true;
}

/// The folders may have been removed by another program.
bool Injector::keep_slots() {
  if (slots_.whole()) return true;
  spdlog::warn(
      "folders of slots are gone from {}: making them again; pods that run keep the removed ones, "
      "out of the reach of "
      "an agent that starts anew",
      (options_.folder / "slots").string());
  if (auto prepared = slots_.prepare(); !prepared) {
    failed("NotStaged", prepared.error());
    return false;
  }
  return true;
}

/// A slot is assigned with its socket. Running pods find their sockets again after the agent
/// restarts, because the folder is the same.
bool Injector::open_sockets() {
  if (options_.sockets == nullptr) return true;
  for (const std::string& id : slots_.ids()) {
    if (auto opened = options_.sockets->open(id, slots_.folder_of(id)); !opened) {
      failed("NoSocket", opened.error());
      return false;
    }
  }
  return true;
}

/// At most once a round, so that a flood on the sockets does not become a flood of calls to the
/// kubelet.
void Injector::name_pods(const std::stop_token& stop) {
  if (options_.sockets == nullptr || !options_.sockets->asks()) return;
  const SteadyTime asked = clock_.steady();
  if (const auto pods = kubelet_.slots_in_use(stop)) {
    options_.sockets->tell(*pods, asked);
    nameless_.clear();
  } else if (pods.error().message != nameless_) {
    nameless_ = pods.error().message;
    spdlog::warn("cannot ask the kubelet whose slot is whose, so metrics of pods wait: {}",
                 to_string(pods.error()));
  }
}

bool Injector::enroll(const std::stop_token& stop) {
  const std::string incarnation = kubelet_.incarnation();
  if (incarnation.empty()) {
    enrolled_.clear();
    failed("NoKubelet", Error{Code::kUnavailable, Origin::kSystem,
                              "the kubelet has no socket for device plugins; it is stopped, or its "
                              "folder is another one"});
    return true;  // checked again at the next tick, which is cheap
  }
  const bool known = enrolled_ == incarnation && kubelet_.serving();
  const bool heard = kubelet_.watchers() > 0;
  if (known && heard) {
    heard_ = true;
    say({true, "Served", store_.current() + " for " + std::to_string(options_.slots) + " pods"});
    return true;
  }
  // The kubelet opens its stream once per registration, so a stream that ended does not come back
  // by itself.
  if (known && !heard_ && clock_.steady() - enrolled_at_ < options_.stream_grace) return true;
  if (known) spdlog::warn("the kubelet does not watch the slots: telling it again");
  if (!kubelet_.serving()) {
    if (auto served = kubelet_.serve(*this); !served) {
      failed("NotServed", served.error());
      return false;
    }
  }
  enrolled_.clear();
  if (auto told = kubelet_.enroll(stop); !told) {
    failed("NotRegistered", told.error());
    return false;
  }
  spdlog::info("the kubelet knows of {} slots of {}", options_.slots, contract::kRuntimeResource);
  enrolled_ = incarnation;
  enrolled_at_ = clock_.steady();
  heard_ = false;
  return true;
}

void Injector::collect(const std::stop_token& stop) {
  collect_at_ = clock_.steady() + options_.collect_interval;
  const auto used = kubelet_.slots_in_use(stop);
  if (!used) {
    // Without the kubelet's answer every slot may be in use.
    spdlog::warn("cannot ask the kubelet which slots are in use, so no old runtime is removed: {}",
                 to_string(used.error()));
    return;
  }
  const auto assignments = slots_.assignments();
  std::set<std::string> keep;
  std::erase_if(given_, [&](const auto& entry) { return !assignments.contains(entry.first); });
  for (const auto& [slot, version] : assignments) {
    Given& given = given_[slot];
    if (given.version != version) given = {version, clock_.steady()};
    if (used->contains(slot) || clock_.steady() - given.seen < options_.young) keep.insert(version);
  }
  const auto removed = store_.collect(keep);
  if (!removed) {
    spdlog::warn("cannot remove old runtimes: {}", to_string(removed.error()));
  } else if (*removed > 0) {
    spdlog::info("removed {} runtimes that no slot uses", *removed);
  }
}

Offer Injector::offer() {
  const std::lock_guard lock(mutex_);
  return {slots_.ids(), !version_.empty()};
}

Result<Grant> Injector::grant(const std::vector<std::string>& ids) {
  if (ids.size() != 1) {
    return fail(Code::kInvalid, Origin::kConfig,
                "a container asks for " + std::to_string(ids.size()) + " of " +
                    std::string(contract::kRuntimeResource) + "; it needs exactly 1");
  }
  const std::string& id = ids.front();
  // The id is left out of the message, because it may hold anything.
  if (!slots_.knows(id))
    return fail(Code::kInvalid, Origin::kConfig, "the kubelet names a slot that is not offered");
  // Hold the lock throughout: the version assigned must be the version returned.
  const std::lock_guard lock(mutex_);
  if (version_.empty())
    return fail(Code::kUnavailable, Origin::kSystem,
                "the runtime is not staged on this node now: " + state_.message, true);
  if (options_.sockets != nullptr) {
    if (auto opened = options_.sockets->open(id, slots_.folder_of(id)); !opened)
      return std::unexpected(opened.error());
  }
  if (auto assigned = slots_.assign(id, version_); !assigned)
    return std::unexpected(assigned.error());
  return Grant{{{std::string(contract::kRuntimeMount), store_.path_of(version_).string()},
                {std::string(contract::kSlotMount), slots_.folder_of(id).string()}},
               {{std::string(env::kSlotDir.name), std::string(contract::kSlotMount)}}};
}

Summary Injector::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Injector::say(Summary state) {
  const std::lock_guard lock(mutex_);
  state_ = std::move(state);
}

void Injector::failed(const char* reason, const Error& error) {
  if (error.code == Code::kCancelled) return;
  if (error.message != complaint_) spdlog::warn("injection: {}", to_string(error));
  complaint_ = error.message;
  say({false, reason, error.message});
}

void Injector::set_version(const std::string& version) {
  {
    const std::lock_guard lock(mutex_);
    version_ = version;
  }
  kubelet_.offer_changed();
}

}  // namespace paceline::agent
