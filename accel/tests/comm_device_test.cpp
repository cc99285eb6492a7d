// SPDX-License-Identifier: Apache-2.0
// Allreduces of memory of GPUs without a GPU: ranks as processes on a fake driver (device/) that
// does what streams are given late, on threads of its own, and lets processes open each other's
// memory. Against the sums of the same communicator on processors, bit for bit.
#include "paceline/comm_device.h"

#include "check.hpp"
#include "comm_device_world.hpp"
#include "device/device_stage.hpp"

namespace comm_device_cases {

using namespace paceline::comm_device_test;
using paceline::comm::Call;
using paceline::comm::Fd;
using paceline::comm::Region;
using paceline::comm::Topology;
using paceline::comm::Watch;
using paceline::comm::device::DeviceStage;
using paceline::comm::device::Lane;
using paceline::comm::device::Pool;
using paceline::comm::device::PoolCard;
using paceline::comm_test::SharedStore;

CASE(comm_device_sums_within_a_host_are_those_of_processors) {
  FakeCuda cuda(kModules);
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0}})
    CHECK_EQ(run_on_devices({.hosts = hosts, .plan = kSmall}, cuda,
                            [&](Member& member) {
                              return sums_as_processors(member, cuda, kTypes,
                                                        {0, 1, 7, 4099, 30'011});
                            }),
             0);
}

CASE(comm_device_sums_across_hosts_are_those_of_processors) {
  FakeCuda cuda(kModules);
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0, 1}, {0, 0, 1, 1}, {0, 1, 1, 0, 1}, {0, 0, 1, 2, 2, 1}})
    CHECK_EQ(run_on_devices({.hosts = hosts, .plan = kSmall}, cuda,
                            [&](Member& member) {
                              return sums_as_processors(member, cuda, kTypes, {1, 7, 9001});
                            }),
             0);
}

CASE(comm_device_pool_is_of_a_fixed_size_and_told) {
  FakeCuda cuda(kModules);
  CHECK_EQ(World::run(
               {.hosts = {0, 0}, .plan = ""},
               [&](Member& member) {
                 paceline_comm_device used{
                     .size = sizeof used, .reserved = 0, .pool_bytes = 0, .stream = nullptr};
                 if (!expect(open_error(member, cuda, 0, &used).empty(), "open")) return false;
                 std::array<char, 1024> text{};
                 const int before = cuda.counts();
                 const bool good =
                     sums_as_processors(member, cuda, {PACELINE_COMM_F32}, {3'000'001});
                 // The event that the one allreduce took.
                 paceline_comm_plan(member.comm, 0, 0, text.data(), text.size());
                 return good && expect(cuda.counts() == before + 1, "nothing is made as it goes") &&
                        expect(used.pool_bytes > 0 && used.pool_bytes <= 32UL << 20, "the pool") &&
                        expect(std::string(text.data())
                                       .find(std::to_string(used.pool_bytes) +
                                             " bytes of the GPU 0000:10:00.0") != std::string::npos,
                               text.data()) &&
                        expect(used.stream != nullptr, "the stream");
               }),
           0);
}

// Whatever one rank's machine refuses, all are told the same, and sum on processors.
bool refused_alike(Member& member, const std::string& why, const std::string& wanted) {
  std::int64_t one = 1;
  return expect(why.find(wanted) != std::string::npos, "'" + why + "' has no '" + wanted + "'") &&
         expect(paceline_comm_allreduce(member.comm, &one, 1, PACELINE_COMM_I64) == PACELINE_OK &&
                    one == member.ranks,
                "the communicator serves on");
}

CASE(comm_device_what_one_rank_lacks_all_ranks_are_told) {
  FakeCuda cuda(kModules);
  const auto refused = [&](const std::string& wanted, const std::function<int(Member&)>& spoil) {
    CHECK_EQ(World::run({.hosts = {0, 0, 0}, .plan = ""},
                        [&](Member& member) {
                          const int device = spoil(member);
                          const bool good =
                              refused_alike(member, open_error(member, cuda, device), wanted);
                          return expect(cuda.counts() <= kKnownStreams,
                                        "something of the driver is left") &&
                                 good;
                        }),
             0);
  };
  refused("rank 1: no module in ", [&](Member& member) {
    if (member.rank == 1) cuda.set("major", 8);
    return 0;
  });
  refused("rank 2: cuMemAlloc: ", [&](Member& member) {
    if (member.rank == 2) cuda.set("cuMemAlloc", 2);
    return 0;
  });
  refused(
      "rank 0: its GPU 0000:10:00.0 cannot read memory of the GPU 0000:11:00.0: they are no peers",
      [&](Member& member) {
        cuda.set("peers", 0);
        return static_cast<int>(member.rank);
      });
  refused(
      "rank 1: its GPU 0000:10:00.0 cannot read memory of the GPU 0000:10:00.0: "
      "cuIpcOpenMemHandle: "
      "CUDA_ERROR_INVALID_VALUE",
      [&](Member& member) {
        if (member.rank == 1) cuda.set("cuIpcOpenMemHandle", 1);
        return 0;
      });
}

CASE(comm_device_ranks_may_be_on_peers) {
  FakeCuda cuda(kModules);
  CHECK_EQ(World::run({.hosts = {0, 0}, .plan = kSmall},
                      [&](Member& member) {
                        const std::string why =
                            open_error(member, cuda, static_cast<int>(member.rank));
                        return expect(why.empty(), why) &&
                               sums_as_processors(member, cuda, {PACELINE_COMM_F32}, {4099});
                      }),
           0);
}

CASE(comm_device_a_plan_without_hosts_is_refused) {
  FakeCuda cuda(kModules);
  CHECK_EQ(World::run({.hosts = {0, 0}, .plan = "algorithm=flat"},
                      [&](Member& member) {
                        return refused_alike(member, open_error(member, cuda),
                                             "algorithm=hierarchical");
                      }),
           0);
}

CASE(comm_device_calls_that_make_no_sense_are_refused) {
  FakeCuda cuda(kModules);
  CHECK_EQ(
      World::run(
          {.hosts = {0, 0}, .plan = kSmall},
          [&](Member& member) {
            float data = 1;
            uint64_t ticket = 0;
            const auto start = [&](uint32_t type) {
              return paceline_comm_device_allreduce_start(member.comm, &data, 1, type, nullptr,
                                                          &ticket);
            };
            bool good =
                expect(start(PACELINE_COMM_F32) == PACELINE_EINVAL, "before open") &&
                expect(open_error(member, cuda).empty(), "open") &&
                expect(open_error(member, cuda).find("already") != std::string::npos, "twice") &&
                expect(start(6) == PACELINE_EINVAL, "no type");
            cuda.set("capturing", 1);
            good = expect(start(PACELINE_COMM_F32) == PACELINE_EINVAL, "captured") && good;
            cuda.set("capturing", 0);
            cuda.set("cuStreamIsCapturing", 906);  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
            good =
                expect(start(PACELINE_COMM_F32) == PACELINE_EINVAL, "another is captured") && good;
            cuda.set("cuStreamIsCapturing", 0);
            good = expect(start(PACELINE_COMM_F32) == PACELINE_OK, "start") && good;
            cuda.set("capturing", 1);
            good =
                expect(paceline_comm_device_wait(member.comm, ticket, nullptr) == PACELINE_EINVAL,
                       "captured wait") &&
                good;
            cuda.set("capturing", 0);
            return expect(paceline_comm_device_wait(member.comm, ticket, nullptr) == PACELINE_OK,
                          "wait") &&
                   expect(data == 2, "the sum") &&
                   expect(
                       paceline_comm_device_wait(member.comm, ticket, nullptr) == PACELINE_EINVAL,
                       "a second wait") &&
                   good;
          }),
      0);
}

CASE(comm_device_a_killed_rank_is_named_and_survivors_let_go) {
  FakeCuda cuda(kModules);
  World world;
  world.start({.hosts = {0, 0, 0}, .plan = kSmall, .silence_ms = 5000}, [&](Member& member) {
    paceline_comm_device used{
        .size = sizeof used, .reserved = 0, .pool_bytes = 0, .stream = nullptr};
    if (!expect(open_error(member, cuda, 0, &used).empty(), "open")) return false;
    void* const stream = cuda.stream();
    if (!sums_as_processors(member, cuda, {PACELINE_COMM_F32}, {4099})) return false;
    // Until then the others still need what is to be killed.
    wait_for_all(member);
    cuda.forget();
    Sum sum(PACELINE_COMM_F32, 100'003, member.rank);
    const int started = sum.start(member, cuda, stream, PACELINE_COMM_F32);
    if (member.rank == 1) {
      // In the middle: of its chunks some are given, and no more.
      cuda.hang(used.stream);
      begun(cuda);
      ::raise(SIGKILL);
    }
    const int code = sum.wait(member, cuda, stream);
    const bool good =
        expect(started == PACELINE_OK, "start") && fails_by(member, code, 1, "rank 1");
    paceline_comm_destroy(member.comm);
    member.comm = nullptr;
    cuda.destroy(stream);
    return expect(all_given_back(cuda),
                  std::to_string(cuda.counts()) + " things of the driver are left") &&
           good;
  });
  CHECK_EQ(world.finish(), 1);  // the killed one
}

CASE(comm_device_a_device_that_refuses_ends_the_call_by_its_ranks_name) {
  FakeCuda cuda(kModules);
  CHECK_EQ(World::run({.hosts = {0, 0, 1, 1}, .plan = kSmall},
                      [&](Member& member) {
                        if (!expect(open_error(member, cuda).empty(), "open")) return false;
                        void* const stream = cuda.stream();
                        if (member.rank == 2) cuda.set("cuLaunchKernel", 1);
                        Sum sum(PACELINE_COMM_F32, 30'011, member.rank);
                        const int started = sum.start(member, cuda, stream, PACELINE_COMM_F32);
                        const int code = sum.wait(member, cuda, stream);
                        const bool good =
                            expect(started == PACELINE_OK, "start") &&
                            fails_by(member, code, 2,
                                     "rank 2 gave up: cuLaunchKernel: CUDA_ERROR_INVALID_VALUE");
                        // Until then chunks that were under way are read.
                        paceline_comm_destroy(member.comm);
                        member.comm = nullptr;
                        cuda.destroy(stream);
                        return good;
                      }),
           0);
}

// The others are in the call already, and would wait for as long as it may take.
CASE(comm_device_a_device_that_refuses_the_beginning_of_a_call_is_named_on_all_ranks) {
  FakeCuda cuda(kModules);
  for (const char* const call : {"cuStreamIsCapturing", "cuEventCreate", "cuEventRecord"})
    CHECK_EQ(World::run({.hosts = {0, 0, 1}, .plan = kSmall},
                        [&](Member& member) {
                          if (!expect(open_error(member, cuda).empty(), "open")) return false;
                          wait_for_all(member);
                          const bool refused = member.rank == 1;
                          if (refused) cuda.set(call, 719);
                          float data = 1;
                          uint64_t ticket = 0;
                          int code = paceline_comm_device_allreduce_start(
                              member.comm, &data, 1, PACELINE_COMM_F32, nullptr, &ticket);
                          if (!expect(code == (refused ? PACELINE_EDEVICE : PACELINE_OK),
                                      std::to_string(code)))
                            return false;
                          code = refused ? paceline_comm_barrier(member.comm)
                                         : paceline_comm_device_wait(member.comm, ticket, nullptr);
                          return ended(member, fails_by(member, code, 1,
                                                        std::string("rank 1 gave up: ") + call +
                                                            ": CUDA_ERROR_LAUNCH_FAILED"));
                        }),
             0);
}

CASE(comm_device_a_device_that_refuses_to_wait_for_a_result_is_named_on_all_ranks) {
  FakeCuda cuda(kModules);
  CHECK_EQ(
      World::run({.hosts = {0, 0}, .plan = kSmall},
                 [&](Member& member) {
                   if (!expect(open_error(member, cuda).empty(), "open")) return false;
                   float data = 1;
                   uint64_t ticket = 0;
                   paceline_comm_device_allreduce_start(member.comm, &data, 1, PACELINE_COMM_F32,
                                                        nullptr, &ticket);
                   if (!expect(paceline_comm_wait(member.comm, ticket) == PACELINE_OK, "the sum"))
                     return false;
                   wait_for_all(member);
                   const bool refused = member.rank == 1;
                   if (refused) cuda.set("cuStreamWaitEvent", 719);
                   const int code = paceline_comm_device_wait(member.comm, ticket, nullptr);
                   // The sum is on its way into `data` still.
                   return ended(
                       member,
                       expect(!refused || code == PACELINE_EDEVICE, std::to_string(code)) &&
                           fails_by(member, paceline_comm_barrier(member.comm), 1,
                                    "rank 1 gave up: cuStreamWaitEvent: CUDA_ERROR_LAUNCH_FAILED"));
                 }),
      0);
}

CASE(comm_device_what_one_rank_alone_cannot_copy_says_why) {
  FakeCuda cuda(kModules);
  CHECK_EQ(World::run({.hosts = {0}, .plan = kSmall},
                      [&](Member& member) {
                        if (!expect(open_error(member, cuda).empty(), "open")) return false;
                        cuda.set("cuMemcpyAsync", 1);
                        float in = 1;
                        float out = 0;
                        uint64_t ticket = 0;
                        const int code = paceline_comm_device_allgather_start(
                            member.comm, &in, &out, 1, PACELINE_COMM_F32, nullptr, &ticket);
                        return expect(code == PACELINE_EDEVICE, std::to_string(code)) &&
                               expect(member.why() ==
                                          "rank 0 gave up: cuMemcpyAsync: CUDA_ERROR_INVALID_VALUE",
                                      member.why());
                      }),
           0);
}

CASE(comm_device_a_rank_that_sums_on_its_processor_instead_is_named) {
  FakeCuda cuda(kModules);
  CHECK_EQ(World::run({.hosts = {0, 0}, .plan = kSmall, .silence_ms = 2000},
                      [&](Member& member) {
                        if (!expect(open_error(member, cuda).empty(), "open")) return false;
                        float data = 1;
                        uint64_t ticket = 0;
                        int code = PACELINE_OK;
                        if (member.rank == 0) {
                          code = paceline_comm_allreduce(member.comm, &data, 1, PACELINE_COMM_F32);
                        } else {
                          paceline_comm_device_allreduce_start(member.comm, &data, 1,
                                                               PACELINE_COMM_F32, nullptr, &ticket);
                          code = paceline_comm_device_wait(member.comm, ticket, nullptr);
                        }
                        return expect(code == PACELINE_COMM_EPEER, "a difference") &&
                               expect(
                                   member.why().find("allreduce on a GPU #") != std::string::npos,
                                   member.why());
                      }),
           0);
}

// Then its streams call nothing of the host: what is not asked would only be late, by the name of
// another rank.
CASE(comm_device_an_error_of_the_device_is_noticed_before_the_time_is_over) {
  FakeCuda cuda(kModules);
  World world;
  world.start({.hosts = {0, 0}, .plan = kSmall, .silence_ms = 2000}, [&](Member& member) {
    paceline_comm_device used{
        .size = sizeof used, .reserved = 0, .pool_bytes = 0, .stream = nullptr};
    if (!expect(open_error(member, cuda, 0, &used).empty(), "open")) return false;
    wait_for_all(member);
    void* const stream = cuda.stream();
    if (member.rank == 1) cuda.hang(used.stream);
    Sum sum(PACELINE_COMM_F32, 100'003, member.rank);
    const int started = sum.start(member, cuda, stream, PACELINE_COMM_F32);
    if (member.rank == 1) {
      begun(cuda);
      cuda.set("cuEventRecord", 719);
    }
    const int code = sum.wait(member, cuda, stream);
    const bool good =
        expect(started == PACELINE_OK, "start") &&
        fails_by(member, code, 1, "rank 1 gave up: cuEventRecord: CUDA_ERROR_LAUNCH_FAILED") &&
        expect(sum.wait(member, cuda, stream) == PACELINE_COMM_EPEER,
               "a second wait says the same");
    paceline_comm_destroy(member.comm);
    member.comm = nullptr;
    return good;
  });
  CHECK_EQ(world.finish(), 0);
}

CASE(comm_device_a_rank_whose_stream_hangs_is_named_by_all) {
  FakeCuda cuda(kModules);
  const auto call = [&](Member& member, void* stream) {
    // What the call was given is in use until the end of the communicator, which is that of the
    // process.
    auto& sum = *new Sum(PACELINE_COMM_F32, 100'003, member.rank);
    const int started = sum.start(member, cuda, stream, PACELINE_COMM_F32);
    return started == PACELINE_OK ? sum.wait(member, cuda, stream) : started;
  };
  for (const auto& [hosts, culprit] : std::vector<std::pair<std::vector<int>, uint32_t>>{
           {{0, 0}, 1}, {{0, 0, 1, 1}, 1}, {{0, 1, 2, 2}, 2}})
    CHECK_EQ(ranks_that_name_another(cuda, {.shape = {.hosts = hosts, .plan = kSmall},
                                            .culprit = culprit,
                                            .ready = {},
                                            .call = call}),
             0);
}

// A stream that does not come to its end cannot be taken back: the end of a communicator does not
// wait for it for ever.
CASE(comm_device_a_stream_that_hangs_does_not_hold_up_the_end) {
  FakeCuda cuda(kModules);
  World world;
  world.start({.hosts = {0, 0}, .plan = kSmall, .silence_ms = 500}, [&](Member& member) {
    if (!expect(open_error(member, cuda).empty(), "open")) return false;
    wait_for_all(member);
    void* const stream = cuda.stream();
    if (member.rank == 0) cuda.hang(stream);
    Sum sum(PACELINE_COMM_F32, 4099, member.rank);
    sum.start(member, cuda, stream, PACELINE_COMM_F32);
    if (member.rank == 0) {
      begun(cuda);
      paceline_comm_abort(member.comm, "the test says so");
    }
    const int code = sum.wait(member, cuda, stream);
    bool good = fails_by(member, code, 0, "the test says so");
    char value = 0;
    uint64_t size = 0;
    if (member.rank != 0)
      good = expect(SharedStore::get(member.store, "ended", &value, 1, &size, 50'000) == 0,
                    "rank 0's end") &&
             good;
    const auto begin = std::chrono::steady_clock::now();
    paceline_comm_destroy(member.comm);
    member.comm = nullptr;
    const bool soon = std::chrono::steady_clock::now() - begin < std::chrono::seconds(20);
    if (member.rank == 0) SharedStore::set(member.store, "ended", "x", 1);
    if (member.rank != 0) {
      cuda.finish(stream);  // it writes what was given
      cuda.destroy(stream);
    }
    // Rank 0's stream may come to read what it has mapped: so that memory of rank 1 stays too.
    const int left = cuda.counts() - kKnownStreams;
    return expect(soon, "it took long") && good &&
           expect(member.rank == 0 ? left > 1 : left == 1,
                  std::to_string(left) + " things of the driver stay");
  });
  CHECK_EQ(world.finish(), 0);
}

// A driver frees memory when all work of the process is done, kernels of NCCL's that wait for a
// rank that is gone among it.
CASE(comm_device_other_work_of_the_process_does_not_hold_up_the_end) {
  FakeCuda cuda(kModules);
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0}, {0, 1}})
    CHECK_EQ(World::run({.hosts = hosts, .plan = kSmall, .silence_ms = 500},
                        [&](Member& member) {
                          if (!expect(open_error(member, cuda).empty(), "open")) return false;
                          const bool good =
                              sums_as_processors(member, cuda, {PACELINE_COMM_F32}, {4099});
                          if (member.rank == 0) cuda.hang(cuda.stream());
                          paceline_comm_destroy(member.comm);
                          member.comm = nullptr;
                          return good && expect(member.rank == 0 || all_given_back(cuda),
                                                "things are left");
                        }),
             0);
}

// Who is to blame lives all the same, and has not let go of what it maps.
CASE(comm_device_memory_that_a_blamed_rank_still_maps_is_not_freed) {
  FakeCuda cuda(kModules);
  CHECK_EQ(
      World::run(
          {.hosts = {0, 0}, .plan = kSmall, .silence_ms = 1500},
          [&](Member& member) {
            if (!expect(open_error(member, cuda).empty(), "open")) return false;
            wait_for_all(member);
            if (member.rank == 1) {
              paceline_comm_abort(member.comm, "the test says so");
              char value = 0;
              uint64_t size = 0;
              return expect(SharedStore::get(member.store, "ended", &value, 1, &size, 50'000) == 0,
                            "the end of rank 0");
            }
            const bool good =
                fails_by(member, paceline_comm_barrier(member.comm), 1, "the test says so");
            paceline_comm_destroy(member.comm);
            member.comm = nullptr;
            SharedStore::set(member.store, "ended", "x", 1);
            // All the time has gone into waiting for rank 1: what else it has may be ended a little
            // later.
            const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
            while (cuda.counts() > kKnownStreams + 1 && std::chrono::steady_clock::now() < until)
              ::usleep(500);
            return expect(cuda.counts() == kKnownStreams + 1, "its pool stays, and nothing else") &&
                   good;
          }),
      0);
}

// A lane whose thread would use what a call has on its stack.
class FailingLane final : public Lane {
 public:
  FailingLane(const Watch& watch, bool& under_way, bool& others_know)
      : watch_(watch), under_way_(under_way), others_know_(others_know) {}

  void start(Stage& /*stage*/, Work /*work*/) override { under_way_ = true; }
  bool ready(uint32_t /*number*/) const override { return true; }
  bool lower(uint32_t /*number*/) override { throw std::bad_alloc(); }
  void open(uint32_t /*chunks*/) override {}
  void landed(uint32_t /*number*/) override {}
  std::optional<uint32_t> awaited() const override { return std::nullopt; }
  void finish() override {
    under_way_ = false;
    others_know_ = watch_.failed();
  }

 private:
  const Watch& watch_;
  bool& under_way_;
  bool& others_know_;
};

CASE(comm_device_no_memory_in_the_middle_of_a_call_ends_the_lane_and_is_told) {
  FakeCuda cuda(kModules);
  World world;
  world.spawn([&] {
    const Topology topology{.order = {0}, .groups = {{0}}};
    Watch watch(0, std::vector<Fd>(1), std::chrono::seconds(1));
    const auto region = Region::alone(0);
    auto pool = Pool::make(0, cuda.folder(), DeviceStage::size_for(topology, 4096));
    if (!expect(pool.has_value(), "the pool")) return false;
    const std::array<PoolCard, 1> cards{(*pool)->card()};
    if (!expect((*pool)->map(cards, 0).has_value(), "its memory")) return false;
    bool under_way = false;
    bool others_know = false;
    DeviceStage stage(topology, *region, watch, std::move(*pool),
                      std::make_unique<FailingLane>(watch, under_way, others_know));
    float data = 1;
    const auto event = stage.record(nullptr);
    if (!expect(event.has_value(), "an event")) return false;
    const Call call{.sequence = 1,
                    .kind = paceline::comm::on_device(paceline::comm::Kind::kAllreduce),
                    .count = 1};
    watch.begin(call, paceline::comm::Clock::now() + std::chrono::seconds(20));
    const bool done = stage.allreduce(
        call, Type::kF32, reinterpret_cast<paceline::cuda::Address>(&data), 1, *event, true);
    return expect(!done && !under_way, "the lane is under way") &&
           expect(others_know, "others know") &&
           expect(watch.failure().rank == 0 &&
                      watch.failure().text == "rank 0 gave up: std::bad_alloc",
                  watch.failure().text);
  });
  CHECK_EQ(world.finish(), 0);
}

}  // namespace comm_device_cases
