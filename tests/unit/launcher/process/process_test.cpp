// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/subprocess/line_splitter.hpp"
#include "launcher/process/cgroup.hpp"
#include "launcher/process/cpu_binding.hpp"
#include "launcher/process/failure_file.hpp"
#include "launcher/process/processor_time.hpp"
#include "launcher/process/python_stack.hpp"
#include "launcher/process/rank_set.hpp"
#include "launcher/process/thread_states.hpp"
#include "tests/unit/launcher/program.hpp"

namespace paceline::process {
namespace {

namespace fs = std::filesystem;

TEST(LineSplitter, PrefixesWholeLinesHoweverTheyArrive) {
  LineSplitter splitter("[3] ");
  EXPECT_EQ(splitter.push("a"), "");
  EXPECT_EQ(splitter.push("b\n\nc"), "[3] ab\n[3] \n");
  EXPECT_EQ(splitter.finish(), "[3] c\n");
  EXPECT_EQ(splitter.finish(), "");
  EXPECT_EQ(splitter.last_lines(), (std::vector<std::string>{"ab", "c"}));
}

TEST(LineSplitter, IsBoundedWhateverComes) {
  LineSplitter splitter("");
  std::string out;
  for (int i = 0; i < 100; ++i) out += splitter.push(std::string(1000, 'x'));
  out += splitter.finish();
  EXPECT_EQ(std::count(out.begin(), out.end(), 'x'), 100'000);
  EXPECT_GE(std::count(out.begin(), out.end(), '\n'), 6);
  for (int i = 0; i < 100; ++i) splitter.push("line " + std::to_string(i) + "\n");
  EXPECT_EQ(splitter.last_lines().size(), 20U);
  EXPECT_EQ(splitter.last_lines().back(), "line 99");
  splitter.push(std::string(5000, 'y') + "\n");
  EXPECT_EQ(splitter.last_lines().back().size(), 400U);
}

TEST(LineSplitter, AProgressBarIsRememberedByItsLastState) {
  LineSplitter splitter("");
  EXPECT_EQ(splitter.push("10%\r50%\r100%\r\n"), "10%\r50%\r100%\r\n");
  EXPECT_EQ(splitter.last_lines().back(), "100%");
}

struct RootTest : ::testing::Test {
  RootTest() { fs::remove_all(root); }
  ~RootTest() override { fs::remove_all(root); }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  const fs::path root = fs::temp_directory_path() / ("paceline-root-" + std::to_string(::getpid()));
};

TEST_F(RootTest, ReadsWhatARanksPythonSaysOfItsException) {
  const SteadyTime now{std::chrono::seconds(100)};
  put("own", "99000000000 own 7\n");
  put("peer", "101000000000 peer 8\n");
  const auto own = read_failure_file(root / "own", now);
  ASSERT_TRUE(own.has_value());
  EXPECT_EQ(own->cause, rendezvous::Cause::kOwn);
  EXPECT_EQ(now - own->at, std::chrono::seconds(1));
  EXPECT_EQ(own->pid, 7);
  const auto peer = read_failure_file(root / "peer", now);
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->cause, rendezvous::Cause::kPeer);
  EXPECT_EQ(peer->at, now) << "nothing has happened in the future";
}

TEST_F(RootTest, OfWhatElseAProgramPutsThereNothingIsRead) {
  const SteadyTime now{std::chrono::seconds(100)};
  int number = 0;
  for (const char* text :
       {"", "own 7\n", "-5 own 7\n", "5 own 7", "5 mine 7\n", "5  own 7\n", "5 own 7\n6 peer 7\n",
        "99999999999999999999 own 7\n", "5 own\n", "5 own \n", "5 own -7\n", "5 own 0\n",
        "5 own 99999999999\n", "5 own 7 8\n"}) {
    const std::string name = std::to_string(number++);
    put(name, text);
    EXPECT_FALSE(read_failure_file(root / name, now).has_value()) << text;
  }
  EXPECT_FALSE(read_failure_file(root / "missing", now).has_value());
  EXPECT_FALSE(read_failure_file("", now).has_value());
  put("plain", "5 own 7\n");
  ASSERT_TRUE(read_failure_file(root / "plain", now).has_value());
  fs::create_symlink(root / "plain", root / "link");
  EXPECT_FALSE(read_failure_file(root / "link", now).has_value());
  ASSERT_EQ(::mkfifo((root / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(read_failure_file(root / "pipe", now).has_value());
}

TEST_F(RootTest, KnowsWhetherAProcessRunsInARank) {
  put("proc/20/stat", "20 (sh) S 1 20 20 0\n");
  put("proc/21/stat", "21 (python3 :) R 5) S 20 20 20 0\n");
  put("proc/22/stat", "22 (python3) R 21 20 20 0\n");
  put("proc/23/stat", "23 (python3) Z 20 20 20 0\n");
  put("proc/1/stat", "1 (launcher) S 0 1 1 0\n");
  for (const pid_t pid : {20, 21, 22}) EXPECT_TRUE(runs_in(root, pid, 20)) << pid;
  EXPECT_TRUE(runs_in(root, 30, 30)) << "the rank itself, which nobody has waited for";
  EXPECT_FALSE(runs_in(root, 23, 20)) << "a zombie";
  EXPECT_FALSE(runs_in(root, 25, 20)) << "gone";
  EXPECT_FALSE(runs_in(root, 20, 21)) << "its parent";
  EXPECT_FALSE(runs_in(root, 1, 20)) << "no process of any rank";
}

TEST_F(RootTest, ReadsOomKillsOfCgroupV2) {
  put("proc/self/cgroup", "0::/kubepods/pod1/c1\n");
  put("sys/fs/cgroup/kubepods/pod1/c1/memory.events",
      "low 0\nhigh 3\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n");
  put("sys/fs/cgroup/memory.events", "oom_kill 99\n");
  EXPECT_EQ(oom_kills(root), 2U);
}

TEST_F(RootTest, ReadsOomKillsOfCgroupV1) {
  put("proc/self/cgroup", "11:cpu,cpuacct:/x\n7:memory:/docker/abc\n1:name=systemd:/\n");
  put("sys/fs/cgroup/memory/docker/abc/memory.oom_control",
      "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(oom_kills(root), 5U);
}

TEST_F(RootTest, ReadsWhatHoldsARankUp) {
  put("proc/7/schedstat", "5000000000 2500000000 99\n");
  put("proc/stat", "cpu  1 2 3 4 5 6 7 400 0 0\ncpu0 1\ncpu1 1\nintr 5\n");
  put("proc/self/cgroup", "0::/pod\n");
  put("sys/fs/cgroup/pod/cpu.stat", "usage_usec 9\nthrottled_usec 1500000\n");
  std::vector<telemetry::RankSummary> ranks(2);
  ranks[0].rank = 3;
  add_lost_processor(root, {{3, 7U}}, ranks);
  ASSERT_TRUE(ranks[0].lost_processor);
  EXPECT_EQ(ranks[0].lost_processor->waited, 2.5);
  EXPECT_EQ(ranks[0].lost_processor->throttled, 1.5);
  EXPECT_EQ(ranks[0].lost_processor->stolen, 200.0 / static_cast<double>(::sysconf(_SC_CLK_TCK)));
  EXPECT_FALSE(ranks[1].lost_processor) << "its process is unknown";
  fs::remove_all(root);
  put("proc/self/cgroup", "5:cpu,cpuacct:/x\n");
  put("sys/fs/cgroup/cpu/x/cpu.stat", "nr_periods 1\nthrottled_time 3000000000\n");
  EXPECT_EQ(throttled_seconds(root), 3.0);
}

TEST_F(RootTest, TellsWhereThreadsWait) {
  const auto thread = [&](const std::string& id, const std::string& name, char state,
                          const std::string& call, const std::string& at) {
    const std::string task = "proc/7/task/" + id + "/";
    put(task + "comm", name + "\n");
    put(task + "stat", id + " (odd ) name) " + state + " 1 1\n");
    put(task + "syscall", call + "\n");
    put(task + "wchan", at);
  };
  thread("7", "python", 'S', std::to_string(SYS_futex) + " 0x1 0x2", "futex_wait_queue");
  thread("8", "gloo", 'S', std::to_string(SYS_recvfrom) + " 0x1", "0");
  thread("9", "gloo", 'S', std::to_string(SYS_recvfrom) + " 0x9", "0");
  thread("10", "io", 'D', "-1 0x0", "nfs_wait");
  thread("11", "busy", 'R', "running", "0");
  const std::string text = thread_states(root, 7, 8);
  for (const char* line :
       {"python: waits, in futex (a lock or a condition), kernel function futex_wait_queue\n",
        "gloo: waits, in recvfrom (network) (2 threads)\n", "io: waits in the kernel and cannot",
        "kernel function nfs_wait\n", "busy: runs\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(std::ranges::count(thread_states(root, 7, 2), '\n'), 2);
  EXPECT_EQ(thread_states(root, 99, 8), "");
  thread("7", "\xff\x1b[31m" + std::string(99, 'n'), 'R', "running", "0");
  EXPECT_NE(thread_states(root, 7, 8).find("  ??[31mnnnnnnnnn: runs\n"), std::string::npos)
      << thread_states(root, 7, 8);
}

TEST_F(RootTest, AProcessThatDoesNotCatchTheSignalIsNotSignalled) {
  // This process, which has the file: the signal would end it.
  const UniqueFd file(::memfd_create("paceline-stacks", MFD_CLOEXEC));
  ASSERT_TRUE(file.valid());
  EXPECT_EQ(process_to_ask("/", ::getpid()), 0);
  const auto refused = ask_for_stacks("/", ::getpid());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("does not catch"), std::string::npos);
  EXPECT_FALSE(ask_for_stacks(root, 7)) << "there is no such process";
  ASSERT_EQ(::write(file.get(), "abc\n\xff\n", 6), 6);
  EXPECT_EQ(read_stacks(file, 100), "abc\n?\n");
  EXPECT_EQ(read_stacks(file, 2), "?\n") << "the end, where the main thread is";
}

TEST_F(RootTest, ARankWhoseShellSaysThatItsProgramWasKilledMayHaveRunOutOfMemory) {
  for (const auto& [code, oom] :
       std::map<std::string, bool>{{"137", true}, {"139", false}, {"1", false}}) {
    put("sys/fs/cgroup/memory.events", "oom_kill 1\n");
    LogPump pump;
    const SystemClock clock;
    std::optional<rendezvous::Failure> failure;
    RankSet ranks(
        pump, clock, std::chrono::seconds(1), root,
        {[&](int, const std::optional<rendezvous::Failure>& how) { failure = how; }, [] {}});
    RankSpec spec;
    spec.request.argv = {
        "sh", "-c",
        "while [ ! -e " + (root / "full").string() + " ]; do sleep 0.01; done; exit " + code};
    spec.request.environment = {"PATH=/usr/bin:/bin"};
    ranks.start({spec});
    put("sys/fs/cgroup/memory.events", "oom_kill 2\n");
    put("full", "");
    ASSERT_TRUE(test::eventually([&] {
      ranks.on_child();
      return failure.has_value();
    })) << code;
    EXPECT_EQ(failure->oom, oom) << code;
    EXPECT_EQ(failure->exit_code, std::stoi(code));
    EXPECT_EQ(failure->cause, code == "1" ? rendezvous::Cause::kOwn : rendezvous::Cause::kKilled)
        << code;
    fs::remove(root / "full");
  }
}

TEST_F(RootTest, InAContainerTheMountShowsItsOwnRoot) {
  put("proc/self/cgroup", "0::/../../kubelet/not/visible\n");
  put("sys/fs/cgroup/memory.events", "oom_kill 1\n");
  EXPECT_EQ(oom_kills(root), 1U);
  fs::remove_all(root);
  put("proc/self/cgroup", "garbage\n");
  EXPECT_EQ(oom_kills(root), std::nullopt);
}

TEST_F(RootTest, ReadsNumaNodes) {
  put("sys/devices/system/node/node1/cpulist", "4-5,7\n");
  put("sys/devices/system/node/node0/cpulist", "0-3\n");
  put("sys/devices/system/node/online", "0-1\n");
  EXPECT_EQ(numa_nodes(root), (std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 7}}));
}

TEST(Binding, ParsesListsAndSkipsNonsense) {
  EXPECT_EQ(parse_cpu_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_EQ(parse_cpu_list(""), std::vector<int>{});
  EXPECT_EQ(parse_cpu_list("x,3,4-y,9-7"), std::vector<int>{3});
}

TEST(Binding, SpreadsRanksOverNodesWithinWhatIsAllowed) {
  const std::vector<std::vector<int>> nodes{{0, 1, 2, 3}, {4, 5, 6, 7}};
  const auto four = plan_binding({0, 1, 2, 3, 4, 5}, nodes, 4);
  EXPECT_EQ(four[0], (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(four[1], four[0]);
  EXPECT_EQ(four[2], (std::vector<int>{4, 5}));
  EXPECT_EQ(four[3], four[2]);
  EXPECT_TRUE(plan_binding({0, 1}, nodes, 2)[0].empty()) << "one node is left: nothing to choose";
  EXPECT_TRUE(plan_binding({0, 4}, nodes, 1)[0].empty()) << "one rank may want both";
}

}  // namespace
}  // namespace paceline::process
