// SPDX-License-Identifier: Apache-2.0
// The collectives of memory of GPUs that are no allreduces, as comm_device_test.cpp runs those:
// late streams, processes that open each other's memory. Against the same collectives of
// processors.
#include <numeric>

#include "check.hpp"
#include "comm_device_world.hpp"

namespace comm_device_moves_cases {

using paceline::comm::size_of;
using paceline::comm::Type;
using paceline::comm_device_test::all_given_back;
using paceline::comm_device_test::ended;
using paceline::comm_device_test::expect;
using paceline::comm_device_test::fails_by;
using paceline::comm_device_test::kModules;
using paceline::comm_device_test::kSmall;
using paceline::comm_device_test::kTypes;
using paceline::comm_device_test::numbers;
using paceline::comm_device_test::open_error;
using paceline::comm_device_test::ranks_that_name_another;
using paceline::comm_device_test::run_on_devices;
using paceline::comm_test::Member;
using paceline::comm_test::wait_for_all;
using paceline::comm_test::World;
using paceline::device_test::FakeCuda;

enum class Kind {
  kBroadcast,
  kAllgather,
  kReduceScatter,
  kAlltoall,
  kAlltoallv,
  kReduce,
  kAllreduce
};
constexpr std::array kKinds{Kind::kBroadcast, Kind::kAllgather, Kind::kReduceScatter,
                            Kind::kAlltoall,  Kind::kAlltoallv, Kind::kReduce};

bool in_place(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kReduce || kind == Kind::kAllreduce;
}
uint64_t pieces_in(Kind kind, uint32_t ranks) {
  return kind == Kind::kReduceScatter || kind == Kind::kAlltoall ? ranks : 1;
}
uint64_t pieces_out(Kind kind, uint32_t ranks) {
  return kind == Kind::kAllgather || kind == Kind::kAlltoall ? ranks : 1;
}

struct What {
  Kind kind;
  uint32_t type;
  uint64_t count;
  uint32_t root = 0;
  uint64_t shift = 0;   // elements that the output begins behind a good address
  bool inside = false;  // an allgather whose input is a piece of its output
};

// Of pieces that differ, some of nothing: how much rank `from` has for rank `to`.
uint64_t share(const What& what, uint32_t from, uint32_t to) {
  return (5 * from + 3 * to + 1) % 4 * what.count / 2;
}

std::vector<uint64_t> shares(const Member& member, const What& what, bool given) {
  std::vector<uint64_t> counts;
  for (uint32_t one = 0; one < member.ranks; ++one)
    counts.push_back(given ? share(what, member.rank, one) : share(what, one, member.rank));
  return counts;
}

// Elements of an array of a rank.
uint64_t size_in(const Member& member, const What& what) {
  const std::vector<uint64_t> counts = shares(member, what, true);
  return what.kind == Kind::kAlltoallv ? std::accumulate(counts.begin(), counts.end(), uint64_t{0})
                                       : what.count * pieces_in(what.kind, member.ranks);
}
uint64_t size_out(const Member& member, const What& what) {
  const std::vector<uint64_t> counts = shares(member, what, false);
  return what.kind == Kind::kAlltoallv ? std::accumulate(counts.begin(), counts.end(), uint64_t{0})
                                       : what.count * pieces_out(what.kind, member.ranks);
}

int by_processors(Member& member, const What& what, const void* in, void* out) {
  switch (what.kind) {
    case Kind::kBroadcast:
      return paceline_comm_broadcast(member.comm, out, what.count, what.type, what.root);
    case Kind::kAllgather:
      return paceline_comm_allgather(member.comm, in, out, what.count, what.type);
    case Kind::kReduceScatter:
      return paceline_comm_reduce_scatter(member.comm, in, out, what.count, what.type);
    case Kind::kAlltoall:
      return paceline_comm_alltoall(member.comm, in, out, what.count, what.type);
    case Kind::kAlltoallv:
      return paceline_comm_alltoallv(member.comm, in, shares(member, what, true).data(), out,
                                     shares(member, what, false).data(), what.type);
    default: return paceline_comm_allreduce(member.comm, out, what.count, what.type);
  }
}

int by_devices(Member& member, const What& what, const void* in, void* out, void* stream,
               uint64_t* ticket) {
  paceline_comm* const comm = member.comm;
  const auto [kind, type, count, root, shift, inside] = what;
  switch (kind) {
    case Kind::kBroadcast:
      return paceline_comm_device_broadcast_start(comm, out, count, type, root, stream, ticket);
    case Kind::kAllgather:
      return paceline_comm_device_allgather_start(comm, in, out, count, type, stream, ticket);
    case Kind::kReduceScatter:
      return paceline_comm_device_reduce_scatter_start(comm, in, out, count, type, stream, ticket);
    case Kind::kAlltoall:
      return paceline_comm_device_alltoall_start(comm, in, out, count, type, stream, ticket);
    case Kind::kAlltoallv:
      return paceline_comm_device_alltoallv_start(comm, in, shares(member, what, true).data(), out,
                                                  shares(member, what, false).data(), type, stream,
                                                  ticket);
    case Kind::kReduce:
      return paceline_comm_device_reduce_start(comm, out, count, type, root, stream, ticket);
    default: return paceline_comm_device_allreduce_start(comm, out, count, type, stream, ticket);
  }
}

std::vector<float> widened(const std::vector<std::byte>& halves, uint32_t type) {
  std::vector<float> wide(halves.size() / sizeof(uint16_t));
  const auto* const from = reinterpret_cast<const uint16_t*>(halves.data());
  const auto& kernels = paceline::optim::best_kernels();
  (type == PACELINE_COMM_F16 ? kernels.from_f16 : kernels.from_bf16)(from, wide.data(),
                                                                     wide.size());
  return wide;
}

// Its input comes late in a stream, where its output is in use until then; and it is read in that
// stream.
struct Moved {
  What what;
  std::vector<std::byte> given;
  std::vector<std::byte> before;  // of the output
  std::vector<std::byte> input;
  std::vector<std::byte> output;
  std::vector<std::byte> seen;
  uint64_t ticket = 0;

  Moved(const Member& member, const What& one)
      : what(one),
        given(numbers(one.type, size_in(member, one), member.rank)),
        before(numbers(one.type, size_out(member, one), member.rank + 100)),
        input(given.size()),
        output(before.size() + one.shift * size_of(Type{one.type})),
        seen(before.size()) {
    if (in_place(what.kind)) before = given;
    if (what.inside) std::copy(given.begin(), given.end(), before.begin() + own_piece(member));
  }

  std::ptrdiff_t own_piece(const Member& member) const {
    return static_cast<std::ptrdiff_t>(member.rank * what.count * size_of(Type{what.type}));
  }
  std::byte* out() { return output.data() + what.shift * size_of(Type{what.type}); }

  int start(Member& member, FakeCuda& cuda, void* stream) {
    cuda.write(stream, out(), before);
    if (!in_place(what.kind) && !what.inside) cuda.write(stream, input.data(), given);
    const std::byte* const in = what.inside ? out() + own_piece(member) : input.data();
    return by_devices(member, what, in, out(), stream, &ticket);
  }
  int wait(Member& member, FakeCuda& cuda, void* stream) {
    const int code = paceline_comm_device_wait(member.comm, ticket, stream);
    if (code == PACELINE_OK) cuda.copy(stream, seen.data(), out(), seen.size());
    return code;
  }
  std::vector<std::byte> wanted(Member& member, bool one_host) const {
    std::vector<std::byte> result = before;
    // A host adds up halves in fp32 and rounds once, where processors pass them around and round
    // each time.
    if (one_host && what.kind == Kind::kReduceScatter &&
        (what.type == PACELINE_COMM_F16 || what.type == PACELINE_COMM_BF16)) {
      const std::vector<float> wide = widened(given, what.type);
      std::vector<float> sum(what.count);
      paceline_comm_reduce_scatter(member.comm, wide.data(), sum.data(), what.count,
                                   PACELINE_COMM_F32);
      const auto& kernels = paceline::optim::best_kernels();
      (what.type == PACELINE_COMM_F16 ? kernels.to_f16 : kernels.to_bf16)(
          sum.data(), reinterpret_cast<uint16_t*>(result.data()), sum.size());
      return result;
    }
    if (by_processors(member, what, given.data(), result.data()) != PACELINE_OK) return {};
    return what.kind == Kind::kReduce && member.rank != what.root ? before : result;
  }
};

// All started at once, then all of them read: slots go from one to the next.
bool moves_as_processors(Member& member, FakeCuda& cuda, const std::vector<What>& all,
                         bool one_host) {
  void* const stream = cuda.stream();
  std::vector<Moved> moved;
  for (const What& what : all) moved.emplace_back(member, what);
  bool good = true;
  for (Moved& one : moved) good = good && one.start(member, cuda, stream) == PACELINE_OK;
  for (Moved& one : moved) good = good && one.wait(member, cuda, stream) == PACELINE_OK;
  cuda.finish(stream);
  cuda.destroy(stream);
  if (!expect(good, "start and wait")) return false;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const What& what = all[i];
    good =
        expect(moved[i].seen == moved[i].wanted(member, one_host),
               "number " + std::to_string(i) + ", kind " +
                   std::to_string(static_cast<int>(what.kind)) + ": " + std::to_string(what.count) +
                   " " + name_of(Type{what.type}) + " of rank " + std::to_string(member.rank)) &&
        good;
  }
  return good && expect(!cuda.uneven(), "barriers");
}

// Of all kinds, roots and types.
std::vector<What> every(uint32_t ranks, const std::vector<uint64_t>& counts) {
  std::vector<What> all;
  for (const uint32_t type : kTypes)
    for (const uint64_t count : counts)
      for (const Kind kind : kKinds)
        all.push_back({.kind = kind,
                       .type = type,
                       .count = count,
                       .root = static_cast<uint32_t>(all.size() / 3) % ranks});
  return all;
}

// Everything after everything else, with several chunks each.
std::vector<What> mixed() {
  std::vector<What> all;
  for (const Kind first : kKinds)
    for (const uint64_t count : {9001, 3, 2500}) {
      all.push_back({.kind = first, .type = PACELINE_COMM_F32, .count = count});
      all.push_back({.kind = Kind::kAllreduce, .type = PACELINE_COMM_F32, .count = count + 2100});
    }
  return all;
}

// In and out of place, from and to any address.
std::vector<What> placed() {
  return {{.kind = Kind::kReduceScatter, .type = PACELINE_COMM_F32, .count = 4099, .shift = 1},
          {.kind = Kind::kReduceScatter, .type = PACELINE_COMM_F16, .count = 4099, .shift = 3},
          {.kind = Kind::kAlltoall, .type = PACELINE_COMM_BF16, .count = 777, .shift = 1},
          {.kind = Kind::kAllgather, .type = PACELINE_COMM_F32, .count = 4099, .inside = true},
          {.kind = Kind::kAllgather,
           .type = PACELINE_COMM_BF16,
           .count = 33,
           .shift = 5,
           .inside = true}};
}

CASE(comm_device_moves_within_a_host_are_those_of_processors) {
  FakeCuda cuda(kModules);
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0, 0}})
    CHECK_EQ(run_on_devices({.hosts = hosts, .plan = kSmall}, cuda,
                            [&](Member& member) {
                              return moves_as_processors(member, cuda,
                                                         every(member.ranks, {0, 1, 7, 2999}),
                                                         true) &&
                                     moves_as_processors(member, cuda, mixed(), true) &&
                                     moves_as_processors(member, cuda, placed(), true);
                            }),
             0);
}

CASE(comm_device_moves_across_hosts_are_those_of_processors) {
  FakeCuda cuda(kModules);
  for (const std::vector<int>& hosts :
       std::vector<std::vector<int>>{{0, 1}, {0, 0, 1, 1}, {0, 1, 1, 0, 1}})
    CHECK_EQ(run_on_devices({.hosts = hosts, .plan = kSmall}, cuda,
                            [&](Member& member) {
                              return moves_as_processors(member, cuda,
                                                         every(member.ranks, {1, 4099}), false) &&
                                     moves_as_processors(member, cuda, mixed(), false) &&
                                     moves_as_processors(member, cuda, placed(), false);
                            }),
             0);
}

CASE(comm_device_moves_go_by_rank_in_whatever_order) {
  FakeCuda cuda(kModules);
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 0}, {0, 0, 1}})
    CHECK_EQ(run_on_devices(
                 {.hosts = hosts, .plan = kSmall + " order=" + (hosts[2] == 0 ? "2,0,1" : "2,1,0")},
                 cuda,
                 [&](Member& member) {
                   return moves_as_processors(member, cuda, every(member.ranks, {2999}),
                                              hosts[2] == 0);
                 }),
             0);
}

CASE(comm_device_moves_that_make_no_sense_are_refused) {
  FakeCuda cuda(kModules);
  CHECK_EQ(
      World::run(
          {.hosts = {0, 0}, .plan = kSmall},
          [&](Member& member) {
            std::array<float, 2> data{1, 2};
            float one = 3;
            uint64_t ticket = 0;
            const auto start = [&](Kind kind, uint32_t root, const void* in) {
              const What what{.kind = kind, .type = PACELINE_COMM_F32, .count = 1, .root = root};
              return by_devices(member, what, in, data.data(), nullptr, &ticket);
            };
            bool good = true;
            for (const Kind kind : kKinds)
              good = expect(start(kind, 0, &one) == PACELINE_EINVAL, "before open") && good;
            good = expect(open_error(member, cuda).empty(), "open") && good;
            for (const Kind kind : {Kind::kBroadcast, Kind::kReduce})
              good = expect(start(kind, 2, &one) == PACELINE_EINVAL, "no rank") && good;
            for (const Kind kind : {Kind::kAllgather, Kind::kReduceScatter, Kind::kAlltoall})
              good = expect(start(kind, 0, nullptr) == PACELINE_EINVAL, "nothing to give") && good;
            cuda.set("capturing", 1);
            for (const Kind kind : kKinds)
              good = expect(start(kind, 0, &one) == PACELINE_EINVAL, "captured") && good;
            cuda.set("capturing", 0);
            return expect(start(Kind::kAllgather, 0, &one) == PACELINE_OK, "start") &&
                   expect(paceline_comm_device_wait(member.comm, ticket, nullptr) == PACELINE_OK,
                          "wait") &&
                   expect(data == std::array<float, 2>{3, 3}, "the pieces") && good;
          }),
      0);
}

CASE(comm_device_moves_that_differ_are_named) {
  FakeCuda cuda(kModules);
  const auto differ = [&](const std::vector<int>& hosts, const What& first, const What& other,
                          const std::string& words) {
    CHECK_EQ(World::run({.hosts = hosts, .plan = kSmall, .silence_ms = 2000},
                        [&](Member& member) {
                          if (!expect(open_error(member, cuda).empty(), "open")) return false;
                          std::vector<float> in(100), out(100);
                          uint64_t ticket = 0;
                          by_devices(member, member.rank == 0 ? first : other, in.data(),
                                     out.data(), nullptr, &ticket);
                          const int code = paceline_comm_device_wait(member.comm, ticket, nullptr);
                          return ended(member,
                                       expect(code == PACELINE_COMM_EPEER, "a difference") &&
                                           expect(member.why().find(words) != std::string::npos,
                                                  member.why()));
                        }),
             0);
  };
  const What broadcast{.kind = Kind::kBroadcast, .type = PACELINE_COMM_F32, .count = 9};
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0}, {0, 1}}) {
    differ(hosts, broadcast,
           {.kind = Kind::kBroadcast, .type = PACELINE_COMM_F32, .count = 9, .root = 1},
           "broadcast on a GPU #");
    differ(hosts, broadcast, {.kind = Kind::kReduce, .type = PACELINE_COMM_F32, .count = 9},
           " fp32 to rank 0");
    differ(hosts, {.kind = Kind::kAllgather, .type = PACELINE_COMM_F32, .count = 9},
           {.kind = Kind::kAllgather, .type = PACELINE_COMM_F32, .count = 8},
           "allgather on a GPU #");
    differ(hosts, {.kind = Kind::kAlltoall, .type = PACELINE_COMM_F32, .count = 1},
           {.kind = Kind::kAlltoallv, .type = PACELINE_COMM_F32, .count = 9},
           " of pieces that differ");
  }
}

CASE(comm_device_pieces_that_two_ranks_mean_differently_are_named) {
  FakeCuda cuda(kModules);
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 0}, {0, 1, 1}})
    CHECK_EQ(
        World::run(
            {.hosts = hosts, .plan = kSmall, .silence_ms = 2000},
            [&](Member& member) {
              if (!expect(open_error(member, cuda).empty(), "open")) return false;
              std::vector<float> in(9), out(9);
              const std::vector<uint64_t> given(3, 3);
              std::vector<uint64_t> taken(3, 3);
              const auto start = [&](void* to) {
                uint64_t ticket = 0;
                const int code = paceline_comm_device_alltoallv_start(
                    member.comm, in.data(), given.data(), to, taken.data(), PACELINE_COMM_F32,
                    nullptr, &ticket);
                return code == PACELINE_OK ? paceline_comm_device_wait(member.comm, ticket, nullptr)
                                           : code;
              };
              bool good = expect(start(nullptr) == PACELINE_EINVAL, "nothing to take into");
              taken[member.rank] = 2;
              good = expect(start(out.data()) == PACELINE_EINVAL, "of this rank itself") && good;
              taken[member.rank] = 3;
              if (member.rank == 2) taken[1] = 2;
              const int code = start(out.data());
              return ended(member, fails_by(member, code, 1,
                                            "rank 1 sends 3 fp32 to rank 2, which receives 2") &&
                                       good);
            }),
        0);
}

// Whatever the device refuses in the middle: what was begun is waited for before its memory goes.
CASE(comm_device_moves_that_a_device_refuses_end_by_its_ranks_name) {
  FakeCuda cuda(kModules);
  const auto refused = [&](const std::vector<int>& hosts, const char* call, Kind kind) {
    CHECK_EQ(World::run({.hosts = hosts, .plan = kSmall},
                        [&](Member& member) {
                          if (!expect(open_error(member, cuda).empty(), "open")) return false;
                          wait_for_all(member);
                          void* const stream = cuda.stream();
                          Moved moved(member,
                                      {.kind = kind, .type = PACELINE_COMM_F32, .count = 30'011});
                          const int started = moved.start(member, cuda, stream);
                          if (member.rank == 1) cuda.set(call, 1);
                          if (member.rank == 1) cuda.set("captured elsewhere", 1);
                          const int code = moved.wait(member, cuda, stream);
                          const std::string words =
                              std::string("rank 1 gave up: ") + call + ": CUDA_ERROR_INVALID_VALUE";
                          const bool good = ended(member, expect(started == PACELINE_OK, "start") &&
                                                              fails_by(member, code, 1, words));
                          cuda.destroy(stream);
                          return expect(all_given_back(cuda), "what was refused is kept") && good;
                        }),
             0);
  };
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 0}, {0, 0, 1}}) {
    refused(hosts, "cuMemcpyAsync", Kind::kAllgather);
    refused(hosts, "cuLaunchHostFunc", Kind::kBroadcast);
  }
  refused({0, 0}, "cuLaunchKernel", Kind::kReduceScatter);
}

CASE(comm_device_moves_of_a_rank_whose_stream_hangs_are_named_by_all) {
  FakeCuda cuda(kModules);
  const auto check = [&](const std::vector<int>& hosts, Kind kind) {
    const auto call = [&, kind](Member& member, void* stream) {
      // What the call was given is in use until the end of the communicator, which is that of the
      // process.
      auto& moved = *new Moved(member, {.kind = kind, .type = PACELINE_COMM_F32, .count = 30'011});
      const int started = moved.start(member, cuda, stream);
      return started == PACELINE_OK ? moved.wait(member, cuda, stream) : started;
    };
    CHECK_EQ(
        ranks_that_name_another(
            cuda,
            {.shape = {.hosts = hosts, .plan = kSmall}, .culprit = 1, .ready = {}, .call = call}),
        0);
  };
  check({0, 0, 0}, Kind::kAllgather);
  for (const Kind kind : {Kind::kBroadcast, Kind::kReduceScatter, Kind::kAlltoall})
    check({0, 0, 1, 1}, kind);
}

CASE(comm_device_moves_end_where_a_rank_is_killed) {
  FakeCuda cuda(kModules);
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{{0, 0, 0}, {0, 0, 1}}) {
    World world;
    world.start({.hosts = hosts, .plan = kSmall, .silence_ms = 5000}, [&](Member& member) {
      if (!expect(open_error(member, cuda).empty(), "open")) return false;
      void* const stream = cuda.stream();
      const What small{.kind = Kind::kAllgather, .type = PACELINE_COMM_F32, .count = 99};
      if (!moves_as_processors(member, cuda, {small}, hosts[2] == 0)) return false;
      // Until then the others still need what is to be killed.
      wait_for_all(member);
      Moved moved(member, {.kind = Kind::kAllgather, .type = PACELINE_COMM_F32, .count = 100'003});
      const int started = moved.start(member, cuda, stream);
      if (member.rank == 1) {
        paceline::comm_device_test::begun(cuda);
        ::raise(SIGKILL);
      }
      const int code = moved.wait(member, cuda, stream);
      const bool good = ended(
          member, expect(started == PACELINE_OK, "start") && fails_by(member, code, 1, "rank 1"));
      cuda.destroy(stream);
      return expect(all_given_back(cuda),
                    std::to_string(cuda.counts()) + " things of the driver are left") &&
             good;
    });
    CHECK_EQ(world.finish(), 1);  // the killed one
  }
}

}  // namespace comm_device_moves_cases
