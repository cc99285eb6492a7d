// SPDX-License-Identifier: Apache-2.0
// The part of the profiler that its own thread runs: what has ended, and what the ring is told.
#include <algorithm>
#include <cstring>
#include <new>

#include "profiler.hpp"

namespace paceline::nccl {
namespace {

// An operation whose channels do not all report has ended if later ones have, for so long.
constexpr std::uint64_t kOvertakenNs = 1'000'000'000;
// Some releases give the times of one operation to another. A time that is longer than the
// operation was known by so much is such a one.
constexpr std::uint64_t kSlackNs = 1'000'000'000;

std::uint64_t since(std::uint64_t then, std::uint64_t now) { return now > then ? now - then : 0; }

bool plausible(const Pool::View& view, std::uint64_t now_ns) {
  return view.operation.stop_ns - view.operation.start_ns <=
         since(view.started_ns, now_ns) + kSlackNs;
}

}  // namespace

// Whether the times can be those of the operation. NCCL's counters of kernels run ahead where it
// tells nothing of some of them; an operation then gets times from before its call.
bool Profiler::times_match(const Pool::View& view, std::size_t communicator, std::uint64_t now_ns) {
  if (!view.follows || !view.operation.timed()) return true;
  if (!plausible(view, now_ns)) return false;
  // The kernel ended before now. The bound rises slowly, since the clocks need not run alike.
  GpuClock& clock = gpu_clocks_[communicator];
  const auto ahead = static_cast<std::int64_t>(now_ns - view.operation.stop_ns);
  const auto drift = static_cast<std::int64_t>(since(clock.seen_ns, now_ns) / 1000);
  clock.ahead_ns = clock.seen_ns == 0 ? ahead : std::min(clock.ahead_ns + drift, ahead);
  clock.seen_ns = now_ns;
  // It began after its call, within the slack.
  const auto least = static_cast<std::int64_t>(view.started_ns - view.operation.start_ns);
  return least <= clock.ahead_ns + static_cast<std::int64_t>(kSlackNs);
}

// Collectives of some CUDA graphs never report an end. Their places must be given back.
void Profiler::give_up_ends() {
  std::uint64_t all = 0;
  std::size_t fullest = 0;
  for (std::size_t place = 0; place < kComms; ++place) {
    all += progress_[place].launched;
    if (progress_[place].launched > progress_[fullest].launched) fullest = place;
  }
  if (progress_[fullest].launched > kMostOpen || all > kMostOpenOfAll)
    ends_unknown_[fullest] = true;
}

void Profiler::report(std::uint64_t now) {
  if (forked_.load(std::memory_order_relaxed) || choice_.mask == 0) return;
  const std::lock_guard lock(report_mutex_);
  try {
    // Before the operations: what is enqueued from now on belongs to this step or a later one.
    const paceline_position current = paceline_current_position();
    collect(now);
    tell(current, now);
  } catch (const std::bad_alloc&) {  // what was collected is lost, and the program goes on
  }
}

bool Profiler::has_ended(const Pool::View& view, std::size_t place, std::uint64_t now_ns) {
  const std::size_t communicator = Communicators::place_of(view.operation.group);
  if (progress_[communicator].closed) return true;  // NCCL reports no more of it
  if (!view.enqueued) return false;
  if (!view.follows || view.channels_ended || ends_unknown_[communicator]) return true;
  if (!view.channels_idle || view.operation.serial > newest_ended_[communicator]) {
    overtaken_ns_[place] = 0;
    return false;
  }
  if (overtaken_ns_[place] == 0) overtaken_ns_[place] = now_ns;
  return since(overtaken_ns_[place], now_ns) >= kOvertakenNs;
}

void Profiler::collect(std::uint64_t now_ns) {
  progress_.fill(Progress{});
  communicators_.visit([&](const Communicator& one, std::size_t place, bool closed) {
    progress_[place].enqueued = one.enqueued.load(std::memory_order_acquire);
    progress_[place].closed = closed;
  });
  ledger_.begin();
  pool_.visit([&](const Pool::View& view, std::size_t place) {
    Operation operation = view.operation;
    const std::size_t communicator = Communicators::place_of(operation.group);
    Progress& progress = progress_[communicator];
    if (has_ended(view, place, now_ns)) {
      if (view.follows && view.channels_ended)
        newest_ended_[communicator] = std::max(newest_ended_[communicator], operation.serial);
      overtaken_ns_[place] = 0;
      if (!times_match(view, communicator, now_ns)) ends_unknown_[communicator] = true;
      // Of an unknown number of channels some may be missing.
      if (!view.follows || ends_unknown_[communicator]) {
        operation.start_ns = operation.stop_ns = 0;
        operation.wait_known = false;
      }
      ledger_.add(operation);
      return false;
    }
    ledger_.open(operation);
    ++progress.open;
    if (view.enqueued) ++progress.launched;
    if (operation.collective() && view.follows) {
      progress.first_open = std::min(progress.first_open, operation.sequence);
      progress.oldest_serial = std::min(progress.oldest_serial, operation.serial);
    }
    return true;
  });
  give_up_ends();
  for (std::size_t place = 0; place < kComms; ++place) {
    if (ends_unknown_[place]) progress_[place].first_open = progress_[place].oldest_serial = kNone;
    if (!progress_[place].closed || progress_[place].open != 0) continue;
    newest_ended_[place] = 0;
    ends_unknown_[place] = false;
    gpu_clocks_[place] = GpuClock{};
    communicators_.free(place);
  }
}

paceline_collective Profiler::shown() {
  paceline_collective best{};
  std::uint64_t best_oldest = kNone;
  std::uint64_t best_used = 0;
  communicators_.visit([&](const Communicator& one, std::size_t place, bool closed) {
    const Progress& progress = progress_[place];
    if (closed || progress.enqueued == 0) return;
    const std::uint64_t used = one.last_used_ns.load(std::memory_order_relaxed);
    const bool better = progress.oldest_serial != best_oldest ? progress.oldest_serial < best_oldest
                                                              : used > best_used;
    if (!better) return;
    best_oldest = progress.oldest_serial;
    best_used = used;
    best.group_id = one.id.load(std::memory_order_relaxed);
    best.group_size = one.size.load(std::memory_order_relaxed);
    best.group_rank = one.rank.load(std::memory_order_relaxed);
    best.enqueued = progress.enqueued;
    best.done = PACELINE_COLLECTIVE_UNKNOWN;
    if (one.replayed.load(std::memory_order_relaxed)) {
      best.enqueued = 0;
    } else if (progress.first_open != kNone) {
      best.done = progress.first_open - 1;
    } else if (one.followed.load(std::memory_order_relaxed) && !ends_unknown_[place]) {
      best.done = progress.enqueued;
    }
  });
  return best;
}

void Profiler::tell(const paceline_position& current, std::uint64_t now_ns) {
  if (const std::uint64_t lost = lost_.load(std::memory_order_acquire); lost != lost_told_) {
    lost_told_ = lost;
    paceline_position position = current;
    position.step = lost_step_.load(std::memory_order_relaxed);
    ledger_.lost(position);
  }
  for (const paceline_step_record& facts : ledger_.settle(current, now_ns)) paceline_amend(&facts);
  if (current.ring_epoch == 0) return;
  const paceline_collective collective = shown();
  if (told_epoch_ != current.ring_epoch) {
    if (paceline_announce(PACELINE_CAPABILITY_NCCL_PROFILER) != PACELINE_OK) return;
    told_epoch_ = current.ring_epoch;
    told_ = paceline_collective{};
  }
  if (std::memcmp(&collective, &told_, sizeof collective) == 0) return;
  if (paceline_set_collective(&collective) == PACELINE_OK) told_ = collective;
}

}  // namespace paceline::nccl
