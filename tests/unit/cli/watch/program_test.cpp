// SPDX-License-Identifier: Apache-2.0
// The real `paceline top`, `explain` and `report`, in a pseudo-terminal and without one, before an
// API server in memory, with a kubectl that is a shell script.
#include "tests/unit/launcher/program.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "common/base/clock.hpp"
#include "common/kube/fake/cluster.hpp"
#include "common/kube/fake/server.hpp"
#include "tests/unit/cli/watch/jobs.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::slurp;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kProgram = PACELINE_BINARY_DIR "/bin/paceline";
constexpr const char* kRestored = "\x1b[?7h\x1b[?25h\x1b[?1049l";

struct WatchPrograms : testing::Test {
  WatchPrograms() : api(kube::make_fake_api(cluster)), server(*kube::FakeServer::start(cluster)) {
    fs::remove_all(dir);
    fs::create_directories(dir / "bin");
    std::ofstream(dir / "kubeconfig")
        << "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        << "contexts: [{name: c, context: {cluster: c, namespace: ml}}]\n"
        << "clusters: [{name: c, cluster: {server: \"http://127.0.0.1:" << server->port()
        << "\"}}]\n";
    put("gpt", cli::test::running_status());
    put("big", cli::test::queued_status());
  }
  ~WatchPrograms() override {
    if (child > 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    if (terminal >= 0) ::close(terminal);
    fs::remove_all(dir);
  }

  void put(const std::string& name, const json& status) {
    json job = cli::test::training_job("ml", name, status);
    job["metadata"].erase("resourceVersion");
    job["metadata"].erase("uid");
    job.erase("status");
    ASSERT_TRUE(api->create(kube::kTrainingJobs, "ml", job.dump()));
    poke(name, status);
  }
  void poke(const std::string& name, const json& status) {
    ASSERT_TRUE(cluster.poke(kube::kTrainingJobs, "ml", name, json{{"status", status}}.dump()));
  }
  void put_pod() {
    const json pod = json::parse(R"({"apiVersion":"v1","kind":"Pod","metadata":{
      "name":"gpt-worker-0-0","labels":{"paceline.dev/job":"gpt","paceline.dev/node-rank":"0"}},
      "spec":{"containers":[{"name":"sidecar","image":"x"},{"name":"train","image":"x",
        "command":["/opt/paceline/bin/paceline-launcher","run","--","python3"]}]}})");
    ASSERT_TRUE(api->create(kube::kPods, "ml", pod.dump()));
    ASSERT_TRUE(
        cluster.poke(kube::kPods, "ml", "gpt-worker-0-0", R"({"status":{"phase":"Running"}})"));
  }
  void put_kubectl(const std::string& script) {
    // It is asked again and again, so the file is replaced at once.
    const std::string asked = (dir / "asked").string();
    std::ofstream(dir / "bin/kubectl")
        << "#!/bin/sh\necho \"$*\" > " << asked << ".new; mv " << asked << ".new " << asked << "\n"
        << script << "\n";
    fs::permissions(dir / "bin/kubectl", fs::perms::owner_all);
    std::ofstream(dir / "summary.json") << cli::test::summary().dump();
  }

  /// What a program is started with. It is made before the fork: the server's threads may hold
  /// locks then, for example the allocator's, that nobody releases in the child.
  struct Start {
    [[noreturn]] void become() const {
      ::execve(kProgram, argv.data(), envp.data());
      ::_exit(126);
    }

    std::vector<std::string> words;
    std::vector<std::string> variables;
    std::vector<char*> argv;  // point into the above
    std::vector<char*> envp;
  };
  Start prepare(const std::vector<std::string>& arguments) const {
    std::map<std::string, std::string> variables{
        {"KUBECONFIG", (dir / "kubeconfig").string()},
        {"PATH", (dir / "bin").string() + ":/usr/bin:/bin"},
        {"XDG_CACHE_HOME", (dir / "cache").string()},
        {"TMPDIR", dir.string()},
        {"TERM", "xterm-256color"}};
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text(*entry);
      const std::size_t end = text.find('=');
      const std::string name = text.substr(0, end);
      if (name != "NO_COLOR" && name != "KUBERNETES_SERVICE_HOST")
        variables.emplace(name, text.substr(end + 1));
    }
    Start start;
    start.words = {"paceline"};
    start.words.insert(start.words.end(), arguments.begin(), arguments.end());
    for (const auto& [name, value] : variables) start.variables.push_back(name + "=" + value);
    for (std::string& word : start.words) start.argv.push_back(word.data());
    for (std::string& variable : start.variables) start.envp.push_back(variable.data());
    start.argv.push_back(nullptr);
    start.envp.push_back(nullptr);
    return start;
  }

  struct End {
    int code = -1;
    std::string out;
    std::string err;
  };
  End run(const std::vector<std::string>& arguments) {
    const Start start = prepare(arguments);
    const fs::path out = dir / "out";
    const fs::path err = dir / "err";
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 1);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 2);
      start.become();
    }
    const auto code = test::ending(pid);
    return {code.value_or(-1), slurp(out), slurp(err)};
  }

  void open_terminal(const std::vector<std::string>& arguments) {
    const Start start = prepare(arguments);
    winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    child = ::forkpty(&terminal, nullptr, nullptr, &size);
    if (child == 0) start.become();
    ::fcntl(terminal, F_SETFL, O_NONBLOCK);
  }
  /// Reads what the program has drawn until it contains the text.
  bool shows(const std::string& text) {
    return test::eventually([&] {
      std::array<char, 65536> buffer{};
      for (ssize_t got = 0; (got = ::read(terminal, buffer.data(), buffer.size())) > 0;)
        drawn.append(buffer.data(), static_cast<std::size_t>(got));
      return drawn.contains(text);
    });
  }
  void type(const std::string& keys) {
    drawn.clear();
    ASSERT_EQ(::write(terminal, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  int end_of_child() {
    const auto code = test::ending(child);
    child = 0;
    return code.value_or(-1);
  }

  const fs::path dir =
      fs::path(testing::TempDir()) / ("watch_programs-" + std::to_string(::getpid()));
  SystemClock clock;
  kube::FakeCluster cluster{clock};
  std::shared_ptr<kube::Api> api;
  std::unique_ptr<kube::FakeServer> server;
  pid_t child = 0;
  int terminal = -1;
  std::string drawn;
};

TEST_F(WatchPrograms, WithoutATerminalThereIsOneList) {
  const End end = run({"top"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("gpt       Running        4   1200 12.3ms"));
  EXPECT_THAT(end.out, HasSubstr("  waits for 8 GPUs; 2 are free\n"));
  EXPECT_THAT(end.out, Not(HasSubstr("\x1b")));
  const End as_json = run({"top", "-A", "-o", "json"});
  const json document = json::parse(as_json.out);
  EXPECT_EQ(document["jobs"][1]["training"]["breakdown"]["data_wait"], 0.23);
}

TEST_F(WatchPrograms, AServerThatIsGoneIsNamed) {
  server.reset();
  const End end = run({"top", "--once"});
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, HasSubstr("paceline top: "));
  EXPECT_THAT(end.err, HasSubstr("refused"));
}

TEST_F(WatchPrograms, AScreenFollowsTheClusterAndIsLeftAsItWas) {
  open_terminal({"top"});
  ASSERT_TRUE(shows("2 jobs, namespace ml")) << drawn;
  json status = cli::test::running_status();
  status["training"]["step"] = 4321;
  poke("gpt", status);
  EXPECT_TRUE(shows("4321")) << drawn;
  const winsize small{.ws_row = 10, .ws_col = 50, .ws_xpixel = 0, .ws_ypixel = 0};
  drawn.clear();
  ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &small), 0);
  EXPECT_TRUE(shows("\x1b[10;1H")) << "drawn again, to the last line";
  const std::uint16_t port = server->port();
  server.reset();
  EXPECT_TRUE(shows("ago: ")) << drawn;
  const winsize wide{.ws_row = 20, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  drawn.clear();
  ASSERT_EQ(::ioctl(terminal, TIOCSWINSZ, &wide), 0);
  EXPECT_TRUE(shows("4321")) << "the last view stays: " << drawn;
  drawn.clear();
  server = *kube::FakeServer::start(cluster, port);
  poke("big", cli::test::running_status());
  EXPECT_TRUE(shows("namespace ml  \x1b[0m\x1b[K")) << "no trouble is told: " << drawn;
  EXPECT_TRUE(shows("\x1b[32mRunning")) << drawn;
  type("q");
  EXPECT_TRUE(shows(kRestored)) << drawn;
  EXPECT_EQ(end_of_child(), 0);
  termios now{};
  ::tcgetattr(terminal, &now);
  EXPECT_NE(now.c_lflag & ECHO, 0U);
  EXPECT_NE(now.c_lflag & ICANON, 0U);
}

TEST_F(WatchPrograms, SignalsAndCrashesRestoreTheTerminalToo) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGABRT}) {
    drawn.clear();
    open_terminal({"top"});
    ASSERT_TRUE(shows("2 jobs, namespace ml")) << drawn;
    ::kill(child, signal);
    EXPECT_TRUE(shows(kRestored)) << signal;
    const bool crash = signal == SIGSEGV || signal == SIGABRT;
    EXPECT_EQ(end_of_child(), (crash ? 1000 : 128) + signal);
    termios now{};
    ::tcgetattr(terminal, &now);
    EXPECT_NE(now.c_lflag & ECHO, 0U) << signal;
    ::close(terminal);
  }
  terminal = -1;
}

TEST_F(WatchPrograms, RanksComeByExecInThePodOfRankZero) {
  put_pod();
  put_kubectl("cat " + (dir / "summary.json").string());
  open_terminal({"top"});
  ASSERT_TRUE(shows("2 jobs, namespace ml")) << drawn;
  type("\x1b[B\r");  // down to gpt, and into it
  EXPECT_TRUE(shows("limited by data")) << drawn;
  EXPECT_TRUE(shows("1209")) << "the step of rank 2: " << drawn;
  EXPECT_EQ(slurp(dir / "asked"),
            "--namespace=ml exec gpt-worker-0-0 --container=train -- "
            "/opt/paceline/bin/paceline-launcher summary\n");
  type("\r");
  EXPECT_TRUE(shows("node rank 0 on n1")) << drawn;
  type("q");
  EXPECT_EQ(end_of_child(), 0);
}

TEST_F(WatchPrograms, ExplainSaysWhyThereAreNoRanks) {
  End end = run({"explain", "job/gpt"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("gpt trains with 4 ranks"));
  EXPECT_THAT(end.err, HasSubstr("no pod of rank 0 runs"));
  put_pod();
  put_kubectl("echo 'Error from server (Forbidden): pods is forbidden: no' >&2; exit 1");
  end = run({"explain", "job/gpt"});
  EXPECT_EQ(end.code, 0);
  EXPECT_THAT(end.err, HasSubstr("only the job's status is shown: ranks need the right to create "
                                 "pods/exec in the namespace ml"));
  end = run({"explain", "job/nothing"});
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, HasSubstr("there is no TrainingJob nothing in the namespace ml"));
  end = run({"explain", "gpt"});
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, HasSubstr("write job/NAME"));
}

TEST_F(WatchPrograms, AReportOfAJobCanBeExplainedAgain) {
  put_pod();
  put_kubectl("cat " + (dir / "summary.json").string());
  const std::string page = (dir / "r.html").string();
  const std::string document = (dir / "r.json").string();
  EXPECT_EQ(run({"report", "job/gpt", "-o", page}).out, "wrote " + page + "\n");
  EXPECT_THAT(slurp(page), HasSubstr("rank 2: communication 30.0%"));
  EXPECT_EQ(run({"report", "job/gpt", "-o", document}).code, 0);
  EXPECT_THAT(run({"explain", document}).out, HasSubstr("loader does not act"));
  EXPECT_THAT(run({"report", "job/gpt", "-o", "r.pdf"}).err, HasSubstr(".html or .json"));
}

}  // namespace
}  // namespace paceline
