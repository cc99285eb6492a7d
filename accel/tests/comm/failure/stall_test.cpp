// SPDX-License-Identifier: Apache-2.0
// A ring between hosts stalls in the middle of an all-reduce, because one rank stops or its calling
// thread hangs. When the call's time is over, all ranks name that rank. The heartbeat timeout is
// longer than the call's time, so only what heartbeats report about waits can decide.
#include <sys/mman.h>

#include <algorithm>
#include <csignal>

#include "check.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm_test::Member;
using paceline::comm_test::Shape;
using paceline::comm_test::SharedFlag;
using paceline::comm_test::World;

const Shape kTwoHosts{.hosts = {0, 0, 0, 1, 1, 1},
                      .plan = "algorithm=hierarchical chunk=65536",
                      .heartbeat_timeout_ms = 10'000,
                      .timeout_ms = 7000};
constexpr std::size_t kFloats = 2'000'000;
constexpr uint32_t kRounds = 30;  // of all ranks together, before one of them stalls

enum class Stall : std::uint8_t { kStopped, kHung };

void hang(int /*signal*/) {
  for (;;) ::pause();
}

// From now on the thread that copies the middle of `data` hangs, as at a page that never arrives.
// The rank's other threads go on, and so do its heartbeats.
void hang_at_the_middle_of(float* data) {
  std::signal(SIGSEGV, hang);
  const auto page = static_cast<std::size_t>(::getpagesize());
  ::mprotect(reinterpret_cast<std::byte*>(data) + kFloats * sizeof(float) / 2 / page * page, page,
             PROT_NONE);
}

bool sums_until_it_names(const Member& member, uint32_t victim, Stall stall, SharedFlag& rounds) {
  auto* const data =
      static_cast<float*>(::mmap(nullptr, kFloats * sizeof(float), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const bool hangs = stall == Stall::kHung && member.rank == victim;
  do {
    if (rounds.value.fetch_add(1) >= kRounds && hangs) hang_at_the_middle_of(data);
  } while (paceline_comm_all_reduce(member.comm, data, kFloats, PACELINE_COMM_F32) == PACELINE_OK);
  int32_t named = -1;
  const std::string why = member.why(&named);
  const bool good = named == static_cast<int32_t>(victim) &&
                    why.find("has not done its part of all_reduce") != std::string::npos;
  if (!good)
    std::cerr << "rank " << member.rank << " names " << named << " for " << victim << ": " << why
              << "\n";
  return good;
}

// Returns how many survivors do not name the victim.
int not_naming(uint32_t victim, Stall stall) {
  World world;
  SharedFlag rounds;
  world.start(kTwoHosts, [&](const Member& member) {
    return sums_until_it_names(member, victim, stall, rounds);
  });
  while (rounds.value.load() < kRounds) ::usleep(1000);
  if (stall == Stall::kStopped) ::kill(world.pid(victim), SIGSTOP);
  int bad = 0;
  for (uint32_t rank = 0; rank < kTwoHosts.hosts.size(); ++rank) {
    int status = 0;
    if (rank != victim && (::waitpid(world.pid(rank), &status, 0) < 0 || status != 0)) ++bad;
  }
  return bad;
}

}  // namespace

CASE(comm_a_rank_that_stops_in_a_ring_between_hosts_is_named_by_all) {
  for (const uint32_t victim : {1, 3}) CHECK_EQ(not_naming(victim, Stall::kStopped), 0);
}

CASE(comm_a_rank_that_hangs_in_a_ring_between_hosts_is_named_by_all) {
  for (const uint32_t victim : {1, 3}) CHECK_EQ(not_naming(victim, Stall::kHung), 0);
}
