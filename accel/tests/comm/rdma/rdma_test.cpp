// SPDX-License-Identifier: Apache-2.0
// RDMA between hosts carries the same bits as TCP. The devices are those of fake_verbs.cpp; with
// PACELINE_TEST_RDMA in the environment they are this machine's own.
#include "check.hpp"
#include "comm/rdma/fake.hpp"
#include "comm/rdma/ranks.hpp"

namespace {

using paceline::comm_test::agrees_with_tcp;
using paceline::comm_test::Devices;
using paceline::comm_test::join;
using paceline::comm_test::kFlatRdma;
using paceline::comm_test::kHierarchicalRdma;
using paceline::comm_test::Member;
using paceline::comm_test::plan_text;
using paceline::comm_test::says;
using paceline::comm_test::Shape;
using paceline::comm_test::told;
using paceline::comm_test::World;

}  // namespace

CASE(comm_rdma_carries_the_same_bits_as_tcp) {
  const Devices devices;
  if (!devices) return;
  for (const std::string& plan : {kFlatRdma, kHierarchicalRdma})
    for (const auto& hosts :
         {std::vector<int>{0, 1}, std::vector<int>{0, 1, 2}, std::vector<int>{0, 0, 1, 1}}) {
      const Shape shape{.hosts = hosts, .plan = plan};
      CHECK_EQ(World::run(shape,
                          [&](Member& member) {
                            return agrees_with_tcp(member, shape, {1, 7, 4099, 40'001});
                          }),
               0);
    }
}

CASE(comm_rdma_carries_16_mib_and_odd_sizes_above_and_below_a_slot) {
  const Devices devices;
  if (!devices) return;
  const Shape shape{.hosts = {0, 1}, .plan = kFlatRdma};
  const auto body = [&](Member& member) {
    bool good = agrees_with_tcp(member, shape, {16'384, 32'767, 32'769, 262'147});
    std::vector<float> data(4UL << 20, static_cast<float>(member.rank + 1));
    good = paceline_comm_all_reduce(member.comm, data.data(), data.size(), PACELINE_COMM_F32) ==
               PACELINE_OK &&
           good;
    return told(data.front() == 3.0F && data[1'234'567] == 3.0F && data.back() == 3.0F,
                "sums of 16 MiB") &&
           good;
  };
  CHECK_EQ(World::run(shape, body), 0);
}

CASE(comm_rdma_carries_what_goes_from_rank_to_rank) {
  const Devices devices;
  if (!devices) return;
  // Small arrays, pieces for all, and what two ranks do alone: more and less than a slot of theirs.
  const auto body = [&](Member& member) {
    const int before = devices.sent(0);
    bool good = agrees_with_tcp(member, {.hosts = {0, 1, 2}, .plan = "algorithm=doubling"},
                                {1, 4099, 40'001});
    for (const uint64_t count : {1, 8192, 100'003}) {
      std::vector<int32_t> pieces(count * member.ranks);
      std::vector<int32_t> swapped(pieces.size());
      for (std::size_t i = 0; i < pieces.size(); ++i)
        pieces[i] = static_cast<int32_t>(member.rank * 1000 + i / count);
      good = paceline_comm_all_to_all(member.comm, pieces.data(), swapped.data(), count,
                                      PACELINE_COMM_I32) == PACELINE_OK &&
             good;
      for (std::size_t i = 0; i < swapped.size(); ++i)
        good = swapped[i] == static_cast<int32_t>(i / count * 1000 + member.rank) && good;
      const uint32_t next = (member.rank + 1) % member.ranks;
      const uint32_t previous = (member.rank + member.ranks - 1) % member.ranks;
      good = paceline_comm_exchange(member.comm, pieces.data(), count, next, swapped.data(), count,
                                    previous, PACELINE_COMM_I32) == PACELINE_OK &&
             swapped[count - 1] == static_cast<int32_t>(previous * 1000) && good;
    }
    good = told(plan_text(member).find(" by TCP") == std::string::npos, plan_text(member)) && good;
    // As many messages as all of that takes by RDMA alone; the rings have no part in it.
    const int more = devices.sent(0) - before;
    return told(!devices.are_fake() || more > 150, std::to_string(more) + " messages") && good;
  };
  CHECK_EQ(World::run({.hosts = {0, 1, 2}, .plan = "algorithm=doubling transport=rdma"}, body), 0);
}

CASE(comm_rdma_what_was_sent_last_arrives_when_its_sender_leaves_at_once) {
  const Devices devices;
  if (!devices) return;
  const auto body = [](Member& member) {
    std::vector<int32_t> data(100'003, member.rank == 0 ? 7 : 0);
    const int code =
        paceline_comm_broadcast(member.comm, data.data(), data.size(), PACELINE_COMM_I32, 0);
    return code == PACELINE_OK && data.front() == 7 && data.back() == 7;
  };
  const int before = devices.dropped();
  // Around the ring, and from one to another.
  for (int round = 0; round < 4; ++round)
    for (const std::string& plan : {kFlatRdma, std::string("algorithm=tree transport=rdma")})
      CHECK_EQ(World::run({.hosts = {0, 1, 2}, .plan = plan}, body), 0);
  CHECK_EQ(devices.dropped() - before, 0);
}

CASE(comm_rdma_goes_by_as_many_rails_as_both_ends_have) {
  const Devices devices;
  if (!devices.are_fake()) return;
  World world;
  const Shape shape{.hosts = {0, 1}, .plan = kFlatRdma};
  for (uint32_t rank = 0; rank < 2; ++rank)
    world.spawn([&, rank] {
      devices.set("devices", rank == 0 ? 3 : 2);
      Member member = join(world.store(), shape, rank);
      bool good = told(member.code == PACELINE_OK, member.error) &&
                  says(member, " by RDMA fake0+fake1") &&
                  agrees_with_tcp(member, shape, {1, 100'003});
      const int first = devices.sent(0);
      const int second = devices.sent(1);
      good =
          told(first > 20 && second > 20 && std::abs(first - second) <= 8 && devices.sent(2) == 0,
               std::to_string(first) + " and " + std::to_string(second) + " messages") &&
          good;
      paceline_comm_destroy(member.comm);
      return good;
    });
  CHECK_EQ(world.finish(), 0);
}
