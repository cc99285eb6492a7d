// SPDX-License-Identifier: Apache-2.0
// Calls over links of pairs: all-to-all with equal and with different pieces, send, receive and
// exchange, and sparse sums, over every shape of hosts.
#include <algorithm>
#include <map>
#include <numeric>

#include "check.hpp"
#include "comm/communicator/sparse.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm_test::Member;
using paceline::comm_test::wait_for_all;
using paceline::comm_test::World;

const std::vector<std::vector<int>> kPairShapes{
    {0}, {0, 0}, {0, 1}, {0, 1, 1, 0, 1}, {0, 0, 1, 2, 2, 1, 0, 1}};

bool as_wanted(bool good, const std::string& what) {
  if (!good) std::cerr << "failed: " << what << "\n";
  return good;
}

// Returns element i of the piece that `from` sends to `to`.
template <typename Value>
Value told(uint32_t from, uint32_t to, uint64_t i) {
  return static_cast<Value>(static_cast<int64_t>(from * 1009 + to * 31 + i % 997) - 500);
}

// Sizes that differ; some are 0.
uint64_t size_between(uint32_t from, uint32_t to, uint64_t scale) {
  return (from * 5 + to * 3) % 4 * scale;
}

template <typename Value>
bool swaps(Member& member, uint32_t dtype, uint64_t count) {
  std::vector<Value> in(count * member.ranks);
  std::vector<Value> out(in.size());
  for (uint64_t i = 0; i < in.size(); ++i)
    in[i] = told<Value>(member.rank, static_cast<uint32_t>(i / count), i % count);
  const int code = paceline_comm_all_to_all(member.comm, in.data(), out.data(), count, dtype);
  bool good = code == PACELINE_OK;
  for (uint64_t i = 0; i < out.size(); ++i)
    good = good && out[i] == told<Value>(static_cast<uint32_t>(i / count), member.rank, i % count);
  return as_wanted(good, "alltoall of " + std::to_string(count));
}

template <typename Value>
bool swaps_unequal(Member& member, uint32_t dtype, uint64_t scale) {
  std::vector<uint64_t> in_counts;
  std::vector<uint64_t> out_counts;
  std::vector<Value> in;
  std::vector<Value> wanted;
  for (uint32_t peer = 0; peer < member.ranks; ++peer) {
    in_counts.push_back(size_between(member.rank, peer, scale));
    out_counts.push_back(size_between(peer, member.rank, scale));
    for (uint64_t i = 0; i < in_counts.back(); ++i) in.push_back(told<Value>(member.rank, peer, i));
    for (uint64_t i = 0; i < out_counts.back(); ++i)
      wanted.push_back(told<Value>(peer, member.rank, i));
  }
  std::vector<Value> out(wanted.size());
  const int code = paceline_comm_all_to_all_v(member.comm, in.data(), in_counts.data(), out.data(),
                                              out_counts.data(), dtype);
  return as_wanted(code == PACELINE_OK && out == wanted, "alltoallv of " + std::to_string(scale));
}

// Each rank exchanges with the next. The pieces are larger than any socket's buffer.
bool shifts(Member& member, uint64_t count) {
  const uint32_t next = (member.rank + 1) % member.ranks;
  const uint32_t previous = (member.rank + member.ranks - 1) % member.ranks;
  std::vector<int64_t> out(count);
  std::vector<int64_t> in(count);
  for (uint64_t i = 0; i < count; ++i) out[i] = told<int64_t>(member.rank, next, i);
  bool good = paceline_comm_exchange(member.comm, out.data(), count, next, in.data(), count,
                                     previous, PACELINE_COMM_I64) == PACELINE_OK;
  for (uint64_t i = 0; i < count; ++i)
    good = good && in[i] == told<int64_t>(previous, member.rank, i);
  return as_wanted(good, "exchange of " + std::to_string(count));
}

// Each rank sends to the next of a line while the others work. Then all make a collective.
bool passes_on(Member& member) {
  int32_t token = 5;
  bool good = true;
  if (member.rank > 0)
    good = paceline_comm_receive(member.comm, &token, 1, PACELINE_COMM_I32, member.rank - 1) ==
           PACELINE_OK;
  ++token;
  if (member.rank + 1 < member.ranks)
    good = paceline_comm_send(member.comm, &token, 1, PACELINE_COMM_I32, member.rank + 1) ==
               PACELINE_OK &&
           good;
  int32_t sum = token;
  good = paceline_comm_all_reduce(member.comm, &sum, 1, PACELINE_COMM_I32) == PACELINE_OK && good;
  const auto n = static_cast<int32_t>(member.ranks);
  return as_wanted(
      good && token == 6 + static_cast<int32_t>(member.rank) && sum == 5 * n + n * (n + 1) / 2,
      "a token");
}

bool pairs_of_all(Member& member) {
  bool good = true;
  for (const uint64_t count : {0, 1, 7, 4099}) {
    good = swaps<float>(member, PACELINE_COMM_F32, count) && good;
    good = swaps<uint16_t>(member, PACELINE_COMM_BF16, count) && good;
    good = swaps_unequal<double>(member, PACELINE_COMM_F64, count) && good;
    good = swaps_unequal<int32_t>(member, PACELINE_COMM_I32, count) && good;
    good = shifts(member, count) && good;
  }
  good = shifts(member, 200'003) && good;
  return passes_on(member) && good;
}

// Returns this rank's rows: every third from its own number on, one of them twice.
struct Given {
  std::vector<int64_t> indices;
  std::vector<float> values;
};

Given rows_of(uint32_t rank, uint64_t count, uint64_t width) {
  Given given;
  for (uint64_t i = 0; i < count; ++i) {
    given.indices.push_back(static_cast<int64_t>((i * 3 + rank) % (2 * count)) - 4);
    for (uint64_t k = 0; k < width; ++k)
      given.values.push_back(static_cast<float>(rank + 1) * 0.1F +
                             static_cast<float>(i * width + k));
  }
  return given;
}

bool sums_rows(Member& member, uint64_t count, uint64_t width) {
  std::map<int64_t, std::vector<float>> wanted;
  for (uint32_t rank = 0; rank < member.ranks; ++rank) {
    const Given given = rows_of(rank, rank == 1 ? 0 : count, width);  // one rank has none
    for (std::size_t row = 0; row < given.indices.size(); ++row) {
      const auto begin = given.values.begin() + static_cast<std::ptrdiff_t>(row * width);
      const auto [it, fresh] =
          wanted.try_emplace(given.indices[row], begin, begin + static_cast<std::ptrdiff_t>(width));
      for (uint64_t k = 0; !fresh && k < width; ++k)
        it->second[k] += *(begin + static_cast<std::ptrdiff_t>(k));
    }
  }
  const Given own = rows_of(member.rank, member.rank == 1 ? 0 : count, width);
  uint64_t found = 0;
  int code = paceline_comm_all_reduce_sparse(member.comm, own.indices.data(), own.values.data(),
                                             own.indices.size(), width, PACELINE_COMM_F32, &found);
  std::vector<int64_t> indices(found);
  std::vector<float> values(found * width);
  if (code == PACELINE_OK)
    code = paceline_comm_sparse_result(member.comm, indices.data(), values.data(), found);
  bool good = code == PACELINE_OK && found == wanted.size();
  std::size_t at = 0;
  for (const auto& [index, row] : wanted) {
    good = good && indices[at] == index &&
           std::equal(row.begin(), row.end(), values.data() + at * width);
    ++at;
  }
  return as_wanted(good, "sparse " + std::to_string(count) + " x " + std::to_string(width));
}

}  // namespace

CASE(comm_pairs_get_what_each_was_sent) {
  for (const char* plan : {"", "memory=tcp"})
    for (const auto& hosts : kPairShapes)
      CHECK_EQ(World::run({.hosts = hosts, .plan = plan}, pairs_of_all), 0);
}

CASE(comm_sparse_sums_are_those_of_the_rows_that_anyone_has) {
  const auto body = [](Member& member) {
    bool good = true;
    for (const uint64_t count : {0, 1, 5, 1000})
      for (const uint64_t width : {1, 3}) good = sums_rows(member, count, width) && good;
    return good;
  };
  for (const auto& hosts : kPairShapes) CHECK_EQ(World::run({.hosts = hosts, .plan = ""}, body), 0);
  // In fp16 2048 + 1 is 2048, so only a sum in fp32 has the ones. Halves of 2048, 1, 1, 1, and 2051
  // rounded to even, 2052.
  const std::array<int64_t, 4> same{7, 7, 7, 7};
  const std::array<uint16_t, 4> halves{0x6800, 0x3c00, 0x3c00, 0x3c00};
  const auto merged = paceline::comm::merged(
      same, reinterpret_cast<const std::byte*>(halves.data()), 1, paceline::comm::Type::kF16);
  uint16_t sum = 0;
  CHECK_EQ(merged.values.size(), sizeof sum);
  std::memcpy(&sum, merged.values.data(), sizeof sum);
  CHECK_EQ(sum, 0x6802);
}

CASE(comm_pairs_that_disagree_are_named_on_all_ranks) {
  // Rank 0 sends what rank 1 does not expect. Rank 2 learns it while it waits in another call.
  const auto body = [](Member& member) {
    wait_for_all(member);
    std::array<float, 8> data{};
    int code = PACELINE_OK;
    if (member.rank == 0) {
      (void)paceline_comm_send(member.comm, data.data(), 5, PACELINE_COMM_F32, 1);
      code = paceline_comm_barrier(member.comm);
    } else if (member.rank == 1) {
      code = paceline_comm_receive(member.comm, data.data(), 8, PACELINE_COMM_F32, 0);
    } else {
      code = paceline_comm_receive(member.comm, data.data(), 8, PACELINE_COMM_F32, 1);
    }
    int32_t named = -1;
    const std::string why = member.why(&named);
    return as_wanted(code == PACELINE_COMM_EPEER && named == 0, why) &&
           as_wanted(why == "rank 0 sends 5 fp32 to rank 1, which receives 8 fp32", why);
  };
  CHECK_EQ(World::run({.hosts = {0, 1, 1}, .plan = ""}, body), 0);
}

CASE(comm_pairs_notice_who_left_and_who_died) {
  for (const bool dies : {true, false}) {
    World world;
    world.start({.hosts = {0, 1, 1}, .plan = ""}, [dies](Member& member) {
      wait_for_all(member);
      int32_t data = 0;
      if (member.rank == 0) {
        // One message makes the connection; a second one never comes.
        (void)paceline_comm_send(member.comm, &data, 1, PACELINE_COMM_I32, 1);
        (void)paceline_comm_receive(member.comm, &data, 1, PACELINE_COMM_I32, 1);
        if (dies) ::_exit(0);
        return true;
      }
      bool good = member.rank == 2 ||
                  paceline_comm_receive(member.comm, &data, 1, PACELINE_COMM_I32, 0) == PACELINE_OK;
      if (member.rank == 1) (void)paceline_comm_send(member.comm, &data, 1, PACELINE_COMM_I32, 0);
      int32_t named = -1;
      good = paceline_comm_receive(member.comm, &data, 1, PACELINE_COMM_I32, 0) ==
                 PACELINE_COMM_EPEER &&
             good;
      const std::string why = member.why(&named);
      return as_wanted(good && named == 0, why);
    });
    CHECK_EQ(world.finish(), 0);
  }
}

CASE(comm_arguments_that_are_wrong_on_one_rank_end_the_call_of_all) {
  const auto body = [](Member& member) {
    wait_for_all(member);
    std::vector<float> data(12);
    std::vector<uint64_t> in(member.ranks, 1);
    const std::vector<uint64_t> out(member.ranks, 1);
    // A rank sends itself one element and expects two.
    if (member.rank == 1) in[1] = 2;
    const int code = paceline_comm_all_to_all_v(member.comm, data.data(), in.data(),
                                                data.data() + 6, out.data(), PACELINE_COMM_F32);
    int32_t named = -1;
    const std::string why = member.why(&named);
    return as_wanted(
        code == (member.rank == 1 ? PACELINE_EINVAL : PACELINE_COMM_EPEER) && named == 1 &&
            why.find("rank 1 gave up: all_to_all_v with arguments") != std::string::npos,
        why);
  };
  for (const char* plan : {"", "memory=tcp"})
    CHECK_EQ(World::run({.hosts = {0, 0, 1, 1}, .plan = plan}, body), 0);
}

CASE(comm_pairs_refuse_what_makes_no_sense) {
  const auto body = [](Member& member) {
    wait_for_all(member);
    std::array<float, 4> data{};
    std::array<int64_t, 1> index{};
    std::array<uint64_t, 2> in{1, 2};
    const std::array<uint64_t, 2> huge{UINT64_MAX / 2, 2};
    uint64_t count = 0;
    paceline_comm* const comm = member.comm;
    return as_wanted(paceline_comm_send(comm, data.data(), 1, 0, 2) == PACELINE_EINVAL,
                     "no such rank") &&
           as_wanted(paceline_comm_send(comm, data.data(), 1, 0, member.rank) == PACELINE_EINVAL,
                     "itself") &&
           as_wanted(paceline_comm_receive(comm, nullptr, 1, 0, 0) == PACELINE_EINVAL, "nowhere") &&
           as_wanted(paceline_comm_exchange(comm, data.data(), 1, 0, data.data(), 1, 1, 0) ==
                         PACELINE_EINVAL,
                     "half itself") &&
           as_wanted(paceline_comm_all_to_all(comm, nullptr, data.data(), 1, 0) == PACELINE_EINVAL,
                     "from nowhere") &&
           as_wanted(paceline_comm_all_to_all_v(comm, data.data(), huge.data(), data.data(),
                                                in.data(), 0) == PACELINE_EINVAL,
                     "more than there is") &&
           as_wanted(paceline_comm_all_reduce_sparse(comm, index.data(), data.data(), 1, 0, 0,
                                                     &count) == PACELINE_EINVAL,
                     "rows of nothing") &&
           as_wanted(
               paceline_comm_sparse_result(comm, index.data(), data.data(), 1) == PACELINE_EINVAL,
               "no result");
  };
  CHECK_EQ(World::run({.hosts = {0, 0}, .plan = ""}, body), 0);
}
