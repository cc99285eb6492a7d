// SPDX-License-Identifier: Apache-2.0
// Shared memory between ranks of a host carries the same bits as TCP. TCP replaces it where a
// rank's system, sandbox or user forbids it.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <random>

#include "check.hpp"
#include "comm/transport/shm/memory_file.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm::make_memory_file;
using paceline::comm::Mapping;
using paceline::comm_test::join;
using paceline::comm_test::Member;
using paceline::comm_test::Shape;
using paceline::comm_test::World;

bool seen(bool good, const std::string& what) {
  if (!good) std::cerr << "failed: " << what << "\n";
  return good;
}

enum class Refused : std::uint8_t { kNothing, kMemory, kLocalSockets, kUser };

// Forbids a system call for this process, as a sandbox does.
bool refuse(Refused what) {
  if (what == Refused::kNothing) return true;
  if (what == Refused::kUser) return ::setuid(65534) == 0;
  const bool memory = what == Refused::kMemory;
  const auto deny = static_cast<__u32>(SECCOMP_RET_ERRNO | (memory ? EPERM : EACCES));
  std::array<sock_filter, 7> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
               static_cast<__u32>(memory ? SYS_memfd_create : SYS_socket), 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, static_cast<__u32>(memory ? deny : SECCOMP_RET_ALLOW)),
      BPF_STMT(BPF_RET | BPF_K, deny),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog filter{.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

std::string plan_of(const Member& member) {
  std::array<char, 1024> plan{};
  paceline_comm_plan(member.comm, 0, 0, plan.data(), plan.size());
  return plan.data();
}

std::vector<float> numbers(uint32_t seed, uint64_t count) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Returns sums over the flat ring and pieces of an all-to-all, as bytes.
std::vector<float> moved(Member& member, uint64_t count) {
  std::vector<float> sum = numbers(member.rank, count);
  std::vector<float> pieces = numbers(member.rank + 100, count * member.ranks);
  std::vector<float> swapped(pieces.size());
  bool good =
      paceline_comm_all_reduce(member.comm, sum.data(), count, PACELINE_COMM_F32) == PACELINE_OK;
  good = paceline_comm_all_to_all(member.comm, pieces.data(), swapped.data(), count,
                                  PACELINE_COMM_F32) == PACELINE_OK &&
         good;
  if (!good) return {};
  for (uint32_t peer = 0; peer < member.ranks; ++peer) {
    const auto theirs = numbers(peer + 100, count * member.ranks);
    if (std::memcmp(swapped.data() + peer * count, theirs.data() + member.rank * count,
                    count * sizeof(float)) != 0)
      return {};
  }
  sum.insert(sum.end(), swapped.begin(), swapped.end());
  return sum;
}

// Runs ranks of which one is refused memory. If the ranks then count as hosts of their own, the
// plans of all of them name that rank and the reason.
int run_refused(Refused what, uint32_t victim, const std::string& why) {
  World world;
  const Shape shape{.hosts = {0, 0, 0, 1}, .plan = ""};
  for (uint32_t rank = 0; rank < shape.hosts.size(); ++rank)
    world.spawn([&, rank] {
      if (rank == victim && !seen(refuse(what), "to refuse")) return false;
      Member member = join(world.store(), shape, rank);
      const std::string plan = plan_of(member);
      std::array<char, 64> hosts{};
      paceline_comm_shape(member.comm, hosts.data(), hosts.size());
      bool good = seen(member.code == PACELINE_OK, member.error) && !moved(member, 3001).empty();
      good = seen(std::string(hosts.data()) == "1,1,1,1", hosts.data()) && good;
      good = seen(plan.find("# rank " + std::to_string(victim)) != std::string::npos &&
                      plan.find(why) != std::string::npos,
                  plan) &&
             good;
      // The printed text is accepted as a plan.
      Member again = join(world.store(), {.hosts = shape.hosts, .plan = plan}, rank, "again");
      good = seen(again.code == PACELINE_OK && !moved(again, 10).empty(), again.error) && good;
      paceline_comm_destroy(again.comm);
      paceline_comm_destroy(member.comm);
      return good;
    });
  return world.finish();
}

}  // namespace

CASE(comm_memory_carries_the_same_bits_as_tcp) {
  // Sizes below and above a pipe's, on two hosts and on one.
  for (const auto& hosts : {std::vector<int>{0, 0, 0}, std::vector<int>{0, 0, 1, 1, 1}}) {
    const auto body = [&](Member& member) {
      const std::string order = plan_of(member).substr(plan_of(member).find("order="));
      Member other =
          join(*member.store, {.hosts = hosts, .plan = "algorithm=flat memory=tcp " + order},
               member.rank, "tcp");
      if (!seen(other.code == PACELINE_OK, other.error)) return false;
      bool good = seen(plan_of(other).find(" memory=tcp") != std::string::npos, plan_of(other));
      for (const uint64_t count : {1, 40'001, 300'007}) {
        const auto memory = moved(member, count);
        const auto tcp = moved(other, count);
        good = seen(!memory.empty() && memory.size() == tcp.size() &&
                        std::memcmp(memory.data(), tcp.data(), memory.size() * sizeof(float)) == 0,
                    "the same bits of " + std::to_string(count)) &&
               good;
      }
      paceline_comm_destroy(other.comm);
      return seen(plan_of(member).find('#') == std::string::npos, plan_of(member)) && good;
    };
    CHECK_EQ(World::run({.hosts = hosts, .plan = "algorithm=flat transport=tcp"}, body), 0);
  }
}

CASE(comm_memory_that_is_refused_is_replaced_by_tcp_and_said) {
  CHECK_EQ(run_refused(Refused::kMemory, 0, "a memory file: Operation not permitted"), 0);
  CHECK_EQ(run_refused(Refused::kLocalSockets, 0, "no local sockets"), 0);
  CHECK_EQ(run_refused(Refused::kLocalSockets, 1, "asking rank 0 for memory: Permission denied"),
           0);
  if (::geteuid() == 0)
    CHECK_EQ(run_refused(Refused::kUser, 2, "asking rank 0 for memory: Permission denied"), 0);
}

CASE(comm_memory_of_a_pair_that_is_refused_is_replaced_by_tcp_and_said) {
  const auto body = [](Member& member) {
    // All ranks have the host's memory by now, so only pairs are refused theirs.
    if (member.rank == 1 && !seen(refuse(Refused::kMemory), "to refuse")) return false;
    const bool good = !moved(member, 50'000).empty();
    const std::string plan = plan_of(member);
    const bool said = plan.find("# rank 1 sends to rank ") != std::string::npos;
    return seen(good && said == (member.rank == 1), plan) &&
           paceline_comm_barrier(member.comm) == PACELINE_OK;
  };
  CHECK_EQ(World::run({.hosts = {0, 0, 0}, .plan = ""}, body), 0);
}

CASE(comm_memory_files_keep_their_size_and_others_are_not_mapped) {
  const auto file = make_memory_file("paceline-comm-test", 8192);
  CHECK(static_cast<bool>(file) && Mapping::of(file, 8192) != nullptr);
  CHECK(::ftruncate(file.get(), 0) != 0 && errno == EPERM);
  CHECK(Mapping::of(file, 16384) == nullptr && errno == EPROTO);
  CHECK(Mapping::of(file, 4096) == nullptr && errno == EPROTO);
  // It has the right size but no seal, so it could be shrunk.
  const paceline::base::Fd loose(
      static_cast<int>(::syscall(SYS_memfd_create, "paceline-comm-test", 2U)));
  CHECK(::ftruncate(loose.get(), 8192) == 0);
  CHECK(Mapping::of(loose, 8192) == nullptr && errno == EPROTO);
}
