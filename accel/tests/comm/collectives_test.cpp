// SPDX-License-Identifier: Apache-2.0
// Collectives between processes: exact sums of every type over every shape of hosts, and several
// communicators at once.
#include <algorithm>
#include <cmath>
#include <random>

#include "base/halves.hpp"
#include "check.hpp"
#include "comm/bootstrap/peer_info.hpp"
#include "comm/codec/sum.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm_test::join;
using paceline::comm_test::Member;
using paceline::comm_test::Shape;
using paceline::comm_test::World;

const std::vector<std::vector<int>> kShapes{{0},
                                            {0, 0},
                                            {0, 1},
                                            {0, 0, 1},
                                            {0, 1, 1, 0, 1},
                                            {0, 1, 2},
                                            {0, 0, 0},
                                            {0, 0, 0, 0, 1, 1, 1, 1},
                                            {0, 0, 1, 2, 2, 1, 0, 1}};
constexpr std::array<uint64_t, 5> kCounts{0, 1, 7, 4099,
                                          // up to five small chunks, so that a slot is used again
                                          9001};
constexpr uint64_t kLargeCount = 30011;  // pieces of several blocks
const std::string kSmallChunks = " chunk=16384";

int small_integer(uint64_t i, uint32_t rank) {
  // the sum of 8 is still exact in bfloat16
  return static_cast<int>((i * 7 + rank * 13 + i / 977) % 17) - 8;
}

// Returns the values in the representation of a type.
std::vector<std::byte> encoded(uint32_t type, uint64_t count,
                               const std::function<int(uint64_t)>& value) {
  const auto& halves = paceline::base::best_halves();
  std::vector<std::byte> bytes(count * paceline::comm::size_of(paceline::comm::Type{type}));
  const auto store = [&](uint64_t i, auto typed) {
    std::memcpy(bytes.data() + i * sizeof typed, &typed, sizeof typed);
  };
  for (uint64_t i = 0; i < count; ++i) {
    const int number = value(i);
    const auto single = static_cast<float>(number);
    uint16_t half = 0;
    if (type == PACELINE_COMM_F32) store(i, single);
    if (type == PACELINE_COMM_F64) store(i, static_cast<double>(number));
    if (type == PACELINE_COMM_I32) store(i, static_cast<int32_t>(number));
    if (type == PACELINE_COMM_I64) store(i, static_cast<int64_t>(number));
    if (type == PACELINE_COMM_F16) halves.to_f16(&single, &half, 1);
    if (type == PACELINE_COMM_BF16) halves.to_bf16(&single, &half, 1);
    if (type == PACELINE_COMM_F16 || type == PACELINE_COMM_BF16) store(i, half);
  }
  return bytes;
}

bool expect(bool good, const std::string& what) {
  if (!good) std::cerr << "failed: " << what << "\n";
  return good;
}

std::string case_of(uint32_t type, uint64_t count) {
  return std::string(paceline::comm::name_of(paceline::comm::Type{type})) + " " +
         std::to_string(count);
}

bool sums_exactly(Member& member, uint32_t type, uint64_t count) {
  auto data = encoded(type, count, [&](uint64_t i) { return small_integer(i, member.rank); });
  const auto wanted = encoded(type, count, [&](uint64_t i) {
    int sum = 0;
    for (uint32_t rank = 0; rank < member.ranks; ++rank) sum += small_integer(i, rank);
    return sum;
  });
  const int code = paceline_comm_all_reduce(member.comm, data.data(), count, type);
  const auto wrong = std::mismatch(data.begin(), data.end(), wanted.begin()).first - data.begin();
  return expect(
      code == PACELINE_OK && data == wanted,
      "allreduce " + case_of(type, count) + ", first wrong byte " + std::to_string(wrong));
}

bool scatters_exactly(Member& member, uint32_t type, uint64_t count) {
  const auto in = encoded(type, count * member.ranks,
                          [&](uint64_t i) { return small_integer(i, member.rank); });
  std::vector<std::byte> out(count * paceline::comm::size_of(paceline::comm::Type{type}));
  const auto wanted = encoded(type, count, [&](uint64_t i) {
    int sum = 0;
    for (uint32_t rank = 0; rank < member.ranks; ++rank)
      sum += small_integer(member.rank * count + i, rank);
    return sum;
  });
  const int code = paceline_comm_reduce_scatter(member.comm, in.data(), out.data(), count, type);
  return expect(code == PACELINE_OK && out == wanted, "reduce-scatter " + case_of(type, count));
}

bool gathers_exactly(Member& member, uint32_t type, uint64_t count) {
  const auto in = encoded(type, count, [&](uint64_t i) { return small_integer(i, member.rank); });
  std::vector<std::byte> out(in.size() * member.ranks);
  const auto wanted = encoded(type, count * member.ranks, [&](uint64_t i) {
    return small_integer(i % count, static_cast<uint32_t>(i / count));
  });
  const int code = paceline_comm_all_gather(member.comm, in.data(), out.data(), count, type);
  return expect(code == PACELINE_OK && out == wanted, "allgather " + case_of(type, count));
}

bool broadcasts_exactly(Member& member, uint32_t type, uint64_t count) {
  bool good = true;
  for (uint32_t root = 0; root < member.ranks; ++root) {
    const auto wanted =
        encoded(type, count, [&](uint64_t i) { return small_integer(i, root + 3); });
    std::vector<std::byte> data =
        member.rank == root ? wanted : std::vector<std::byte>(wanted.size());
    const int code = paceline_comm_broadcast(member.comm, data.data(), count, type, root);
    good = expect(code == PACELINE_OK && data == wanted,
                  "broadcast from " + std::to_string(root) + " " + case_of(type, count)) &&
           good;
  }
  return good;
}

bool reduces_exactly(Member& member, uint32_t type, uint64_t count) {
  bool good = true;
  const auto own = encoded(type, count, [&](uint64_t i) { return small_integer(i, member.rank); });
  const auto sum = encoded(type, count, [&](uint64_t i) {
    int all = 0;
    for (uint32_t rank = 0; rank < member.ranks; ++rank) all += small_integer(i, rank);
    return all;
  });
  for (uint32_t root = 0; root < member.ranks; ++root) {
    auto data = own;
    const int code = paceline_comm_reduce(member.comm, data.data(), count, type, root);
    good = expect(code == PACELINE_OK && data == (member.rank == root ? sum : own),
                  "reduce to " + std::to_string(root) + " " + case_of(type, count)) &&
           good;
  }
  return good;
}

// Makes all collectives with every type and count.
bool all_collectives(Member& member) {
  bool good = true;
  const auto each = [&](uint32_t type, uint64_t count) {
    for (const auto& collective : {sums_exactly, scatters_exactly, gathers_exactly})
      good = collective(member, type, count) &&
             good;  // make every call, or ranks would make different calls
  };
  for (uint32_t type = PACELINE_COMM_F32; type <= PACELINE_COMM_I64; ++type)
    for (const uint64_t count : kCounts) each(type, count);
  each(PACELINE_COMM_F32, kLargeCount);
  return broadcasts_exactly(member, PACELINE_COMM_I32, kLargeCount) &&
         reduces_exactly(member, PACELINE_COMM_I32, kLargeCount) &&
         paceline_comm_barrier(member.comm) == PACELINE_OK && good;
}

std::vector<float> gradients(uint32_t rank, uint64_t count) {
  std::mt19937 random(rank + 1);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Returns the sum if all ranks have the same bits, else nothing.
std::vector<float> agreed_sum(Member& member, uint64_t count) {
  std::vector<float> mine = gradients(member.rank, count);
  std::vector<float> all(count * member.ranks);
  if (paceline_comm_all_reduce(member.comm, mine.data(), count, PACELINE_COMM_F32) != PACELINE_OK)
    return {};
  if (paceline_comm_all_gather(member.comm, mine.data(), all.data(), count, PACELINE_COMM_F32) !=
      PACELINE_OK)
    return {};
  for (uint32_t rank = 0; rank < member.ranks; ++rank)
    if (std::memcmp(all.data() + rank * count, mine.data(), count * sizeof(float)) != 0) return {};
  return mine;
}

bool near_fp64(const std::vector<float>& sum, uint32_t ranks) {
  std::vector<double> exact(sum.size());
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const auto values = gradients(rank, sum.size());
    for (std::size_t i = 0; i < exact.size(); ++i) exact[i] += values[i];
  }
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst, std::abs(exact[i] - sum[i]));
  return worst > 0 && worst < 1e-5;
}

}  // namespace

CASE(comm_collectives_are_exact_over_every_shape_hierarchical) {
  for (const auto& hosts : kShapes)
    CHECK_EQ(World::run({.hosts = hosts, .plan = "algorithm=hierarchical" + kSmallChunks},
                        all_collectives),
             0);
}

CASE(comm_collectives_are_exact_over_every_shape_flat) {
  for (const auto& hosts : kShapes)
    CHECK_EQ(World::run({.hosts = hosts, .plan = "algorithm=flat" + kSmallChunks}, all_collectives),
             0);
}

CASE(comm_collectives_are_exact_over_every_shape_in_few_steps) {
  // Include arrays larger than a link's buffer, and algorithms that change with the size.
  const auto sums = [](Member& member) {
    bool good = true;
    for (uint32_t type = PACELINE_COMM_F32; type <= PACELINE_COMM_I64; ++type)
      for (const uint64_t count : {0, 1, 3, 517, 4099})
        good = sums_exactly(member, type, count) && good;
    return good;
  };
  const auto body = [&](Member& member) {
    const auto large = [&](uint64_t count) {
      return sums_exactly(member, PACELINE_COMM_F64, count);
    };
    return sums(member) && large(100'003) && broadcasts_exactly(member, PACELINE_COMM_F64, 9001) &&
           reduces_exactly(member, PACELINE_COMM_F64, 9001) &&
           reduces_exactly(member, PACELINE_COMM_F16, 3);
  };
  const std::vector<std::vector<int>> shapes{
      {0}, {0, 1}, {0, 0, 1}, {0, 1, 1, 0, 1}, {0, 0, 0, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0}};
  for (const char* plan : {"algorithm=doubling", "algorithm=tree"})
    for (const auto& hosts : shapes) CHECK_EQ(World::run({.hosts = hosts, .plan = plan}, body), 0);
  CHECK_EQ(World::run({.hosts = {0, 0, 0, 0, 1, 1, 1, 1}, .plan = "algorithm=doubling memory=tcp"},
                      body),
           0);
  const std::string mixed =
      "chunk=16384 choice=0:tree,64:doubling,8192:hierarchical/8192,65536:flat";
  CHECK_EQ(World::run({.hosts = shapes.back(), .plan = mixed}, body), 0);
}

CASE(comm_collectives_are_exact_over_any_number_of_flows) {
  // Some sizes use fewer flows; calls that are no all-reduce use all.
  const auto body = [](Member& member) {
    bool good = all_collectives(member);
    for (const uint64_t count : {100'003, 300'007, 20'001, 300'007, 5, 100'003})
      good = sums_exactly(member, PACELINE_COMM_F32, count) && good;
    return good;
  };
  for (const char* plan :
       {"algorithm=flat flows=1", "algorithm=hierarchical flows=3", "algorithm=flat flows=16",
        "chunk=65536 "
        "choice=0:flat@2,40000:hierarchical/16384@1,200000:hierarchical/65536@3,1000000:flat "
        "flows=3"})
    CHECK_EQ(World::run({.hosts = {0, 0, 1, 1, 2}, .plan = plan}, body), 0);
  // The option and the plan both set the number of flows.
  const auto twice = [](uint32_t flows) {
    paceline_comm_options options{};
    options.size = sizeof options;
    options.ranks = 1;
    options.flows = flows;
    options.name = "twice";
    options.plan = "flows=3";
    paceline::comm_test::SharedStore store;
    const paceline_comm_store functions = store.functions();
    std::array<char, 256> text{};
    paceline_comm* comm = nullptr;
    const int code = paceline_comm_create(&options, &functions, &comm, text.data(), text.size());
    paceline_comm_destroy(comm);
    return code == PACELINE_OK ? "" : std::string(text.data());
  };
  CHECK(twice(3).empty());
  CHECK(twice(2) == "flows: 2 where the plan says flows=3: give one of them");
}

CASE(comm_flows_go_over_all_addresses_that_every_rank_has) {
  const auto told = [](const std::string& words, const std::string& shape) {
    return [=](Member& member) {
      std::array<char, 1024> text{};
      paceline_comm_plan(member.comm, 0, 0, text.data(), text.size());
      const std::string plan = text.data();
      paceline_comm_shape(member.comm, text.data(), text.size());
      const bool none = words.empty() && plan.find('#') == std::string::npos;
      return expect(none || (!words.empty() && plan.find(words) != std::string::npos), plan) &&
             expect(text.data() == shape, text.data()) && all_collectives(member);
    };
  };
  const auto over = [](std::vector<std::string> addresses) {
    return Shape{.hosts = {0, 0, 1, 1}, .plan = "transport=tcp", .addresses = std::move(addresses)};
  };
  CHECK_EQ(World::run(over({"127.0.0.1,127.0.0.2", "127.0.0.3,127.0.0.4"}),
                      told("flows=4 transport=tcp order=0,1,2,3 # flows go over 2 addresses of "
                           "each rank, here 127.0.0.",
                           "2,2/2")),
           0);
  CHECK_EQ(World::run(over({"127.0.0.1,127.0.0.2,127.0.0.5", "127.0.0.3,127.0.0.4,127.0.0.6"}),
                      told("flows=6 transport=tcp order=0,1,2,3 # flows go over 3 addresses of "
                           "each rank, here 127.0.0.",
                           "2,2/3")),
           0);
  CHECK_EQ(World::run(over({"127.0.0.1", "127.0.0.3"}), told("", "2,2")), 0);
  // One host has fewer addresses, and one address is on both hosts, as a local bridge's is.
  CHECK_EQ(World::run(over({"127.0.0.9,127.0.0.1,127.0.0.2", "127.0.0.9,127.0.0.3"}),
                      told("of ", "2,2")),
           0);
  using paceline::comm::PeerInfo;
  const auto info = [](const char* host, const std::vector<const char*>& addresses) {
    PeerInfo made;
    made.host = host;
    for (const char* address : addresses) made.endpoints.push_back({address, 1});
    return made;
  };
  std::vector<PeerInfo> peers{info("a", {"172.17.0.1", "10.0.0.1", "10.1.0.1"}),
                              info("a", {"10.0.0.1", "10.1.0.1"}),
                              info("b", {"172.17.0.1", "10.0.0.2", "10.1.0.2", "10.2.0.2"})};
  paceline::comm::pair_endpoints(peers);
  for (const PeerInfo& one : peers) CHECK_EQ(one.endpoints.size(), 2U);
  CHECK(peers[0].endpoints[0].address == "10.0.0.1" && peers[2].endpoints[1].address == "10.1.0.2");
}

CASE(comm_sums_are_the_same_bits_on_all_ranks_and_again_and_near_fp64) {
  for (const char* algorithm :
       {"algorithm=flat", "algorithm=hierarchical", "algorithm=doubling", "algorithm=tree"}) {
    const auto body = [](Member& member) {
      constexpr uint64_t kCount = 50'021;
      const auto once = agreed_sum(member, kCount);
      const auto again = agreed_sum(member, kCount);
      // A second communicator with the plan that this one printed, as another run would make it.
      std::array<char, 256> plan{};
      paceline_comm_plan(member.comm, kCount, PACELINE_COMM_F32, plan.data(), plan.size());
      Member other = join(*member.store, {.hosts = {0, 0, 1, 1, 1}, .plan = plan.data()},
                          member.rank, "again");
      if (!expect(other.code == PACELINE_OK, "pinned: " + other.error)) return false;
      const auto pinned = agreed_sum(other, kCount);
      paceline_comm_destroy(other.comm);
      return expect(!once.empty() && near_fp64(once, member.ranks), "agreed and near fp64") &&
             expect(once == again && once == pinned, "the same bits again");
    };
    CHECK_EQ(World::run({.hosts = {0, 0, 1, 1, 1}, .plan = algorithm + kSmallChunks}, body), 0);
  }
}

CASE(comm_halves_are_added_in_fp32) {
  // In fp16 2048 + 1 is 2048, so only a sum in fp32 has the ones.
  const auto body = [](Member& member) {
    auto data =
        encoded(PACELINE_COMM_F16, 3, [&](uint64_t) { return member.rank == 0 ? 2048 : 1; });
    const auto wanted = encoded(PACELINE_COMM_F16, 3, [&](uint64_t) { return 2052; });
    return paceline_comm_all_reduce(member.comm, data.data(), 3, PACELINE_COMM_F16) ==
               PACELINE_OK &&
           data == wanted;
  };
  CHECK_EQ(World::run({.hosts = {0, 0, 0, 0, 0}, .plan = "algorithm=hierarchical"}, body), 0);
}

CASE(comm_several_communicators_over_subsets_at_once) {
  const auto body = [](Member& member) {
    // Use a communicator of two ranks of different hosts and that of all ranks in turn.
    Member pair = join(*member.store, {.hosts = {0, 1}, .plan = ""}, member.rank / 2,
                       member.rank % 2 == 0 ? "even" : "odd");
    if (!expect(pair.code == PACELINE_OK, pair.error)) return false;
    bool good = true;
    for (int round = 0; round < 20; ++round) {
      std::vector<int32_t> data(1000, static_cast<int32_t>(member.rank));
      good = paceline_comm_all_reduce(pair.comm, data.data(), data.size(), PACELINE_COMM_I32) ==
                 PACELINE_OK &&
             data[999] == static_cast<int32_t>(2 * (member.rank % 2) + 2) && good;
      good = sums_exactly(member, PACELINE_COMM_F32, 10'000) && good;
    }
    paceline_comm_destroy(pair.comm);
    return good;
  };
  CHECK_EQ(World::run({.hosts = {0, 0, 1, 1}, .plan = ""}, body), 0);
}
