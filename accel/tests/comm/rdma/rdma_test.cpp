// SPDX-License-Identifier: Apache-2.0
// RDMA between hosts: the bits are TCP's, a lost rank or nic is named, and where it cannot be, TCP
// takes its place and the plan says why. Over devices that are not there (rdma/fake_verbs.cpp);
// with PACELINE_TEST_RDMA in the environment, what needs no faults over this machine's own.
#include "comm/transport/rdma/rdma.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "check.hpp"
#include "comm/rdma/fake.hpp"
#include "comm/transport/rdma/rdma_choice.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm::gid_index_of;
using paceline::comm::is_wanted;
using paceline::comm::open_rdma;
using paceline::comm::RdmaSettings;
using paceline::comm::read_rdma_settings;
using paceline::comm_test::Devices;
using paceline::comm_test::join;
using paceline::comm_test::Member;
using paceline::comm_test::Shape;
using paceline::comm_test::SharedFlag;
using paceline::comm_test::wait_for_all;
using paceline::comm_test::World;

bool told(bool good, const std::string& what) {
  if (!good) std::cerr << "wrong: " << what << "\n";
  return good;
}

std::string plan_text(const Member& member) {
  std::array<char, 2048> plan{};
  paceline_comm_plan(member.comm, 0, 0, plan.data(), plan.size());
  return plan.data();
}

bool says(const Member& member, const std::string& words) {
  return told(plan_text(member).find(words) != std::string::npos,
              "'" + words + "' in " + plan_text(member));
}

// What a rank gives and what it got, as bytes.
template <typename Number>
std::vector<std::byte> summed(const Member& member, uint64_t count, uint32_t type, bool& good) {
  std::mt19937 random(member.rank + static_cast<uint32_t>(count));
  std::vector<Number> values(count);
  for (Number& value : values)
    value = static_cast<Number>(random() % 1000) / static_cast<Number>(7);
  good = paceline_comm_all_reduce(member.comm, values.data(), count, type) == PACELINE_OK && good;
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  return {bytes, bytes + count * sizeof(Number)};
}

std::vector<std::byte> sums_of(const Member& member, const std::vector<uint64_t>& counts,
                               bool& good) {
  std::vector<std::byte> all;
  for (const uint64_t count : counts) {
    for (const auto& some : {summed<float>(member, count, PACELINE_COMM_F32, good),
                             summed<double>(member, count, PACELINE_COMM_F64, good),
                             summed<int32_t>(member, count, PACELINE_COMM_I32, good),
                             summed<int64_t>(member, count, PACELINE_COMM_I64, good)})
      all.insert(all.end(), some.begin(), some.end());
    // Any bits at all: whatever they are, they come out the same.
    std::vector<uint16_t> halves(count);
    std::mt19937 random(member.rank);
    for (uint16_t& half : halves) half = static_cast<uint16_t>(random() & 0x3fffU);
    for (const uint32_t type : {PACELINE_COMM_F16, PACELINE_COMM_BF16}) {
      good =
          paceline_comm_all_reduce(member.comm, halves.data(), count, type) == PACELINE_OK && good;
      const auto* const bytes = reinterpret_cast<const std::byte*>(halves.data());
      all.insert(all.end(), bytes, bytes + count * sizeof(uint16_t));
    }
  }
  return all;
}

// Whether RDMA alone carries the same bits as TCP alone.
bool agrees_with_tcp(const Member& member, const Shape& shape,
                     const std::vector<uint64_t>& counts) {
  if (!says(member, " by RDMA ")) return false;
  const std::string plan = plan_text(member);
  const std::string pinned = shape.plan.substr(0, shape.plan.find(" transport"));
  Member tcp = join(
      *member.store,
      {.hosts = shape.hosts, .plan = pinned + " transport=tcp " + plan.substr(plan.find("order="))},
      member.rank, "tcp");
  if (!told(tcp.code == PACELINE_OK, tcp.error)) return false;
  bool good = told(plan_text(tcp).find('#') == std::string::npos, plan_text(tcp));
  const auto expected = sums_of(tcp, counts, good);
  good = told(sums_of(member, counts, good) == expected, "the same bits") && good;
  paceline_comm_destroy(tcp.comm);
  return good;
}

// Allreduces until one fails; good if that names `victim` and `why`.
bool ends_by(const Member& member, int32_t victim, const std::string& why,
             SharedFlag* rounds = nullptr) {
  std::vector<float> data(300'000, 1.0F);
  int code = PACELINE_OK;
  while (code == PACELINE_OK) {
    code = paceline_comm_all_reduce(member.comm, data.data(), data.size(), PACELINE_COMM_F32);
    if (rounds != nullptr) rounds->value.fetch_add(1);
  }
  int32_t named = -1;
  const std::string said = member.why(&named);
  return told(code == PACELINE_COMM_EPEER && named == victim && said.find(why) != std::string::npos,
              "rank " + std::to_string(named) + ": " + said);
}

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

const std::string kFlatRdma = "algorithm=flat transport=rdma";
const std::string kHierarchicalRdma = "algorithm=hierarchical chunk=65536 transport=rdma";

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
      paceline::comm_test::SharedStore::get(member.store, "done", &value, 1, &size, 20'000);
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
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = kFlatRdma, .timeout_ms = 3000}, waits), 0);
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
  const Shape shape{.hosts = {0, 1}, .plan = kFlatRdma, .heartbeat_timeout_ms = 2000};
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
  CHECK_EQ(World::run({.hosts = {0, 1, 2}, .plan = kFlatRdma, .heartbeat_timeout_ms = 2000}, body),
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
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = kFlatRdma, .heartbeat_timeout_ms = 2000}, body), 0);
}

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

CASE(comm_rdma_devices_are_chosen_as_nccl_chooses_them) {
  CHECK(is_wanted("", "mlx5_0", 1) && is_wanted("mlx5", "mlx5_10", 2));
  CHECK(is_wanted("mlx5_1", "mlx5_10", 1) && !is_wanted("=mlx5_1", "mlx5_10", 1) &&
        is_wanted("=mlx5_1", "mlx5_1", 1));
  CHECK(is_wanted("mlx5_0:1,mlx5_2", "mlx5_0", 1) && !is_wanted("mlx5_0:1,mlx5_2", "mlx5_0", 2));
  CHECK(is_wanted("mlx5_0:1,mlx5_2", "mlx5_2", 2) && !is_wanted("mlx5_0:1,mlx5_2", "mlx5_1", 1));
  CHECK(!is_wanted("^mlx5_0", "mlx5_0", 1) && is_wanted("^=mlx5_0", "mlx5_01", 1) &&
        is_wanted("^mlx5_0", "bnxt_re0", 1));

  std::map<std::string, std::string> variables{
      {"NCCL_IB_HCA", "mlx5_0"},  {"NCCL_IB_GID_INDEX", "3"}, {"NCCL_IB_TIMEOUT", "22"},
      {"NCCL_IB_RETRY_CNT", "5"}, {"NCCL_IB_SL", "3"},        {"NCCL_IB_TC", "106"}};
  const auto variable = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const auto read = read_rdma_settings(variable);
  CHECK(read.has_value());
  CHECK(*read == RdmaSettings({.disabled = false,
                               .devices = "mlx5_0",
                               .gid_index = 3,
                               .timeout = 22,
                               .retries = 5,
                               .service_level = 3,
                               .traffic_class = 106}));
  variables = {{"NCCL_IB_TIMEOUT", "long"}};
  CHECK(read_rdma_settings(variable).error() == "NCCL_IB_TIMEOUT=long: use 1 to 31");
  variables = {{"NCCL_IB_RETRY_CNT", "8"}};
  CHECK(read_rdma_settings(variable).error() == "NCCL_IB_RETRY_CNT=8: use 0 to 7");
}

CASE(comm_rdma_ports_are_reached_by_roce_v2_with_an_ipv4_address) {
  char name[] = "/tmp/paceline-gids-XXXXXX";
  CHECK(::mkdtemp(name) != nullptr);
  const std::filesystem::path root = name;
  const auto port = root / "sys/class/infiniband/mlx5_0/ports/1";
  std::filesystem::create_directories(port / "gids");
  std::filesystem::create_directories(port / "gid_attrs/types");
  const auto write = [&](int index, const std::string& gid, const std::string& type) {
    std::ofstream(port / "gids" / std::to_string(index)) << gid << "\n";
    std::ofstream(port / "gid_attrs/types" / std::to_string(index)) << type << "\n";
  };
  write(0, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "IB/RoCE v1");
  write(1, "fe80:0000:0000:0000:5054:00ff:fe12:3456", "RoCE v2");
  write(2, "0000:0000:0000:0000:0000:ffff:c000:0201", "IB/RoCE v1");
  const auto none = gid_index_of(root, "mlx5_0", 1);
  CHECK(!none.has_value() &&
        none.error().starts_with("mlx5_0 port 1 has no RoCE v2 GID with an IPv4 address: "));
  write(3, "0000:0000:0000:0000:0000:ffff:c000:0201", "RoCE v2");
  CHECK_EQ(gid_index_of(root, "mlx5_0", 1).value_or(-1), 3);
  std::filesystem::remove_all(root);
}
