// SPDX-License-Identifier: Apache-2.0
// Collectives of memory of GPUs: the moves of moves.hpp, and a hierarchical allreduce. For that
// every rank copies its chunks into slots of its own GPU, each lane adds up its shard of them out
// of all ranks' memory and, where there are several hosts, sums it over them (lane.hpp); every rank
// copies the results out of the lanes'.
//
// The host paces it: what needs another rank's work is begun after that rank has told, through
// memory that the host shares, that its device is done. So neither a kernel nor a stream ever waits
// for another process, which could die or be held up by a kernel of NCCL that waits for this one.
//
// Ownership: of the pool and the lane; region and watch outlive it, and the watch's thread ends
// before it. Threads: allreduces one at a time; record and join any. Failure: where the driver
// refuses, this rank gives up by its name, so that the watch, and all ranks, know why.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "../pace.hpp"
#include "../ring.hpp"
#include "landing.hpp"
#include "lane.hpp"
#include "moves.hpp"
#include "pool.hpp"

namespace paceline::comm::device {

class DeviceStage final : private Pace, private Lane::Stage {
 public:
  // Memory for these ranks and chunks of at most so many bytes.
  static Pool::Size size_for(const Topology& topology, std::size_t chunk_bytes);

  // `lane` is null with one host, or where this rank has no lane. The pool is mapped.
  DeviceStage(const Topology& topology, Region& region, Watch& watch, std::unique_ptr<Pool> pool,
              std::unique_ptr<Lane> lane);
  // When the device is done, and the others have let go of this rank's memory, both waited for as
  // long as a silent peer would be. What is in use then stays until the process ends.
  ~DeviceStage();

  // PACELINE_OK where `stream` can be used, PACELINE_EINVAL where it is being captured into a
  // graph, PACELINE_EDEVICE where the driver refuses.
  int check(cuda::Stream stream);
  // An event behind what `stream` has been given so far, and whose it is. None where the driver
  // refuses.
  std::optional<cuda::Event> record(cuda::Stream stream);
  void remember(std::uint64_t ticket, cuda::Event event);
  // Begins when `event` has happened, and has it recorded anew behind the result. Returns when all
  // has been given to the device. `takes`: whether this rank is to have the result.
  bool allreduce(const Call& call, Type type, cuda::Address data, std::uint64_t count,
                 cuda::Event event, bool takes);
  // The same of what a move says.
  bool move(const Call& call, const Move& move, cuda::Event event);
  // In the caller's own stream.
  bool copy(const Copy& copy, cuda::Stream stream);
  // Has `stream` wait for the ticket's event, which is free for another ticket then; it only
  // becomes that where `waits` is false. PACELINE_EINVAL where the ticket has no event,
  // PACELINE_EDEVICE where the driver refuses.
  int join(std::uint64_t ticket, cuda::Stream stream, bool waits);

  [[nodiscard]] const Pool& pool() const { return *pool_; }
  [[nodiscard]] std::size_t pool_bytes() const { return pool_->all_bytes(); }
  [[nodiscard]] cuda::Stream stream() const { return pool_->stream(Pool::kTaking); }

 private:
  enum Kind : std::uint32_t { kGiven, kAdded, kRaised, kTaken, kMoved, kKinds, kLast = kKinds };

  struct Work {
    Type type;
    bool takes;
    cuda::Address data;
    std::uint64_t count;
    std::uint64_t chunk;  // elements
    std::uint32_t chunks;
    std::uint32_t given = 0, added = 0, taken = 0;
  };
  bool give(Work& work);
  bool add(Work& work);
  bool take(Work& work);
  bool turn(Work& work);
  bool copy_all(const std::vector<Copy>& copies, Pool::Way way);
  bool give(const Move& move, std::uint32_t number);
  bool take(const Move& move, std::uint32_t number);
  void expect_raised(std::uint32_t number) override { expect(kRaised, number, Pool::kRaising); }
  void finished(std::uint32_t chunks) override;
  void ring() override { mine().bell.ring(); }
  void landed(const Landing::Mark& mark);
  Part chunk_of(const Work& work, std::uint32_t number) const;
  Shard shard_of(const Work& work, std::uint32_t number, std::uint32_t lane) const;
  // Tells of a chunk when its stream has come to here.
  void expect(Kind kind, std::uint32_t number, Pool::Way way);
  // Whether the device has done all that it was given: also copies that no mark follows, since the
  // driver refused it.
  bool is_done(Clock::time_point deadline);
  // What this rank says of the others' memory, at its end.
  void tell(Hold hold) const;
  // Says that it has let go of it, and waits until they have of its. False where one has not, or
  // keeps it.
  bool all_let_go(Clock::time_point deadline);
  // Asks the device, when it has told nothing for a while: after an error of it, streams call
  // nothing of the host any more.
  bool answers();
  bool good(int status, const char* call) override;
  void give_up(const std::string& why);

  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Lane> lane_;
  std::unique_ptr<Landing> landing_;
  std::unique_ptr<Landing::Mark[]> marks_;
  std::mutex mutex_;                 // of what follows
  std::vector<cuda::Event> events_;  // all
  std::vector<cuda::Event> free_;
  std::map<std::uint64_t, cuda::Event> tickets_;
};

}  // namespace paceline::comm::device
