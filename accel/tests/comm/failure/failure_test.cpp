// SPDX-License-Identifier: Apache-2.0
// Survivors of a dead, stopped, late or mistaken rank get an error that names it, in time, and
// nothing is left behind. Ranks that cannot join are refused by name.
#include <arpa/inet.h>
#include <dirent.h>
#include <sys/socket.h>

#include "check.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm_test::join;
using paceline::comm_test::Member;
using paceline::comm_test::mentions;
using paceline::comm_test::Shape;
using paceline::comm_test::SharedFlag;
using paceline::comm_test::SharedStore;
using paceline::comm_test::value_of;
using paceline::comm_test::World;
using Milliseconds = std::chrono::milliseconds;

constexpr const char* kFlatPlan = "algorithm=flat chunk=65536";
constexpr const char* kHierarchicalPlan = "algorithm=hierarchical chunk=65536";
constexpr uint32_t kVictim = 2;

Milliseconds since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begin);
}

// Makes all-reduces until one fails. Returns whether the error names the victim.
bool ends_naming(Member& member, uint32_t victim, SharedFlag& rounds) {
  std::vector<float> data(300'000, 1.0F);
  int code = PACELINE_OK;
  while (code == PACELINE_OK) {
    code = paceline_comm_all_reduce(member.comm, data.data(), data.size(), PACELINE_COMM_F32);
    rounds.value.fetch_add(1);
  }
  int32_t named = -1;
  const std::string why = member.why(&named);
  // Every later call must fail at once.
  const bool again = paceline_comm_barrier(member.comm) == PACELINE_COMM_EPEER;
  const bool good = code == PACELINE_COMM_EPEER && named == static_cast<int32_t>(victim) && again &&
                    why.find("rank " + std::to_string(victim)) != std::string::npos;
  if (!good)
    std::cerr << "rank " << member.rank << " saw code " << code << ", rank " << named << ": " << why
              << "\n";
  return good;
}

// Sends `signal` to the victim in the middle of its calls. Returns the time until all others have
// ended.
Milliseconds survivors_end(const Shape& shape, int signal) {
  World world;
  SharedFlag rounds;
  world.start(shape, [&](Member& member) { return ends_naming(member, kVictim, rounds); });
  while (rounds.value.load() < 40) ::usleep(1000);
  const auto begin = std::chrono::steady_clock::now();
  ::kill(world.pid(kVictim), signal);
  for (uint32_t rank = 0; rank < shape.hosts.size(); ++rank) {
    int status = 0;
    if (rank != kVictim) CHECK(::waitpid(world.pid(rank), &status, 0) > 0 && status == 0);
  }
  return since(begin);
}

std::size_t open_files() {
  std::size_t count = 0;
  DIR* list = ::opendir("/proc/self/fd");
  while (::readdir(list) != nullptr) ++count;
  ::closedir(list);
  return count;
}

bool fails_naming(int code, const Member& member, int32_t rank, const std::string& words) {
  int32_t named = -1;
  const std::string why = member.why(&named);
  const bool good =
      code == PACELINE_COMM_EPEER && named == rank && why.find(words) != std::string::npos;
  if (!good)
    std::cerr << "rank " << member.rank << " saw code " << code << ", rank " << named << ": " << why
              << "\n";
  return good;
}

}  // namespace

CASE(comm_killed_rank_is_named_by_every_survivor_at_once) {
  for (const char* plan : {kFlatPlan, kHierarchicalPlan})
    for (const auto& hosts :
         {std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 0, 0}, std::vector<int>{0, 1, 2, 3, 3}})
      CHECK(survivors_end({.hosts = hosts, .plan = plan, .heartbeat_timeout_ms = 40'000}, SIGKILL) <
            Milliseconds(30'000));
  for (const char* plan : {"algorithm=doubling", "algorithm=tree"})
    CHECK(survivors_end({.hosts = {0, 0, 1, 1, 1}, .plan = plan, .heartbeat_timeout_ms = 40'000},
                        SIGKILL) < Milliseconds(30'000));
}

CASE(comm_stopped_rank_is_named_by_every_survivor_within_the_heartbeat_timeout) {
  for (const char* plan : {kFlatPlan, kHierarchicalPlan}) {
    // Long enough that pauses of a busy machine do not look like a lost rank.
    const auto took =
        survivors_end({.hosts = {0, 0, 1, 1}, .plan = plan, .heartbeat_timeout_ms = 4000}, SIGSTOP);
    CHECK(took >= Milliseconds(2000) && took < Milliseconds(20'000));
  }
}

CASE(comm_a_rank_that_lives_but_does_not_come_is_named) {
  const Shape shape{.hosts = {0, 0, 1, 1},
                    .plan = kHierarchicalPlan,
                    .heartbeat_timeout_ms = 10'000,
                    .timeout_ms = 10'000};
  SharedFlag done;
  const auto body = [&](Member& member) {
    if (member.rank == kVictim) {
      while (done.value.load() < 3) ::usleep(2000);
      return true;
    }
    std::vector<double> data(1000);
    const int code =
        paceline_comm_all_reduce(member.comm, data.data(), data.size(), PACELINE_COMM_F64);
    const bool good =
        fails_naming(code, member, kVictim, "has not done its part of all_reduce #2 of 1000 fp64");
    done.value.fetch_add(1);
    return good;
  };
  CHECK_EQ(World::run(shape, body), 0);
}

CASE(comm_a_rank_that_left_is_named) {
  const Shape shape{.hosts = {0, 0, 1, 1}, .plan = kFlatPlan};
  SharedFlag there;
  const auto body = [&](Member& member) {
    if (member.rank == kVictim) {
      while (there.value.load() < 3) ::usleep(1000);
      return true;
    }
    there.value.fetch_add(1);
    return fails_naming(paceline_comm_barrier(member.comm), member, kVictim,
                        "has left the communicator before barrier");
  };
  CHECK_EQ(World::run(shape, body), 0);
}

CASE(comm_ranks_that_call_different_things_fail_by_name) {
  // One rank has another count, another kind of call or another root. No rank may hang or mix up
  // bytes.
  for (const char* plan : {kFlatPlan, kHierarchicalPlan})
    for (int kind = 0; kind < 3; ++kind) {
      SharedFlag there;
      const auto body = [&](Member& member) {
        // Wait until all ranks have left create, so that all see the failure in a call.
        there.value.fetch_add(1);
        while (there.value.load() < member.ranks) ::usleep(500);
        std::vector<float> data(5000);
        std::vector<float> all(5000UL * member.ranks);
        const bool other = member.rank == kVictim;
        int code = PACELINE_OK;
        if (kind == 0)
          code = paceline_comm_all_reduce(member.comm, data.data(), other ? 4000 : 5000,
                                          PACELINE_COMM_F32);
        else if (kind == 1 && other)
          code = paceline_comm_all_gather(member.comm, data.data(), all.data(), 5000,
                                          PACELINE_COMM_F32);
        else if (kind == 1)
          code = paceline_comm_all_reduce(member.comm, data.data(), 5000, PACELINE_COMM_F32);
        else
          code = paceline_comm_broadcast(member.comm, data.data(), 5000, PACELINE_COMM_F32,
                                         other ? 1 : 0);
        // A rank that needs nothing of the others may succeed, but the next call must fail.
        if (code == PACELINE_OK) code = paceline_comm_barrier(member.comm);
        // Either rank may be named, so check that the error shows both calls.
        const bool good =
            code == PACELINE_COMM_EPEER && member.why().find(" where rank ") != std::string::npos;
        if (!good)
          std::cerr << "kind " << kind << ": code " << code << ": " << member.why() << "\n";
        return good;
      };
      CHECK_EQ(
          World::run({.hosts = {0, 0, 1, 1}, .plan = plan, .heartbeat_timeout_ms = 5000}, body), 0);
    }
}

CASE(comm_ranks_with_different_plans_do_not_start) {
  World world;
  for (uint32_t rank = 0; rank < 2; ++rank)
    world.spawn([&, rank] {
      const Member member =
          join(world.store(), {.hosts = {0, 1}, .plan = rank == 0 ? kFlatPlan : kHierarchicalPlan},
               rank);
      return member.code == PACELINE_COMM_EPEER &&
             member.error.find("was given") != std::string::npos;
    });
  CHECK_EQ(world.finish(), 0);
}

CASE(comm_a_rank_that_is_refused_delays_no_other) {
  World world;
  for (uint32_t rank = 0; rank < 3; ++rank)
    world.spawn([&, rank] {
      const Member member =
          join(world.store(), {.hosts = {0, 0, 1}, .plan = rank == 1 ? "chunk=1" : ""}, rank);
      const int expected = rank == 1 ? PACELINE_EINVAL : PACELINE_COMM_EPEER;
      const std::string words =
          rank == 1 ? "plan: chunk=1: " : "rank 1 does not come: plan: chunk=1: ";
      const bool good = member.code == expected && member.error.starts_with(words);
      if (!good)
        std::cerr << "rank " << rank << " saw code " << member.code << ": " << member.error << "\n";
      return good;
    });
  CHECK_EQ(world.finish(), 0);
}

CASE(comm_a_rank_that_never_comes_is_named) {
  World world;
  const auto begin = std::chrono::steady_clock::now();
  world.spawn([&] {
    const Member member =
        join(world.store(), {.hosts = {0, 0, 1}, .plan = "", .timeout_ms = 500}, 0);
    return member.code == PACELINE_COMM_EPEER &&
           member.error.find("rank 1 has not come") != std::string::npos;
  });
  CHECK_EQ(world.finish(), 0);
  CHECK(since(begin) < Milliseconds(10'000));
}

CASE(comm_connections_without_the_nonce_are_dropped) {
  World world;
  const Shape shape{.hosts = {0, 1}, .plan = ""};
  const auto body = [&](uint32_t rank) {
    Member member = join(world.store(), shape, rank);
    const bool good =
        member.code == PACELINE_OK && paceline_comm_barrier(member.comm) == PACELINE_OK;
    if (!good) std::cerr << member.error << member.why() << "\n";
    paceline_comm_destroy(member.comm);
    return good;
  };
  world.spawn([&] { return body(0); });
  std::array<char, 1024> info{};
  uint64_t size = 0;
  CHECK_EQ(SharedStore::get(&world.store(), "world/0", info.data(), info.size() - 1, &size, 20'000),
           0);
  const std::string text = info.data();
  const int port = std::atoi(value_of(text, "port").c_str());
  CHECK_EQ(mentions("/proc/net/unix", value_of(text, "listener")), 1U);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> intruders;
  for (int i = 0; i < 4; ++i) {
    intruders.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    CHECK_EQ(::connect(intruders.back(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
    // A silent one, a short one, a wrong one, and one with the right format but no nonce.
    std::string says(i == 0 ? 0 : i == 1 ? 10 : 64, 'x');
    if (i == 3) says.replace(0, 16, std::string("paceline-comm-1\0", 16));
    CHECK_EQ(::send(intruders.back(), says.data(), says.size(), MSG_NOSIGNAL),
             static_cast<ssize_t>(says.size()));
  }
  world.spawn([&] { return body(1); });
  CHECK_EQ(world.finish(), 0);
  CHECK_EQ(mentions("/proc/net/unix", value_of(text, "listener")), 0U);
  for (const int intruder : intruders) ::close(intruder);
}

CASE(comm_nothing_is_left_behind) {
  const std::vector<int> hosts{0, 0, 1, 1};
  const auto body = [&](Member& member) {
    const std::size_t files = open_files();
    const std::size_t maps = mentions("/proc/self/maps", "paceline-comm");
    for (int round = 0; round < 3; ++round) {
      const Member other =
          join(*member.store, {.hosts = hosts, .plan = ""}, member.rank, std::to_string(round));
      if (other.code != PACELINE_OK || mentions("/proc/self/maps", "paceline-comm") != maps + 1)
        return false;
      // This rank and its one mate have a memory file of their own for each direction.
      std::array<int32_t, 4> out{};
      std::array<int32_t, 4> in{};
      if (paceline_comm_all_to_all(other.comm, out.data(), in.data(), 1, PACELINE_COMM_I32) !=
          PACELINE_OK)
        return false;
      if (mentions("/proc/self/maps", "paceline-comm") != maps + 3) return false;
      paceline_comm_destroy(other.comm);
    }
    const bool same =
        open_files() == files && mentions("/proc/self/maps", "paceline-comm") == maps && maps == 1;
    // A rank that leaves closes connections of the others, so wait until all have counted.
    return paceline_comm_barrier(member.comm) == PACELINE_OK && same;
  };
  CHECK_EQ(World::run({.hosts = hosts, .plan = ""}, body), 0);
}

CASE(comm_options_are_refused_by_name) {
  SharedStore store;
  const paceline_comm_store functions = store.functions();
  const auto refusal = [&](const std::function<void(paceline_comm_options&)>& change) {
    paceline_comm_options options{};
    options.size = sizeof options;
    options.ranks = 1;
    options.name = "one";
    change(options);
    paceline_comm* comm = nullptr;
    std::array<char, 512> text{};
    const int code = paceline_comm_create(&options, &functions, &comm, text.data(), text.size());
    paceline_comm_destroy(comm);
    return code == PACELINE_OK ? std::string("accepted") : std::string(text.data());
  };
  CHECK(refusal([](auto&) {}) == "accepted");
  CHECK(refusal([](auto& o) { o.rank = 1; }).find("rank: 1") == 0);
  CHECK(refusal([](auto& o) { o.ranks = 0; }).find("ranks: 0") == 0);
  CHECK(refusal([](auto& o) { o.flows = 17; }).find("flows: 17") == 0);
  CHECK(refusal([](auto& o) { o.heartbeat_timeout_ms = 5; }).find("heartbeat_timeout_ms: 5") == 0);
  CHECK(refusal([](auto& o) { o.timeout_ms = -1; }).find("timeout_ms: -1") == 0);
  CHECK(refusal([](auto& o) { o.name = nullptr; }).find("name:") == 0);
  CHECK(refusal([](auto& o) { o.plan = "order=1"; }).find("plan: order=1") == 0);
  CHECK(refusal([](auto& o) { o.address = "localhost"; }).find("address: 'localhost'") == 0);
  CHECK(refusal([](auto& o) { o.address = "192.0.2.99"; }).find("192.0.2.99") != std::string::npos);
}
