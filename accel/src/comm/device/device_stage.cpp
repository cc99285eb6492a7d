// SPDX-License-Identifier: Apache-2.0
#include "device_stage.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "paceline/paceline.h"
#include "table.hpp"

namespace paceline::comm::device {
namespace {

// Nobody rings for a process that ends.
constexpr std::chrono::milliseconds kLookForTheGone{50};

struct EndOfLane {
  void operator()(Lane* lane) const { lane->finish(); }
};

}  // namespace

Pool::Size DeviceStage::size_for(const Topology& topology, std::size_t chunk_bytes) {
  constexpr std::size_t kWidest = 8;  // bytes of an element: shards are cut between elements
  return {.chunk = chunk_bytes,
          .shard = Pool::room_of(chunk_bytes / topology.lanes + kWidest),
          .across_hosts = topology.has_lane(),
          .staging = Moves::staging_bytes(topology, chunk_bytes)};
}

DeviceStage::DeviceStage(const Topology& topology, Region& region, Watch& watch,
                         std::unique_ptr<Pool> pool, std::unique_ptr<Lane> lane)
    : Pace(topology, region, watch, Side::kDevice),
      pool_(std::move(pool)),
      lane_(std::move(lane)),
      landing_(std::make_unique<Landing>([this](const Landing::Mark& mark) { landed(mark); })),
      marks_(std::make_unique<Landing::Mark[]>(std::size_t{kKinds} * kDepth + Pool::kWays)) {}

DeviceStage::~DeviceStage() {
  const auto deadline = Clock::now() + watch_.silence();
  const cuda::Current current = pool_->current();
  if (!is_done(deadline)) {
    // A stream cannot be taken back: what it uses must stay.
    landing_->forget();
    static_cast<void>(landing_.release());
    static_cast<void>(marks_.release());
    static_cast<void>(pool_.release());
    tell(Hold::kKept);
    return;
  }
  for (const cuda::Event event : events_) pool_->driver().event_destroy(event);
  pool_->unmap();
  if (!all_let_go(deadline)) pool_->keep_memory();
  // Its devices write to the pool's memory.
  lane_.reset();
  end_by(deadline, std::move(pool_));
}

bool DeviceStage::is_done(Clock::time_point deadline) {
  for (std::size_t way = 0; way < Pool::kWays; ++way) {
    Landing::Mark& last = marks_[std::size_t{kKinds} * kDepth + way];
    last.kind = kLast;
    if (landing_->expect(pool_->driver(), pool_->stream(static_cast<Pool::Way>(way)), last) ==
        cuda::kSuccess)
      continue;
    // A device that calls nothing of the host may go on copying into what is the caller's again
    // when this ends.
    return pool_->is_idle(deadline) && landing_->settle(deadline);
  }
  return landing_->settle(deadline);
}

bool DeviceStage::all_let_go(Clock::time_point deadline) {
  tell(Hold::kLetGo);
  for (std::uint32_t local = 0; local < ranks_; ++local) {
    for (;;) {
      const std::uint32_t seen = mine().bell.count.load(std::memory_order_acquire);
      // Before looking: what it has said before it went lies there. A process that is gone maps
      // nothing.
      const bool gone = watch_.gone(topology_.mates()[local]);
      const Hold hold = cell(local).hold.load(std::memory_order_acquire);
      if (hold == Hold::kLetGo || (gone && hold == Hold::kMapped)) break;
      const auto left =
          std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now());
      if (hold == Hold::kKept || left.count() <= 0) return false;
      mine().bell.wait(seen, std::min<std::chrono::nanoseconds>(left, kLookForTheGone).count());
    }
  }
  return true;
}

void DeviceStage::tell(Hold hold) const {
  mine().hold.store(hold, std::memory_order_release);
  ring_all();
}

bool DeviceStage::good(int status, const char* call) {
  if (status == cuda::kSuccess) return true;
  give_up(std::string(call) + ": " + pool_->driver().error_name(status));
  return false;
}

void DeviceStage::give_up(const std::string& why) { watch_.give_up(why); }

bool DeviceStage::answers() {
  // An error of the device is the answer to every call; this one may be made while a stream is
  // being captured, unlike cuStreamQuery.
  const cuda::Current current = pool_->current();
  return good(pool_->ask(), "cuEventRecord");
}

int DeviceStage::check(cuda::Stream stream) {
  const cuda::Current current = pool_->current();
  int capture = cuda::kNoCapture;
  const int status = pool_->driver().stream_capture(stream, &capture);
  // The default stream answers so while another one is being captured that waits for it.
  if (status == cuda::kCaptureImplicit) return PACELINE_EINVAL;
  if (!good(status, "cuStreamIsCapturing")) return PACELINE_EDEVICE;
  return capture == cuda::kNoCapture ? PACELINE_OK : PACELINE_EINVAL;
}

std::optional<cuda::Event> DeviceStage::record(cuda::Stream stream) {
  const std::lock_guard lock(mutex_);
  const cuda::Current current = pool_->current();
  const cuda::Driver& cuda = pool_->driver();
  if (free_.empty()) {
    cuda::Event made = nullptr;
    if (!good(cuda.event_create(&made, cuda::kDisableTiming), "cuEventCreate")) return std::nullopt;
    events_.push_back(made);
    free_.push_back(made);
  }
  if (!good(cuda.event_record(free_.back(), stream), "cuEventRecord")) return std::nullopt;
  const cuda::Event event = free_.back();
  free_.pop_back();
  return event;
}

void DeviceStage::remember(std::uint64_t ticket, cuda::Event event) {
  const std::lock_guard lock(mutex_);
  tickets_.emplace(ticket, event);
}

int DeviceStage::join(std::uint64_t ticket, cuda::Stream stream, bool waits) {
  const std::lock_guard lock(mutex_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return PACELINE_EINVAL;
  const cuda::Event event = found->second;
  tickets_.erase(found);
  free_.push_back(event);
  const cuda::Current current = pool_->current();
  if (waits && !good(pool_->driver().stream_wait(stream, event, 0), "cuStreamWaitEvent"))
    return PACELINE_EDEVICE;
  return PACELINE_OK;
}

Part DeviceStage::chunk_of(const Work& work, std::uint32_t number) const {
  const std::uint64_t begin = number * work.chunk;
  return {.begin = begin, .count = std::min(work.chunk, work.count - begin)};
}

Shard DeviceStage::shard_of(const Work& work, std::uint32_t number, std::uint32_t lane) const {
  const Part part = part_of(chunk_of(work, number).count, topology_.lanes, lane);
  const std::uint64_t begin = part.begin * size_of(work.type);
  return {
      .begin = begin, .count = part.count, .result = pool_->result(lane, base_ + number, begin)};
}

void DeviceStage::expect(Kind kind, std::uint32_t number, Pool::Way way) {
  // Its last use was kDepth chunks ago, and has landed: or this chunk could not have begun.
  const std::uint32_t count = base_ + number + 1;
  Landing::Mark& mark = marks_[std::size_t{kind} * kDepth + count % kDepth];
  mark.kind = kind;
  mark.number = number;
  mark.count = count;
  good(landing_->expect(pool_->driver(), pool_->stream(way), mark), "cuLaunchHostFunc");
}

void DeviceStage::landed(const Landing::Mark& mark) {
  Cell& cell = mine();
  if (mark.kind == kGiven) cell.given.store(mark.count, std::memory_order_release);
  if (mark.kind == kTaken) cell.taken.store(mark.count, std::memory_order_release);
  if (mark.kind == kMoved) {
    // Slots and results are free alike, for an allreduce that comes next too: its lanes are those
    // who read slots, all ranks of a single host.
    for (auto* const counter : {&cell.taken, &cell.added, &cell.finished})
      counter->store(mark.count, std::memory_order_release);
  }
  if (mark.kind == kAdded) {
    cell.added.store(mark.count, std::memory_order_release);
    if (lane_ != nullptr) lane_->open(mark.number + 1);
  }
  if (mark.kind == kAdded && lane_ == nullptr)
    cell.finished.store(mark.count, std::memory_order_release);
  if (mark.kind == kRaised) lane_->landed(mark.number);
  ring_all();
}

void DeviceStage::finished(std::uint32_t chunks) {
  mine().finished.store(chunks, std::memory_order_release);
  ring_all();
}

bool DeviceStage::give(Work& work) {
  if (work.given == work.chunks) return false;
  // The slot is free when the lanes have added up what was in it before.
  if (!all_reached(&Cell::added, base_ + work.given + 1 - kDepth, topology_.lanes)) return false;
  const Part part = chunk_of(work, work.given);
  const std::size_t size = size_of(work.type);
  if (!good(pool_->copy(pool_->slot(topology_.local, base_ + work.given),
                        work.data + part.begin * size, part.count * size, Pool::kGiving),
            "cuMemcpyAsync"))
    return false;
  expect(kGiven, work.given, Pool::kGiving);
  ++work.given;
  return true;
}

bool DeviceStage::add(Work& work) {
  if (!adds_ || work.added == work.chunks) return false;
  // The result's slot is free when all have taken it out and the lane has passed it on.
  if (!all_reached(&Cell::given, base_ + work.added + 1, ranks_)) return false;
  if (!all_reached(&Cell::taken, base_ + work.added + 1 - kDepth, ranks_)) return false;
  if (lane_ != nullptr && !lane_->ready(work.added)) return false;
  const Shard shard = shard_of(work, work.added, topology_.local);
  std::array<cuda::Address, kMostSources> places{};
  const std::span<cuda::Address> sources(places.data(), ranks_);
  for (std::uint32_t local = 0; local < ranks_; ++local)
    sources[local] = pool_->slot(local, base_ + work.added) + shard.begin;
  if (!good(pool_->sum(work.type, shard.result, sources, shard.count, Pool::kAdding),
            "cuLaunchKernel"))
    return false;
  if (lane_ != nullptr && !lane_->lower(work.added)) return false;
  expect(kAdded, work.added, Pool::kAdding);
  ++work.added;
  return true;
}

bool DeviceStage::take(Work& work) {
  if (work.taken == work.chunks) return false;
  if (!all_reached(&Cell::finished, base_ + work.taken + 1, topology_.lanes)) return false;
  const std::size_t size = size_of(work.type);
  const cuda::Address chunk = work.data + chunk_of(work, work.taken).begin * size;
  for (std::uint32_t lane = 0; work.takes && lane < topology_.lanes; ++lane) {
    const Shard shard = shard_of(work, work.taken, lane);
    if (!good(pool_->copy(chunk + shard.begin, shard.result, shard.count * size, Pool::kTaking),
              "cuMemcpyAsync"))
      return false;
  }
  expect(kTaken, work.taken, Pool::kTaking);
  ++work.taken;
  return true;
}

// Does what can be done now; whether there was anything.
bool DeviceStage::turn(Work& work) {
  bool some = false;
  while (take(work)) some = true;
  while (add(work)) some = true;
  if (give(work)) some = true;
  return some;
}

bool DeviceStage::allreduce(const Call& call, Type type, cuda::Address data, std::uint64_t count,
                            cuda::Event event, bool takes) {
  const cuda::Current current = pool_->current();
  const std::uint64_t chunk = pool_->chunk() / size_of(type);
  Work work{.type = type,
            .takes = takes,
            .data = data,
            .count = count,
            .chunk = chunk,
            .chunks = static_cast<std::uint32_t>((count + chunk - 1) / chunk)};
  if (!good(pool_->driver().stream_wait(pool_->stream(Pool::kGiving), event, 0),
            "cuStreamWaitEvent"))
    return false;
  {
    // However this ends: until then the lane's thread has the address of `work`.
    const std::unique_ptr<Lane, EndOfLane> under_way(lane_.get());
    try {
      if (lane_ != nullptr)
        lane_->start(*this, {.call = call,
                             .type = type,
                             .base = base_,
                             .chunks = work.chunks,
                             .shard = [this, &work](std::uint32_t number) {
                               return shard_of(work, number, topology_.local);
                             }});
      run(call, {.give = [&] { return give(work); },
                 .turn = [&] { return turn(work); },
                 .ended = [&] { return work.taken == work.chunks; },
                 .quiet = [&] { return answers(); },
                 .across = lane_ == nullptr ? nullptr : std::function([this] {
                   return lane_->awaited().value_or(topology_.rank);
                 })});
    } catch (const std::exception& error) {
      // Before the lane's end, which would wait for ranks that wait for this one.
      give_up(error.what());
    }
  }
  next(work.chunks);
  // What is taken out has been given by all ranks, this one too: nothing else is left to wait for.
  return !watch_.failed() &&
         good(pool_->driver().event_record(event, pool_->stream(Pool::kTaking)), "cuEventRecord");
}

bool DeviceStage::copy_all(const std::vector<Copy>& copies, Pool::Way way) {
  return std::ranges::all_of(copies, [&](const Copy& one) {
    return good(pool_->copy(one.to, one.from, one.bytes, way), "cuMemcpyAsync");
  });
}

bool DeviceStage::give(const Move& move, std::uint32_t number) {
  // The slot, and the result of the same number, are free when all have taken what was there
  // before.
  if (!all_reached(&Cell::taken, base_ + number + 1 - kDepth, ranks_)) return false;
  if (!copy_all(move.give(number, base_ + number), Pool::kGiving)) return false;
  // Also where there is nothing to give: outputs are free when the caller's stream has come to the
  // call.
  expect(kGiven, number, Pool::kGiving);
  return true;
}

bool DeviceStage::take(const Move& move, std::uint32_t number) {
  if (!all_reached(&Cell::given, base_ + number + 1, ranks_)) return false;
  if (move.meet && !move.meet(number, base_ + number)) return false;
  const Taking taking = move.take(number, base_ + number);
  if (taking.sum && !good(pool_->sum(taking.sum->type, taking.sum->target, taking.sum->sources,
                                     taking.sum->count, Pool::kTaking),
                          "cuLaunchKernel"))
    return false;
  if (!copy_all(taking.copies, Pool::kTaking)) return false;
  expect(kMoved, number, Pool::kTaking);
  return true;
}

bool DeviceStage::move(const Call& call, const Move& move, cuda::Event event) {
  const cuda::Current current = pool_->current();
  if (!good(pool_->driver().stream_wait(pool_->stream(Pool::kGiving), event, 0),
            "cuStreamWaitEvent"))
    return false;
  std::uint32_t given = 0;
  std::uint32_t taken = 0;
  const auto give_some = [&] {
    if (given == move.chunks || !give(move, given)) return false;
    ++given;
    return true;
  };
  run(call, {.give = give_some,
             .turn =
                 [&] {
                   // What is met for may be long: before that all is given that can be.
                   bool some = false;
                   while (give_some()) some = true;
                   if (taken == move.chunks || !take(move, taken)) return some;
                   ++taken;
                   return true;
                 },
             .ended = [&] { return taken == move.chunks; },
             .quiet = [&] { return answers(); },
             .across = nullptr});
  next(move.chunks);
  const cuda::Driver& cuda = pool_->driver();
  // A sum that comes next tells of its chunks in another stream, and with the same counters.
  return !watch_.failed() &&
         good(cuda.event_record(event, pool_->stream(Pool::kTaking)), "cuEventRecord") &&
         good(cuda.stream_wait(pool_->stream(Pool::kAdding), event, 0), "cuStreamWaitEvent");
}

bool DeviceStage::copy(const Copy& copy, cuda::Stream stream) {
  const cuda::Current current = pool_->current();
  return good(pool_->driver().copy(copy.to, copy.from, copy.bytes, stream), "cuMemcpyAsync");
}

}  // namespace paceline::comm::device
