// SPDX-License-Identifier: Apache-2.0
// RDMA between hosts when a rank or a NIC fails: the error names it. Faults are those of
// fake_verbs.cpp; what needs none runs over this machine's devices with PACELINE_TEST_RDMA.
#include <cerrno>

#include "check.hpp"
#include "comm/rdma/fake.hpp"
#include "comm/rdma/ranks.hpp"

namespace {

using paceline::comm_test::Devices;
using paceline::comm_test::ends_by;
using paceline::comm_test::join;
using paceline::comm_test::kFlatRdma;
using paceline::comm_test::kHierarchicalRdma;
using paceline::comm_test::Member;
using paceline::comm_test::says;
using paceline::comm_test::Shape;
using paceline::comm_test::SharedFlag;
using paceline::comm_test::told;
using paceline::comm_test::wait_for_all;
using paceline::comm_test::World;

}  // namespace

CASE(comm_rdma_a_peer_that_left_or_does_not_come_is_named_by_two_alone) {
  const Devices devices;
  if (!devices) return;
  const auto body = [](Member& member) {
    std::vector<float> data(400'000, 1.0F);
    bool good = true;
    // Once each way, so that the link is there; then the peer leaves in the middle of the next.
    if (member.rank == 0) {
      good = paceline_comm_send(member.comm, data.data(), 10, PACELINE_COMM_F32, 1) == PACELINE_OK;
      good = paceline_comm_send(member.comm, data.data(), data.size(), PACELINE_COMM_F32, 1) ==
                 PACELINE_COMM_EPEER &&
             good;
      int32_t named = -1;
      const std::string why = member.why(&named);
      return told(good && named == 1 && why.find("rank 1") != std::string::npos, why);
    }
    return paceline_comm_receive(member.comm, data.data(), 10, PACELINE_COMM_F32, 0) == PACELINE_OK;
  };
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = kFlatRdma}, body), 0);
  const auto waits = [](Member& member) {
    if (member.rank == 1) {
      // Lives, and speaks with nobody.
      char value = 0;
      uint64_t size = 0;
      paceline::comm_test::SharedStore::get(member.store, "done", &value, 1, &size, 30'000);
      return true;
    }
    float number = 0;
    const int code = paceline_comm_send(member.comm, &number, 1, PACELINE_COMM_F32, 1);
    paceline::comm_test::SharedStore::set(member.store, "done", "x", 1);
    int32_t named = -1;
    const std::string why = member.why(&named);
    return told(code == PACELINE_COMM_EPEER && named == 1 &&
                    why.find("has not done its part of") != std::string::npos,
                why);
  };
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = kFlatRdma, .timeout_ms = 10'000}, waits), 0);
}

CASE(comm_rdma_killed_and_stopped_ranks_are_named) {
  const Devices devices;
  if (!devices) return;
  for (const std::string& plan : {kFlatRdma, kHierarchicalRdma})
    for (const int signal : {SIGKILL, SIGSTOP}) {
      World world;
      SharedFlag rounds;
      // Long enough that a busy machine's pauses are not taken for heartbeat timeout of the others.
      const Shape shape{.hosts = {0, 0, 1, 1},
                        .plan = plan,
                        .heartbeat_timeout_ms = signal == SIGSTOP ? 4000 : 20'000};
      world.start(shape, [&](Member& member) {
        return says(member, " by RDMA ") && ends_by(member, 2, "rank 2", &rounds);
      });
      while (rounds.value.load() < 12) ::usleep(1000);
      const auto begin = std::chrono::steady_clock::now();
      ::kill(world.pid(2), signal);
      for (const std::size_t rank : {0, 1, 3}) {
        int status = 0;
        CHECK(::waitpid(world.pid(rank), &status, 0) > 0 && status == 0);
      }
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));
    }
}

CASE(comm_rdma_a_broken_rail_is_named_with_its_reason) {
  const Devices devices;
  if (!devices.are_fake()) return;
  World world;
  const Shape shape{.hosts = {0, 1}, .plan = kFlatRdma, .heartbeat_timeout_ms = 4000};
  for (uint32_t rank = 0; rank < 2; ++rank)
    world.spawn([&, rank] {
      Member member = join(world.store(), shape, rank);
      wait_for_all(member);
      if (rank == 0) devices.set("break", devices.sent(0) + 20);
      const bool good = ends_by(member, 1, "RDMA by fake0: transport retry counter exceeded");
      paceline_comm_destroy(member.comm);
      return good;
    });
  CHECK_EQ(world.finish(), 0);
}

CASE(comm_rdma_what_a_rank_cannot_itself_is_blamed_on_no_peer) {
  const Devices devices;
  if (!devices.are_fake()) return;
  const auto body = [&](Member& member) {
    wait_for_all(member);
    if (member.rank == 1) devices.set("post_recv", ENOMEM);
    return ends_by(member, 1,
                   "rank 1 gave up: RDMA by fake0: ibv_post_recv: Cannot allocate memory");
  };
  CHECK_EQ(World::run({.hosts = {0, 1, 2}, .plan = kFlatRdma, .heartbeat_timeout_ms = 4000}, body),
           0);
}

CASE(comm_rdma_a_last_message_that_is_lost_is_noticed_by_who_sent_it) {
  const Devices devices;
  if (!devices.are_fake()) return;
  const auto body = [&](Member& member) {
    std::array<int32_t, 10> data{};
    const auto once = [&] {
      return member.rank == 0
                 ? paceline_comm_send(member.comm, data.data(), data.size(), PACELINE_COMM_I32, 1)
                 : paceline_comm_receive(member.comm, data.data(), data.size(), PACELINE_COMM_I32,
                                         0);
    };
    if (once() != PACELINE_OK) return false;
    // What is sent arrives, but for the second of two messages.
    if (member.rank == 0) devices.set("break", devices.sent(0) + 1);
    return told(once() == PACELINE_COMM_EPEER &&
                    member.why().find("retry counter exceeded") != std::string::npos,
                member.why());
  };
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = kFlatRdma, .heartbeat_timeout_ms = 4000}, body), 0);
}
