// SPDX-License-Identifier: Apache-2.0
// TCP replaces RDMA where RDMA cannot be used, and the plan says why. With transport=rdma it is an
// error.
#include <cerrno>
#include <cstdlib>

#include "check.hpp"
#include "comm/rdma/fake.hpp"
#include "comm/rdma/ranks.hpp"

namespace {

using paceline::comm_test::Devices;
using paceline::comm_test::join;
using paceline::comm_test::Member;
using paceline::comm_test::says;
using paceline::comm_test::Shape;
using paceline::comm_test::sums_of;
using paceline::comm_test::told;
using paceline::comm_test::World;

// Ranks 0 and 1 on hosts of their own, rank 1 with something `wrong`: what both say, of a plan that
// leaves it open.
int run_without(const Devices& devices, const std::function<void()>& wrong,
                const std::string& why) {
  World world;
  const Shape shape{.hosts = {0, 1}, .plan = ""};
  for (uint32_t rank = 0; rank < 2; ++rank)
    world.spawn([&, rank] {
      if (rank == 1) wrong();
      Member member = join(world.store(), shape, rank);
      bool good = told(member.code == PACELINE_OK, member.error) && says(member, " by TCP: ") &&
                  says(member, why);
      static_cast<void>(sums_of(member, {4099}, good));
      good = told(devices.sent(0) <= 2, "nothing by RDMA but a trial each way") && good;
      paceline_comm_destroy(member.comm);
      // And of one that does not: both fail, and name the one or its way.
      Member pinned =
          join(world.store(), {.hosts = shape.hosts, .plan = "transport=rdma"}, rank, "pinned");
      good = told(pinned.code == PACELINE_COMM_EPEER &&
                      pinned.error.find("transport=rdma: rank ") != std::string::npos &&
                      pinned.error.find(why) != std::string::npos,
                  pinned.error) &&
             good;
      paceline_comm_destroy(pinned.comm);
      return good;
    });
  return world.finish();
}

}  // namespace

CASE(comm_rdma_that_cannot_be_is_replaced_by_tcp_and_said) {
  const Devices devices;
  if (!devices.are_fake()) return;
  const auto with = [&](const char* name, int value, const std::string& why) {
    return run_without(devices, [&, name, value] { devices.set(name, value); }, why);
  };
  CHECK_EQ(with("devices", 0, "no RDMA device"), 0);
  CHECK_EQ(with("down", 1, "fake0 is not ACTIVE"), 0);
  CHECK_EQ(with("open_device", EACCES, "fake0: ibv_open_device: Permission denied"), 0);
  CHECK_EQ(with("reg_mr", ENOMEM, "fake0: cannot register 1048576 bytes: Cannot allocate memory"),
           0);
  CHECK_EQ(with("create_qp", EINVAL, "fake0: ibv_create_qp: Invalid argument"), 0);
  CHECK_EQ(with("rtr", ENETUNREACH,
                "no way to the peer's port: ibv_modify_qp to RTR: Network is unreachable"),
           0);
  const auto disabled = [&] { ::setenv("NCCL_IB_DISABLE", "1", 1); };
  CHECK_EQ(run_without(devices, disabled, "NCCL_IB_DISABLE=1"), 0);
  const auto other = [&] { ::setenv("NCCL_IB_HCA", "mlx5", 1); };
  CHECK_EQ(run_without(devices, other, "NCCL_IB_HCA=mlx5 names no RDMA device that is here"), 0);
  const auto ethernet = [&] {
    devices.set("ethernet", 1);
    ::setenv("NCCL_IB_GID_INDEX", "3", 1);
  };
  CHECK_EQ(run_without(devices, ethernet, "the peer's port is not"), 0);
}

CASE(comm_rdma_through_which_nothing_comes_is_replaced_by_tcp) {
  const Devices devices;
  if (!devices.are_fake()) return;
  CHECK_EQ(run_without(
               devices, [&] { devices.set("lose", 1); }, "nothing came through fake0 in 5 s"),
           0);
}

CASE(comm_rdma_of_a_pair_that_cannot_be_is_replaced_by_tcp_and_said) {
  const Devices devices;
  if (!devices.are_fake()) return;
  for (const char* plan : {"algorithm=flat", "algorithm=flat transport=rdma"}) {
    const bool pinned = std::string(plan).find("rdma") != std::string::npos;
    const auto body = [&](Member& member) {
      // When the ring has its queue pairs: what pairs would have is refused.
      if (member.rank == 1) devices.set("reg_mr", ENOMEM);
      int32_t number = member.rank == 0 ? 7 : 0;
      const int code = member.rank == 0
                           ? paceline_comm_send(member.comm, &number, 1, PACELINE_COMM_I32, 1)
                           : paceline_comm_receive(member.comm, &number, 1, PACELINE_COMM_I32, 0);
      const std::string why = "fake0: cannot register 262144 bytes: Cannot allocate memory";
      if (pinned)
        return told(code == PACELINE_COMM_EPEER && member.why().find(why) != std::string::npos,
                    member.why());
      return told(code == PACELINE_OK && number == 7, member.why()) &&
             says(member, " by RDMA fake0") && says(member, "# rank 0 sends to rank 1 by TCP: ") &&
             says(member, why);
    };
    CHECK_EQ(World::run({.hosts = {0, 1}, .plan = plan}, body), 0);
  }
}
