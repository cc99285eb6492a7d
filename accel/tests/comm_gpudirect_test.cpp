// SPDX-License-Identifier: Apache-2.0
// Allreduces of memory of GPUs whose lanes go by GPUDirect RDMA, on a fake driver (device/) and
// fake RDMA devices (rdma/) in one process: what comes by RDMA is there after a flush alone. The
// bits are those of processors, and where one rank cannot, all go through the host's memory and say
// why. With PACELINE_TEST_RDMA some that need no faults run over this machine's RDMA device, for
// which the fake driver's memory is that of a process.
#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "check.hpp"
#include "comm_device_world.hpp"
#include "rdma/fake.hpp"

namespace comm_gpudirect_cases {

using paceline::comm_test::Devices;
using paceline::comm_test::first_device;
using paceline::comm_test::join;
using paceline::comm_test::SharedStore;
using namespace paceline::comm_device_test;

const std::string kThrough = "# GPUs' lanes through the host's memory: ";

std::string plan_of(const Member& member) {
  std::array<char, 4096> plan{};
  paceline_comm_plan(member.comm, 0, 0, plan.data(), plan.size());
  return plan.data();
}

bool has(const std::string& text, const std::string& words) {
  return expect(text.find(words) != std::string::npos, "'" + words + "' in " + text);
}

bool goes_directly(const Member& member, const std::string& rails = first_device()) {
  return has(plan_of(member),
             "# rank " + std::to_string(member.rank) + " to its lane by GPUDirect " + rails + " #");
}

struct Fakes {
  FakeCuda cuda{kModules};
  Devices devices;
};

using Body = std::function<bool(Member&)>;

// Ranks on GPUs, that end with nothing left. `before`: in each process, before its communicator is
// there; `opening`: before it has a GPU.
int run_direct(Fakes& fakes, const Shape& shape, const Body& body,
               const std::function<void(uint32_t)>& before = {},
               const std::function<void(uint32_t)>& opening = {}) {
  World world;
  const int dropped = fakes.devices.dropped();
  for (uint32_t rank = 0; rank < shape.hosts.size(); ++rank)
    world.spawn([&, rank] {
      FakeCuda& cuda = fakes.cuda;
      if (before) before(rank);
      Member member = join(world.store(), shape, rank);
      const int registered = fakes.devices.registered();
      if (opening) opening(rank);
      const std::string why = member.code == PACELINE_OK ? open_error(member, cuda) : member.error;
      const bool good = expect(why.empty(), why) && body(member);
      if (!good)
        std::cerr << "rank " << rank << " of " << plan_of(member) << ": " << member.why() << "\n";
      paceline_comm_destroy(member.comm);
      return expect(all_given_back(cuda),
                    std::to_string(cuda.counts()) + " things of the driver are left") &&
             expect(
                 (registered > 0 || !fakes.devices.are_fake()) && fakes.devices.registered() == 0,
                 "memory is registered still") &&
             good;
    });
  // And nothing was ended before it was known to have arrived.
  return world.finish() + fakes.devices.dropped() - dropped;
}

CASE(comm_gpudirect_sums_are_those_of_processors) {
  Fakes fakes;
  if (!fakes.devices) return;
  // Ranks beyond the smallest host's have no lane.
  std::vector<std::pair<std::vector<int>, uint32_t>> shapes{
      {{0, 1, 2}, 3},    {{0, 1, 0, 1, 1}, 4},    {{0, 1}, 2},
      {{0, 0, 1, 1}, 4}, {{0, 0, 1, 2, 2, 1}, 6}, {{0, 1, 2, 3, 4}, 5}};
  // Soft RoCE is in a machine that computes slowly.
  if (!fakes.devices.are_fake()) shapes.resize(2);
  for (const auto& [hosts, with_lane] : shapes)
    CHECK_EQ(run_direct(fakes, {.hosts = hosts, .plan = kSmall},
                        [&, with_lane = with_lane](Member& member) {
                          return (member.rank >= with_lane || goes_directly(member)) &&
                                 expect(plan_of(member).find(kThrough) == std::string::npos,
                                        plan_of(member)) &&
                                 sums_as_processors(member, fakes.cuda, kTypes,
                                                    {0, 1, 2, 7, 4099, 9001});
                        }),
             0);
}

CASE(comm_gpudirect_nothing_of_the_hosts_memory_is_between) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto body = [&](Member& member) {
    if (!goes_directly(member)) return false;
    fakes.cuda.forget();
    const int before = fakes.devices.sent(0);
    void* const stream = fakes.cuda.stream();
    Sum sum(PACELINE_COMM_F32, 9001, member.rank);
    const bool good = sum.start(member, fakes.cuda, stream, PACELINE_COMM_F32) == PACELINE_OK &&
                      sum.wait(member, fakes.cuda, stream) == PACELINE_OK;
    fakes.cuda.finish(stream);
    fakes.cuda.destroy(stream);
    // Nine chunks: a part to the other host and a sum; what is called goes around the lane's ring,
    // there and with a credit back.
    const int sent = fakes.devices.sent(0) - before;
    return good && expect(sent == 9 * 2 + 2, std::to_string(sent) + " messages") &&
           expect(
               fakes.cuda.log().find("cuFlushGPUDirectRDMAWrites 0 100 contexts 1") !=
                       std::string::npos &&
                   fakes.cuda.log().find("cuFlushGPUDirectRDMAWrites 0 200") == std::string::npos,
               "flushes for this rank alone");
  };
  CHECK_EQ(run_direct(fakes, {.hosts = {0, 1}, .plan = kSmall}, body), 0);
}

CASE(comm_gpudirect_results_are_flushed_for_all_ranks_of_a_host) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto body = [&](Member& member) {
    return goes_directly(member) &&
           sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32}, {9001}) &&
           has(fakes.cuda.log(), "cuFlushGPUDirectRDMAWrites 0 200 contexts 1");
  };
  CHECK_EQ(run_direct(fakes, {.hosts = {0, 0, 1, 1}, .plan = kSmall}, body), 0);
  // A GPU that orders such writes is not asked.
  const auto unasked = [&](Member& member) {
    return goes_directly(member) &&
           sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32}, {9001}) &&
           expect(fakes.cuda.log().find("cuFlushGPUDirectRDMAWrites") == std::string::npos,
                  "a flush");
  };
  const auto ordered = [&](uint32_t /*rank*/) {
    fakes.cuda.set("flush options", 0);
    fakes.cuda.set("write ordering", 200);
  };
  CHECK_EQ(run_direct(fakes, {.hosts = {0, 0, 1, 1}, .plan = kSmall}, unasked, ordered), 0);
}

CASE(comm_gpudirect_flushes_while_another_thread_captures_a_graph) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto body = [&](Member& member) {
    return goes_directly(member) &&
           sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32}, {4099}) &&
           has(fakes.cuda.log(), "cuFlushGPUDirectRDMAWrites") &&
           // The trial was made in this thread.
           expect(fakes.cuda.capture_mode() == 0, "the program's own mode");
  };
  const auto captured = [&](uint32_t /*rank*/) { fakes.cuda.set("captured elsewhere", 1); };
  CHECK_EQ(run_direct(fakes, {.hosts = {0, 1}, .plan = kSmall}, body, {}, captured), 0);
}

CASE(comm_gpudirect_memory_is_registered_by_dma_buf_or_by_address) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto body = [&](Member& member) {
    return goes_directly(member) &&
           sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32}, {4099});
  };
  const auto with = [&](const std::function<void(uint32_t)>& opening) {
    return run_direct(fakes, {.hosts = {0, 1}, .plan = kSmall}, body, {}, opening);
  };
  CHECK_EQ(with([&](uint32_t) { fakes.devices.set("peer memory", EFAULT); }), 0);
  CHECK_EQ(with([&](uint32_t) { fakes.devices.set("reg_dmabuf_mr", EOPNOTSUPP); }), 0);
  CHECK_EQ(with([&](uint32_t) { fakes.cuda.set("cuMemGetHandleForAddressRange", 801); }), 0);
  CHECK_EQ(with([&](uint32_t rank) { fakes.cuda.set("dma-buf supported", rank == 0 ? 0 : 1); }), 0);
}

// A device of libmlx5 leaves what is small to the processor by default, which cannot write to a
// GPU's memory.
CASE(comm_gpudirect_small_messages_are_left_to_the_device) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto mlx5 = [&](uint32_t /*rank*/) { fakes.devices.set("mlx5", 1); };
  const auto body = [&](Member& member) {
    return goes_directly(member) && sums_as_processors(member, fakes.cuda, kTypes,
                                                       {1, 2, 7, 8, 9, 16, 17, 32, 33, 1025, 9001});
  };
  for (const std::vector<int>& hosts :
       {std::vector{0, 1}, std::vector{0, 0, 1, 1}, std::vector{0, 1, 2}})
    CHECK_EQ(run_direct(fakes, {.hosts = hosts, .plan = kSmall}, body, mlx5), 0);
  // One that cannot be told not to.
  const auto replaced = [&](Member& member) {
    return has(plan_of(member),
               kThrough + "rank 1: fake0: mlx5dv_create_qp: Operation not supported") &&
           sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32}, {1, 9001});
  };
  const auto old = [&](uint32_t rank) {
    if (rank == 1) fakes.devices.set("mlx5dv_create_qp", EOPNOTSUPP);
  };
  CHECK_EQ(run_direct(fakes, {.hosts = {0, 1}, .plan = kSmall}, replaced, mlx5, old), 0);
}

CASE(comm_gpudirect_that_one_rank_cannot_is_replaced_on_all_and_said) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto refused = [&](const std::string& why, const std::function<void(uint32_t)>& before,
                           const std::function<void(uint32_t)>& opening) {
    const auto body = [&](Member& member) {
      return has(plan_of(member), kThrough + why) &&
             expect(plan_of(member).find("by GPUDirect") == std::string::npos, plan_of(member)) &&
             sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32, PACELINE_COMM_BF16},
                                {7, 9001});
    };
    return run_direct(fakes, {.hosts = {0, 0, 1, 1}, .plan = kSmall}, body, before, opening);
  };
  const auto of_rank = [](uint32_t which, const std::function<void()>& wrong) {
    return [which, wrong](uint32_t rank) {
      if (rank == which) wrong();
    };
  };
  CHECK_EQ(refused("rank 2: NCCL_NET_GDR_LEVEL=LOC",
                   of_rank(2, [] { ::setenv("NCCL_NET_GDR_LEVEL", "LOC", 1); }), {}),
           0);
  CHECK_EQ(refused("rank 1: fake0: cannot register 2097152 bytes of the GPU: by dma-buf: "
                   "ibv_reg_dmabuf_mr: Operation not "
                   "supported; by peer memory (nvidia_peermem): ibv_reg_mr: Bad address",
                   {},
                   of_rank(1,
                           [&] {
                             fakes.devices.set("reg_dmabuf_mr", EOPNOTSUPP);
                             fakes.devices.set("peer memory", EFAULT);
                           })),
           0);
  CHECK_EQ(
      refused("rank 3: fake0: cannot register 2097152 bytes of the GPU: by dma-buf: "
              "cuMemGetHandleForAddressRange: "
              "CUDA_ERROR_INVALID_VALUE; by peer memory (nvidia_peermem): ibv_reg_mr: Bad address",
              {},
              of_rank(3,
                      [&] {
                        fakes.cuda.set("cuMemGetHandleForAddressRange", 1);
                        fakes.devices.set("peer memory", EFAULT);
                      })),
      0);
  CHECK_EQ(refused("rank 1: fake0: cannot register 2097152 bytes of the GPU: by dma-buf: "
                   "ibv_reg_dmabuf_mr: Operation "
                   "not supported; by peer memory (nvidia_peermem): ibv_reg_mr: Cannot allocate "
                   "memory: this process "
                   "may lock 64 KiB; raise ulimit -l",
                   {},
                   of_rank(1,
                           [&] {
                             constexpr rlimit kLittle{.rlim_cur = 64UL * 1024,
                                                      .rlim_max = 64UL * 1024};
                             ::setrlimit(RLIMIT_MEMLOCK, &kLittle);
                             fakes.devices.set("reg_dmabuf_mr", EOPNOTSUPP);
                             fakes.devices.set("peer memory", ENOMEM);
                           })),
           0);
  CHECK_EQ(refused("rank 0: its GPU neither orders what an RDMA device writes nor can be asked to",
                   {}, of_rank(0, [&] { fakes.cuda.set("flush options", 0); })),
           0);
  CHECK_EQ(
      refused("rank 0: its GPU neither orders what an RDMA device writes nor can be asked to", {},
              of_rank(0,
                      [&] {
                        // For itself alone, where another rank reads it too.
                        fakes.cuda.set("write ordering", 100);
                        fakes.cuda.set("flush options", 0);
                      })),
      0);
  CHECK_EQ(refused("rank 2: its GPU lets no RDMA device at its memory", {},
                   of_rank(2, [&] { fakes.cuda.set("rdma supported", 0); })),
           0);
  CHECK_EQ(refused("rank 1: fake0: ibv_create_qp: Invalid argument", {},
                   of_rank(1, [&] { fakes.devices.set("create_qp", EINVAL); })),
           0);
  CHECK_EQ(
      refused(
          "rank 2: fake0: no way to the peer's port: ibv_modify_qp to RTR: Network is unreachable",
          {}, of_rank(2, [&] { fakes.devices.set("rtr", ENETUNREACH); })),
      0);
  // A mapping of the wrong memory is known by what lies there alone.
  CHECK_EQ(refused("rank 0: what came through memory of its GPU by fake0 is not what was sent", {},
                   of_rank(0, [&] { fakes.devices.set("garble", 1); })),
           0);
}

CASE(comm_gpudirect_without_rdma_or_where_the_plan_says_so_is_not_tried) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto through_host = [&](const std::string& note) {
    return [&fakes, note](Member& member) {
      const bool said =
          note.empty()
              ? expect(plan_of(member).find("GPUs' lanes") == std::string::npos, plan_of(member))
              : has(plan_of(member), note);
      return said && sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32}, {4099});
    };
  };
  CHECK_EQ(run_direct(fakes, {.hosts = {0, 1}, .plan = kSmall + " gpudirect=off"},
                      through_host(" gpudirect=off ")),
           0);
  World world;
  for (uint32_t rank = 0; rank < 2; ++rank)
    world.spawn([&, rank] {
      if (rank == 1) fakes.devices.set("devices", 0);
      Member member = join(world.store(), {.hosts = {0, 1}, .plan = kSmall}, rank);
      const bool good = expect(open_error(member, fakes.cuda).empty(), "open") &&
                        through_host(kThrough + "rank 1: no RDMA device")(member);
      paceline_comm_destroy(member.comm);
      return good;
    });
  CHECK_EQ(world.finish(), 0);
}

CASE(comm_gpudirect_through_which_nothing_comes_is_replaced) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto body = [&](Member& member) {
    return has(plan_of(member),
               kThrough + "rank 0: rank 1: nothing came through memory of the GPU") &&
           sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32}, {4099});
  };
  const auto lose = [&](uint32_t rank) {
    if (rank == 1) fakes.devices.set("lose gpu", 1);
  };
  CHECK_EQ(run_direct(fakes, {.hosts = {0, 1}, .plan = kSmall}, body, {}, lose), 0);
}

CASE(comm_gpudirect_a_trial_that_a_gpu_comes_to_late_harms_nothing) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto body = [&](Member& member) {
    if (member.rank == 1) fakes.cuda.set("late kernels", 1);
    if (!expect(open_error(member, fakes.cuda).empty(), "open") ||
        !has(plan_of(member), kThrough + "rank 0: rank 1: nothing came through memory of the GPU"))
      return false;
    void* const stream = fakes.cuda.stream();
    Sum sum(PACELINE_COMM_F32, 4099, member.rank);
    std::vector<std::byte> wanted = sum.given;
    bool good =
        paceline_comm_allreduce(member.comm, wanted.data(), 4099, PACELINE_COMM_F32) == PACELINE_OK;
    fakes.cuda.forget();
    good = sum.start(member, fakes.cuda, stream, PACELINE_COMM_F32) == PACELINE_OK && good;
    // Those kernels read the inbox, and write where the call's results come: it may not overtake
    // them.
    ::usleep(50'000);
    good = expect(member.rank == 0 || fakes.cuda.log().find("landed") == std::string::npos,
                  "nothing is early") &&
           good;
    fakes.cuda.set("late kernels", 0);
    good = expect(sum.wait(member, fakes.cuda, stream) == PACELINE_OK, member.why()) && good;
    fakes.cuda.finish(stream);
    fakes.cuda.destroy(stream);
    good = ended(member, expect(sum.seen == wanted, "the sum") && good);
    return expect(all_given_back(fakes.cuda),
                  std::to_string(fakes.cuda.counts()) + " things of the driver are left") &&
           good;
  };
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = kSmall}, body), 0);
}

CASE(comm_gpudirect_chunks_take_turns_on_the_rails_that_both_have) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto body = [&](Member& member) {
    if (!goes_directly(member, "fake0+fake1")) return false;
    const int first = fakes.devices.sent(0);
    const int second = fakes.devices.sent(1);
    if (!sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32}, {20'011})) return false;
    const int more = fakes.devices.sent(0) - first;
    const int others = fakes.devices.sent(1) - second;
    return expect(fakes.devices.sent(2) == 0 && more > 20 && std::abs(more - others) <= 8,
                  std::to_string(more) + " and " + std::to_string(others) + " messages");
  };
  CHECK_EQ(run_direct(fakes, {.hosts = {0, 1}, .plan = kSmall}, body,
                      [&](uint32_t rank) { fakes.devices.set("devices", rank == 0 ? 3 : 2); }),
           0);
}

CASE(comm_gpudirect_a_killed_rank_is_named_and_survivors_let_go) {
  Fakes fakes;
  if (!fakes.devices) return;
  World world;
  world.start({.hosts = {0, 1, 2}, .plan = kSmall}, [&](Member& member) {
    paceline_comm_device used{
        .size = sizeof used, .reserved = 0, .pool_bytes = 0, .stream = nullptr};
    if (!expect(open_error(member, fakes.cuda, 0, &used).empty(), "open") || !goes_directly(member))
      return false;
    void* const stream = fakes.cuda.stream();
    if (!sums_as_processors(member, fakes.cuda, {PACELINE_COMM_F32}, {4099})) return false;
    // Until then the others still need what is to be killed.
    wait_for_all(member);
    fakes.cuda.forget();
    Sum sum(PACELINE_COMM_F32, 100'003, member.rank);
    const int started = sum.start(member, fakes.cuda, stream, PACELINE_COMM_F32);
    if (member.rank == 1) {
      fakes.cuda.hang(used.stream);
      begun(fakes.cuda);
      ::raise(SIGKILL);
    }
    const int code = sum.wait(member, fakes.cuda, stream);
    const bool good =
        expect(started == PACELINE_OK, "start") && fails_by(member, code, 1, "rank 1");
    paceline_comm_destroy(member.comm);
    member.comm = nullptr;
    fakes.cuda.destroy(stream);
    return expect(all_given_back(fakes.cuda),
                  std::to_string(fakes.cuda.counts()) + " things of the driver are left") &&
           expect(fakes.devices.registered() == 0, "memory is registered still") && good;
  });
  CHECK_EQ(world.finish(), 1);  // the killed one
}

CASE(comm_gpudirect_who_left_owes_no_acknowledgment) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto body = [&](Member& member) {
    if (!expect(open_error(member, fakes.cuda).empty(), "open") || !goes_directly(member))
      return false;
    void* const stream = fakes.cuda.stream();
    Sum sum(PACELINE_COMM_F32, 700, member.rank);
    std::vector<std::byte> wanted = sum.given;
    if (paceline_comm_allreduce(member.comm, wanted.data(), 700, PACELINE_COMM_F32) != PACELINE_OK)
      return false;
    // Rank 1 gets all that it waits for, and goes.
    if (member.rank == 0) fakes.devices.set("untold gpu", 1);
    const bool good = sum.start(member, fakes.cuda, stream, PACELINE_COMM_F32) == PACELINE_OK &&
                      sum.wait(member, fakes.cuda, stream) == PACELINE_OK;
    fakes.cuda.finish(stream);
    fakes.cuda.destroy(stream);
    return ended(member, expect(good, member.why())) && expect(sum.seen == wanted, "the sum");
  };
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = kSmall, .timeout_ms = 5000}, body), 0);
}

// This process's eventfds.
std::set<int> event_files() {
  std::set<int> all;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(file, gone) == "anon_inode:[eventfd]")
      all.insert(std::stoi(file.path().filename().string()));
  }
  return all;
}

// How many of them a forked child lets go with the communicator.
int closed_by_a_child(const Member& member) {
  const pid_t child = ::fork();
  if (child == 0) {
    const std::size_t before = event_files().size();
    paceline_comm_forked(member.comm);
    ::_exit(static_cast<int>(before - event_files().size()));
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

CASE(comm_gpudirect_a_forked_child_closes_what_the_lane_waits_for) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto body = [&](Member& member) {
    const std::set<int> before = event_files();
    const int without = closed_by_a_child(member);
    if (!expect(open_error(member, fakes.cuda).empty(), "open") || !goes_directly(member))
      return false;
    // Its own and its rail's.
    const int more = closed_by_a_child(member) - without;
    bool good = expect(without > 0 && more == 2,
                       std::to_string(without) + " and " + std::to_string(more) + " more");
    for (const int file : event_files())
      good = expect(before.contains(file) || (::fcntl(file, F_GETFD) & FD_CLOEXEC) != 0,
                    "closed by exec") &&
             good;
    return good;
  };
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = kSmall}, body), 0);
}

// What one rank does wrong in the middle of an allreduce, and what all say of it.
int run_into(Fakes& fakes, const std::vector<int>& hosts,
             const std::function<void(const Member&)>& wrong, int32_t culprit,
             const std::string& words, const std::function<bool(const Member&)>& after = {}) {
  return World::run({.hosts = hosts, .plan = kSmall, .silence_ms = 3000}, [&](Member& member) {
    FakeCuda& cuda = fakes.cuda;
    if (!expect(open_error(member, cuda).empty(), "open") || !goes_directly(member)) return false;
    wait_for_all(member);
    wrong(member);
    void* const stream = cuda.stream();
    Sum sum(PACELINE_COMM_F32, 30'011, member.rank);
    const int started = sum.start(member, cuda, stream, PACELINE_COMM_F32);
    const int code = sum.wait(member, cuda, stream);
    const bool good = expect(started == PACELINE_OK, "start") &&
                      fails_by(member, code, culprit, words) && (!after || after(member));
    paceline_comm_destroy(member.comm);
    member.comm = nullptr;
    cuda.destroy(stream);
    return expect(all_given_back(cuda),
                  std::to_string(cuda.counts()) + " things of the driver are left") &&
           good;
  });
}

CASE(comm_gpudirect_what_fails_in_an_allreduce_is_named) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  CHECK_EQ(run_into(
               fakes, {0, 1, 2},
               [&](const Member& member) {
                 if (member.rank == 2) fakes.cuda.set("cuFlushGPUDirectRDMAWrites", 719);
               },
               2, "rank 2 gave up: cuFlushGPUDirectRDMAWrites: CUDA_ERROR_LAUNCH_FAILED"),
           0);
  CHECK_EQ(run_into(
               fakes, {0, 1},
               [&](const Member& member) {
                 if (member.rank == 0) fakes.devices.set("break", fakes.devices.sent(0) + 10);
               },
               1, "GPUDirect RDMA by fake0: transport retry counter exceeded"),
           0);
}

CASE(comm_gpudirect_nothing_is_sent_that_has_no_answer) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  int before = 0;
  const auto wrong = [&](const Member& member) {
    if (member.rank != 0) return;
    fakes.devices.set("post_recv gpu", ENOMEM);
    before = fakes.devices.sent(0);
  };
  const auto after = [&](const Member& member) {
    // What is called, and a credit for the slot of the other's.
    const int sent = fakes.devices.sent(0) - before;
    return expect(member.rank != 0 || sent <= 2, std::to_string(sent) + " messages");
  };
  CHECK_EQ(
      run_into(fakes, {0, 1}, wrong, 0,
               "rank 0 gave up: GPUDirect RDMA by fake0: ibv_post_recv: Cannot allocate memory",
               after),
      0);
}

CASE(comm_gpudirect_what_a_rank_cannot_itself_is_blamed_on_no_peer) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto named = [&](const char* step, int value, const std::string& words) {
    const auto wrong = [&](const Member& member) {
      if (member.rank == 1) fakes.devices.set(step, value);
    };
    return run_into(fakes, {0, 1, 2}, wrong, 1,
                    "rank 1 gave up: GPUDirect RDMA by fake0: " + words);
  };
  CHECK_EQ(named("poll_cq gpu", 1, "ibv_poll_cq failed"), 0);
  CHECK_EQ(named("req_notify_cq gpu", EIO, "ibv_req_notify_cq: Input/output error"), 0);
  CHECK_EQ(named("protect gpu", 1, "local protection error"), 0);
}

CASE(comm_gpudirect_a_rank_whose_stream_hangs_is_named_by_all) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto call = [&](Member& member, void* stream) {
    // What the call was given is in use until the end of the communicator, which is that of the
    // process.
    auto& sum = *new Sum(PACELINE_COMM_F32, 100'003, member.rank);
    const int started = sum.start(member, fakes.cuda, stream, PACELINE_COMM_F32);
    return started == PACELINE_OK ? sum.wait(member, fakes.cuda, stream) : started;
  };
  const auto ready = [](const Member& member) { return goes_directly(member); };
  for (const auto& [hosts, culprit] :
       std::vector<std::pair<std::vector<int>, uint32_t>>{{{0, 1, 2, 3}, 3}, {{0, 0, 1, 1}, 1}})
    CHECK_EQ(ranks_that_name_another(fakes.cuda, {.shape = {.hosts = hosts, .plan = kSmall},
                                                  .culprit = culprit,
                                                  .ready = ready,
                                                  .call = call}),
             0);
}

CASE(comm_gpudirect_calls_that_differ_are_named_before_anything_is_sent) {
  Fakes fakes;
  if (!fakes.devices.are_fake()) return;
  const auto calls_of = [&](const std::string& name) {
    const std::string log = fakes.cuda.log();
    int count = 0;
    for (std::size_t at = log.find(name); at != std::string::npos; at = log.find(name, at + 1))
      ++count;
    return count;
  };
  const auto body = [&](Member& member) {
    if (!expect(open_error(member, fakes.cuda).empty(), "open") || !goes_directly(member))
      return false;
    const int before = fakes.devices.sent(0);
    fakes.cuda.forget();
    void* const stream = fakes.cuda.stream();
    Sum sum(PACELINE_COMM_F32, member.rank == 1 ? 2003 : 9001, member.rank);
    // Rank 1 comes when rank 0 has shards that could be sent: it has given and added up as many
    // chunks as there are slots.
    char value = 0;
    uint64_t size = 0;
    if (member.rank == 1) SharedStore::get(member.store, "added", &value, 1, &size, 20'000);
    sum.start(member, fakes.cuda, stream, PACELINE_COMM_F32);
    if (member.rank == 0) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (calls_of("landed") < 8 && std::chrono::steady_clock::now() < until) ::usleep(500);
      SharedStore::set(member.store, "added", "x", 1);
    }
    const int code = sum.wait(member, fakes.cuda, stream);
    fakes.cuda.finish(stream);
    // What is called, and a credit for the slot of the other's.
    const int sent = fakes.devices.sent(0) - before;
    const bool good = expect(code == PACELINE_COMM_EPEER, "a difference") &&
                      has(member.why(), "allreduce on a GPU #") &&
                      has(member.why(), " of 2003 fp32") &&
                      has(member.why(), "all ranks must call the same") &&
                      expect(sent <= 2, std::to_string(sent) + " messages");
    // Before the buffer that the failed call may still use.
    paceline_comm_destroy(member.comm);
    member.comm = nullptr;
    return good;
  };
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = kSmall, .silence_ms = 20'000}, body), 0);
}

}  // namespace comm_gpudirect_cases
