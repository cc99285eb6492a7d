// SPDX-License-Identifier: Apache-2.0
// Queued all-reduces: they run in order, are waited for in any order, and end if a rank gives up or
// leaves. Forked children of a rank hold none of its connections.
#include "check.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm_test::Member;
using paceline::comm_test::Shape;
using paceline::comm_test::World;

struct Started {
  std::vector<float> data;
  uint64_t ticket = 0;
};

bool start(Member& member, Started& one, std::size_t count, float value) {
  one.data.assign(count, value);
  return paceline_comm_all_reduce_start(member.comm, one.data.data(), count, PACELINE_COMM_F32,
                                        &one.ticket) == PACELINE_OK;
}

bool names(const Member& member, int32_t rank, const std::string& words) {
  int32_t named = -1;
  const std::string why = member.why(&named);
  const bool good = named == rank && why.find(words) != std::string::npos;
  if (!good) std::cerr << "rank " << member.rank << " names " << named << ": " << why << "\n";
  return good;
}

// Queues all-reduces and waits for them, until one fails.
int until_one_fails(Member& member, std::atomic<uint32_t>& rounds) {
  Started one;
  int code = PACELINE_OK;
  while (code == PACELINE_OK) {
    if (!start(member, one, 200'000, 1.0F)) return PACELINE_EINVAL;
    code = paceline_comm_wait(member.comm, one.ticket);
    rounds.fetch_add(1);
  }
  return code;
}

struct Shared {
  std::atomic<uint32_t> rounds;
  std::atomic<uint32_t> ended;
};

struct SharedPage {
  SharedPage()
      : it(*static_cast<Shared*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedPage() { ::munmap(&it, 4096); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  Shared& it;
};

}  // namespace

CASE(comm_started_allreduces_are_done_in_order) {
  const auto body = [](Member& member) {
    std::array<Started, 5> many;
    const std::array<std::size_t, 5> counts{100'000, 3, 0, 70'001, 1};
    bool good = true;
    for (std::size_t i = 0; i < many.size(); ++i)
      good = start(member, many[i], counts[i], static_cast<float>(member.rank + i)) && good;
    // A call that is not queued runs after all queued ones, or ranks would meet in different calls.
    std::vector<float> last(10, 1.0F);
    good = paceline_comm_all_reduce(member.comm, last.data(), last.size(), PACELINE_COMM_F32) ==
               PACELINE_OK &&
           good;
    good = last[9] == 4.0F && good;
    for (std::size_t i = many.size(); i-- > 0;) {
      good = paceline_comm_wait(member.comm, many[i].ticket) == PACELINE_OK && good;
      for (const float value : many[i].data)
        good = value == 6.0F + 4.0F * static_cast<float>(i) && good;
    }
    return good && paceline_comm_wait(member.comm, 0) == PACELINE_EINVAL &&
           paceline_comm_wait(member.comm, 7) == PACELINE_EINVAL &&
           paceline_comm_all_reduce_start(member.comm, last.data(), 1, 99, &many[0].ticket) ==
               PACELINE_EINVAL &&
           paceline_comm_all_reduce_start(member.comm, last.data(), 1, 0, nullptr) ==
               PACELINE_EINVAL;
  };
  for (const char* plan : {"algorithm=flat chunk=65536", "algorithm=hierarchical chunk=65536"})
    CHECK_EQ(World::run({.hosts = {0, 0, 1, 1}, .plan = plan}, body), 0);
}

CASE(comm_who_gives_up_is_named_by_all) {
  SharedPage shared;
  World world;
  world.start({.hosts = {0, 0, 1}, .plan = ""}, [&](Member& member) {
    if (member.rank != 1)
      return until_one_fails(member, shared.it.rounds) == PACELINE_COMM_EPEER &&
             names(member, 1, "had enough");
    while (shared.it.rounds.load() == 0) {
      Started one;
      if (!start(member, one, 200'000, 1.0F) ||
          paceline_comm_wait(member.comm, one.ticket) != PACELINE_OK)
        return false;
    }
    return paceline_comm_abort(member.comm, "had enough") == PACELINE_OK &&
           paceline_comm_barrier(member.comm) == PACELINE_COMM_EPEER &&
           names(member, 1, "rank 1 gave up: had enough");
  });
  CHECK_EQ(world.finish(), 0);
}

CASE(comm_destroying_it_with_collectives_under_way_ends_them_on_all) {
  const auto body = [](Member& member) {
    static Started one;  // outlives the communicator, which still works on it
    const auto hears_of_it = [&] {
      return member.rank != 1 && names(member, 1, "it left while collectives were under way");
    };
    // A rank that is slow to leave the barrier, or to start, gets the failure there.
    if (const int met = paceline_comm_barrier(member.comm); met != PACELINE_OK)
      return met == PACELINE_COMM_EPEER && hears_of_it();
    if (member.rank == 2) {
      // Does not make the call, so that it is in flight until rank 1 leaves.
      for (int round = 0; round < 20'000 && member.why().empty(); ++round) ::usleep(1000);
      return hears_of_it();
    }
    if (!start(member, one, 500'000, 1.0F)) return hears_of_it();
    if (member.rank == 1) return true;  // destroys it at once
    return paceline_comm_wait(member.comm, one.ticket) == PACELINE_COMM_EPEER && hears_of_it();
  };
  CHECK_EQ(World::run({.hosts = {0, 0, 1}, .plan = "", .heartbeat_timeout_ms = 20'000}, body), 0);
}

CASE(comm_a_child_of_a_dead_rank_does_not_keep_it_alive) {
  SharedPage shared;
  World world;
  const auto begin = std::chrono::steady_clock::now();
  world.start(
      {.hosts = {0, 1, 1}, .plan = "", .heartbeat_timeout_ms = 60'000}, [&](Member& member) {
        paceline::comm_test::wait_for_all(member);
        if (member.rank == 1) {
          if (::fork() == 0) {
            paceline_comm_forked(member.comm);
            // A loader's worker lives on for a while, too.
            while (shared.it.ended.load() < 2 &&
                   std::chrono::steady_clock::now() - begin < std::chrono::seconds(100))
              ::usleep(1000);
            ::_exit(0);
          }
          ::_exit(0);
        }
        const bool good = until_one_fails(member, shared.it.rounds) == PACELINE_COMM_EPEER &&
                          names(member, 1, "rank 1");
        shared.it.ended.fetch_add(1);
        return good;
      });
  CHECK_EQ(world.finish(), 0);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(40));
}
