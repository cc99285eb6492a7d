// SPDX-License-Identifier: Apache-2.0
// Ranks are killed, stopped, slowed or cut off at random points of random calls. Every survivor
// names one of them in time, and nothing is left behind. A seed decides what happens.
// PACELINE_TEST_CHAOS=N uses N times as many seeds; the default is few, because each takes seconds.
#include <sched.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <sstream>

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

using Dice = std::mt19937;

const std::string kMixed =
    "chunk=65536 choice=0:tree,512:doubling,8192:hierarchical/16384,400000:flat";

uint32_t draws() {
  const char* const asked = std::getenv("PACELINE_TEST_CHAOS");
  return asked == nullptr ? 1 : static_cast<uint32_t>(std::atoi(asked));
}

bool sums(Member& member, uint64_t count) {
  std::vector<int32_t> data(count, static_cast<int32_t>(member.rank) + 1);
  if (paceline_comm_all_reduce(member.comm, data.data(), count, PACELINE_COMM_I32) != PACELINE_OK)
    return false;
  return data.back() == static_cast<int32_t>(member.ranks * (member.ranks + 1) / 2);
}

bool swaps_pieces(Member& member, uint64_t count) {
  const std::vector<float> in(count * member.ranks, static_cast<float>(member.rank));
  std::vector<float> out(in.size());
  if (paceline_comm_all_to_all(member.comm, in.data(), out.data(), count, PACELINE_COMM_F32) !=
      PACELINE_OK)
    return false;
  return out.front() == 0.0F && out.back() == static_cast<float>(member.ranks - 1);
}

bool hears_root(Member& member, uint64_t count, uint32_t root) {
  std::vector<int64_t> data(count, member.rank);
  return paceline_comm_broadcast(member.comm, data.data(), count, PACELINE_COMM_I64, root) ==
             PACELINE_OK &&
         data.back() == root;
}

bool sums_meanwhile(Member& member, uint64_t count) {
  std::vector<float> data(count, 1.0F);
  uint64_t ticket = 0;
  return paceline_comm_all_reduce_start(member.comm, data.data(), count, PACELINE_COMM_F32,
                                        &ticket) == PACELINE_OK &&
         paceline_comm_wait(member.comm, ticket) == PACELINE_OK &&
         data.back() == static_cast<float>(member.ranks);
}

// Makes the next call, which is the same on all ranks because they draw from the same seed.
bool does_something(Member& member, Dice& random) {
  constexpr std::array<uint64_t, 5> kSizes{1, 100, 3000, 60'000, 200'000};
  const uint64_t size = kSizes[random() % kSizes.size()];
  switch (random() % 5) {
    case 0: return swaps_pieces(member, size);
    case 1: return hears_root(member, size, random() % member.ranks);
    case 2: return sums_meanwhile(member, size);
    default: return sums(member, size);
  }
}

bool well(bool good, const std::string& what) {
  if (!good) std::cerr << "failed: " << what << "\n";
  return good;
}

// Makes calls until one fails. Returns whether the error names one of `to_blame`, and came before
// the call's time was over.
bool goes_on_until_it_names(Member& member, uint32_t seed, const std::set<int32_t>& to_blame,
                            SharedFlag& rounds) {
  Dice random(seed);
  while (does_something(member, random)) rounds.value.fetch_add(1);
  int32_t named = -1;
  const std::string why = member.why(&named);
  const bool again = paceline_comm_barrier(member.comm) == PACELINE_COMM_EPEER;
  return well(again && to_blame.contains(named) && why.find("timeout_ms") == std::string::npos,
              "seed " + std::to_string(seed) + ", rank " + std::to_string(member.rank) + " named " +
                  std::to_string(named) + ": " + why);
}

std::size_t shared_names() {
  const std::filesystem::path folder = "/dev/shm";
  std::error_code none;
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    count += entry.path().filename().string().starts_with("paceline-comm") ? 1 : 0;
  return count;
}

void wait_for(SharedFlag& rounds, uint32_t count) {
  while (rounds.value.load() < count) ::usleep(500);
}

void strikes(uint32_t seed, int signal) {
  Dice random(seed);
  const std::vector<std::vector<int>> shapes{{0, 0, 1, 1}, {0, 1, 1, 0, 1}, {0, 0, 0}};
  // Long enough that pauses of a busy machine do not look like a lost rank.
  const Shape shape{.hosts = shapes[random() % shapes.size()],
                    .plan = kMixed,
                    .heartbeat_timeout_ms = signal == SIGSTOP ? 4000 : 20'000};
  const auto ranks = static_cast<uint32_t>(shape.hosts.size());
  const uint32_t victim = random() % ranks;
  const uint32_t after = ranks * (1 + random() % 30);
  std::vector<std::string> listeners;
  {
    SharedFlag rounds;
    World world;
    world.start(shape, [&](Member& member) {
      return goes_on_until_it_names(member, seed, {static_cast<int32_t>(victim)}, rounds);
    });
    wait_for(rounds, after);
    ::usleep(random() % 3000);
    ::kill(world.pid(victim), signal);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      int status = 0;
      if (rank != victim) CHECK(::waitpid(world.pid(rank), &status, 0) > 0 && status == 0);
      std::array<char, 1024> info{};
      uint64_t size = 0;
      CHECK_EQ(SharedStore::get(&world.store(), ("world/" + std::to_string(rank)).c_str(),
                                info.data(), info.size() - 1, &size, 1000),
               0);
      listeners.push_back(value_of(info.data(), "listener"));
      CHECK(!listeners.back().empty());
    }
  }
  // The victim has ended too, so no name may be left.
  for (const std::string& listener : listeners) CHECK_EQ(mentions("/proc/net/unix", listener), 0U);
  CHECK_EQ(shared_names(), 0U);
}

bool runs(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;
}

// Two network namespaces stand for hosts, with cables between them. These are each cable's
// addresses on both sides.
constexpr std::array<std::array<const char*, 2>, 2> kCables{
    {{"192.0.2.1", "192.0.2.2"}, {"198.51.100.1", "198.51.100.2"}}};

std::string addresses_of(std::size_t side, std::size_t cables) {
  std::string text;
  for (std::size_t cable = 0; cable < cables; ++cable)
    text += (cable > 0 ? "," : "") + std::string(kCables[cable][side]);
  return text;
}

std::string device_of(std::size_t side, std::size_t cable) {
  return "side" + std::to_string(side) + "cable" + std::to_string(cable);
}

bool brings_up(std::size_t side, std::size_t cables) {
  bool good = runs("ip link set lo up");
  for (std::size_t cable = 0; cable < cables; ++cable)
    good = runs("ip addr add " + std::string(kCables[cable][side]) + "/24 dev " +
                device_of(side, cable) + " && ip link set " + device_of(side, cable) + " up") &&
           good;
  return good;
}

constexpr int kNoNetworks = 77;  // this machine lets the test make none

// Runs `body` on ranks 0 and 1 of the near side and 2 and 3 of the far side, and `meanwhile` on the
// near side. Returns 0 if all succeed.
int across_cables(std::size_t cables, const std::string& plan,
                  const std::function<bool(Member&)>& body,
                  const std::function<bool()>& meanwhile) {
  SharedFlag settled;
  SharedStore store;
  const Shape shape{.hosts = {0, 0, 1, 1},
                    .plan = plan,
                    .heartbeat_timeout_ms = 4000,
                    .addresses = {addresses_of(0, cables), addresses_of(1, cables)}};
  const auto rank_of = [&](uint32_t rank) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    Member member = join(store, shape, rank);
    const bool good = well(member.code == PACELINE_OK, member.error) && body(member);
    paceline_comm_destroy(member.comm);
    ::_exit(good ? 0 : 1);
  };
  const auto all_well = [](const std::vector<pid_t>& children) {
    bool good = true;
    for (const pid_t child : children) {
      int status = 0;
      good = ::waitpid(child, &status, 0) == child && status == 0 && good;
    }
    return good;
  };
  if (::unshare(::geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWNET | CLONE_NEWUSER) != 0)
    return kNoNetworks;
  const pid_t inter_node = ::fork();
  if (inter_node == 0) {
    settled.value.store(::unshare(CLONE_NEWNET) == 0 ? 1 : 9);
    while (settled.value.load() == 1) ::usleep(500);
    if (settled.value.load() == 9) ::_exit(kNoNetworks);
    const bool up = brings_up(1, cables);
    settled.value.store(up ? 3 : 9);
    ::_exit(up && all_well({rank_of(2), rank_of(3)}) ? 0 : 1);
  }
  while (settled.value.load() == 0) ::usleep(500);
  bool made = settled.value.load() == 1;
  for (std::size_t cable = 0; cable < cables; ++cable)
    made = made && runs("ip link add " + device_of(0, cable) + " type veth peer name " +
                        device_of(1, cable) + " netns " + std::to_string(inter_node));
  made = made && brings_up(0, cables);
  settled.value.store(made ? 2 : 9);
  while (settled.value.load() == 2) ::usleep(500);
  if (settled.value.load() == 9) {
    ::waitpid(inter_node, nullptr, 0);
    return kNoNetworks;
  }
  const std::vector<pid_t> near{rank_of(0), rank_of(1)};
  const bool done = meanwhile();
  const bool here = all_well(near);
  return all_well({inter_node}) && here && done ? 0 : 1;
}

// Runs `work` in a process of its own, whose networks end with it.
int apart(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work());
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child && WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoNetworks) std::cerr << "left out: no network namespaces here\n";
  return WEXITSTATUS(status);
}

// Pulls the only cable. All survivors must name a rank of the other side.
int pulls_the_cable(uint32_t seed) {
  SharedFlag rounds;
  const auto body = [&](Member& member) {
    const std::set<int32_t> others =
        member.rank < 2 ? std::set<int32_t>{2, 3} : std::set<int32_t>{0, 1};
    return goes_on_until_it_names(member, seed, others, rounds);
  };
  return across_cables(1, kMixed, body, [&] {
    wait_for(rounds, 40 + seed % 40);
    return runs("ip link set " + device_of(0, 0) + " down");
  });
}

// Pulls the second of two cables. Heartbeats still arrive through the first. The error must tell
// the address that was cut off.
int pulls_one_of_two_cables() {
  SharedFlag rounds;
  auto pulled = std::chrono::steady_clock::now();
  const auto body = [&](Member& member) {
    std::vector<float> data(500'000, 1.0F);
    while (paceline_comm_all_reduce(member.comm, data.data(), data.size(), PACELINE_COMM_F32) ==
           PACELINE_OK)
      rounds.value.fetch_add(1);
    const std::string why = member.why();
    return well(why.find(" broke: ") != std::string::npos &&
                    why.find("(from 198.51.100.") != std::string::npos,
                "rank " + std::to_string(member.rank) + ": " + why);
  };
  const int code = across_cables(2, "", body, [&] {
    wait_for(rounds, 40);
    pulled = std::chrono::steady_clock::now();
    return runs("ip link set " + device_of(0, 1) + " down");
  });
  if (code != 0) return code;
  // Keepalive needs twice the heartbeat timeout, and as long again the wait for the peer's own
  // report. A call's time is 50 seconds.
  const bool soon = std::chrono::steady_clock::now() - pulled < std::chrono::seconds(25);
  return well(soon, "the loss was told too late") ? 0 : 1;
}

uint64_t sent_through(const std::string& device) {
  std::ifstream lines("/proc/self/net/dev");
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    words >> name;
    for (int field = 0; field < 9; ++field) words >> value;
    if (name == device + ":") return value;
  }
  return 0;
}

// Checks that a host sends what the bound says, up to 6 % more, and half of it over each of two
// cables.
int fills_two_cables(const std::string& plan, double bound) {
  constexpr uint64_t kCount = 1'000'000;
  constexpr int kTimes = 8;
  SharedFlag rounds;
  const auto body = [&](Member& member) {
    bool good = true;
    for (int i = 0; i < kTimes; ++i) good = sums(member, kCount) && good;
    rounds.value.fetch_add(1);
    wait_for(rounds, 5);  // until the bytes have been counted
    return good;
  };
  return across_cables(2, plan, body, [&] {
    wait_for(rounds, 4);
    const auto first = static_cast<double>(sent_through(device_of(0, 0)));
    const auto second = static_cast<double>(sent_through(device_of(0, 1)));
    rounds.value.fetch_add(1);
    const double wanted = bound * kTimes * kCount * sizeof(int32_t);
    return well(first + second > wanted && first + second < 1.06 * wanted &&
                    std::abs(first - second) < 0.1 * wanted,
                plan + ": sent " + std::to_string(first) + " and " + std::to_string(second) +
                    " of " + std::to_string(wanted));
  });
}

}  // namespace

CASE(comm_chaos_killed_ranks_are_named_at_any_point) {
  for (uint32_t seed = 1; seed <= 5 * draws(); ++seed) strikes(seed, SIGKILL);
}

CASE(comm_chaos_stopped_ranks_are_named_at_any_point) {
  for (uint32_t seed = 1; seed <= draws(); ++seed) strikes(100 + seed, SIGSTOP);
}

CASE(comm_chaos_slow_ranks_are_waited_for) {
  const auto body = [](Member& member) {
    Dice random(7);
    Dice own(member.rank);
    for (int round = 0; round < 40; ++round) {
      if (own() % 20 == 0) ::usleep(30'000);
      if (!does_something(member, random)) return false;
    }
    return true;
  };
  CHECK_EQ(World::run({.hosts = {0, 1, 1, 0, 1}, .plan = kMixed}, body), 0);
}

CASE(comm_chaos_ranks_that_are_cut_off_are_named) {
  for (uint32_t seed = 1; seed <= draws(); ++seed) {
    const int code = apart([&] { return pulls_the_cable(seed); });
    if (code == kNoNetworks) return;
    CHECK_EQ(code, 0);
  }
}

CASE(comm_chaos_ranks_that_lose_one_of_two_devices_are_named) {
  const int code = apart(pulls_one_of_two_cables);
  if (code != kNoNetworks) CHECK_EQ(code, 0);
}

CASE(comm_flows_fill_two_cables_alike) {
  // A ring over all ranks sends 2(n-1)/n of the array from each host, one over hosts 2(N-1)/N.
  for (const auto& [plan, bound] :
       {std::pair("algorithm=flat", 1.5), std::pair("algorithm=hierarchical flows=2", 1.0)}) {
    const int code = apart([&] { return fills_two_cables(plan, bound); });
    if (code == kNoNetworks) return;
    CHECK_EQ(code, 0);
  }
}
