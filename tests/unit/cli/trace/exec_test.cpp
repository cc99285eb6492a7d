// SPDX-License-Identifier: Apache-2.0
// How a command reaches a running job: the words of `kubectl exec`, and the runs of this machine.
#include "cli/job/exec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/trace/command.hpp"
#include "cli/watch/document.hpp"
#include "cli/watch/local_runs.hpp"
#include "common/base/clock.hpp"
#include "common/kube/fake/cluster.hpp"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

struct ExecInRankZero : testing::Test {
  ExecInRankZero() : api(kube::make_fake_api(cluster)) {}

  void put(const char* name, const char* job, const char* node_rank, const char* phase) {
    const json pod{
        {"apiVersion", "v1"},
        {"kind", "Pod"},
        {"metadata",
         {{"name", name},
          {"namespace", "ml"},
          {"labels", {{"paceline.dev/job", job}, {"paceline.dev/node-rank", node_rank}}}}},
        {"spec",
         {{"containers",
           json::array({{{"name", "sidecar"}, {"image", "i"}, {"command", {"sh"}}},
                        {{"name", "train"},
                         {"image", "i"},
                         {"command", {"/opt/paceline/bin/paceline-launcher", "run", "--"}}}})}}}};
    ASSERT_TRUE(api->create(kube::kPods, "ml", pod.dump()));
    ASSERT_TRUE(cluster.poke(kube::kPods, "ml", name, json{{"status", {{"phase", phase}}}}.dump()));
  }

  ManualClock clock;
  kube::FakeCluster cluster{clock};
  std::shared_ptr<kube::Api> api;
};

TEST_F(ExecInRankZero, NamesTheRunningPodAndTheContainerOfTheLauncher) {
  put("old-0", "llm", "0", "Failed");
  put("llm-worker-1", "llm", "1", "Running");
  put("other-0", "other", "0", "Running");
  put("llm-worker-0", "llm", "0", "Running");
  const auto words = exec_in_rank_zero(*api, {"/k", "ml", "llm"}, {"trace", "--steps", "5"});
  ASSERT_TRUE(words) << words.error().message;
  EXPECT_THAT(*words, ElementsAre("kubectl", "--kubeconfig=/k", "--namespace=ml", "exec",
                                  "llm-worker-0", "--container=train", "--",
                                  "/opt/paceline/bin/paceline-launcher", "trace", "--steps", "5"));
}

TEST_F(ExecInRankZero, SaysThatNoPodRuns) {
  put("llm-worker-0", "llm", "0", "Pending");
  const auto words = exec_in_rank_zero(*api, {"", "ml", "llm"}, {"trace"});
  ASSERT_FALSE(words);
  EXPECT_THAT(words.error().message,
              HasSubstr("no pod of rank 0 of the job llm runs in the namespace ml"));
}

TEST_F(ExecInRankZero, ATraceLooksInTheNamespaceOfTheContext) {
  put("llm-worker-0", "llm", "0", "Pending");
  TraceOptions options;
  options.job = "job/llm";
  std::ostringstream err;
  const int code = trace_command(
      options,
      [&](const TraceOptions& asked) -> Result<ClusterWay> {
        EXPECT_EQ(asked.name_space, "");
        return ClusterWay{api, "ml"};
      },
      err);
  EXPECT_EQ(code, 2);
  EXPECT_THAT(err.str(), HasSubstr("of the job llm runs in the namespace ml"));
}

TEST_F(ExecInRankZero, ATraceSaysWhyThereIsNoCluster) {
  TraceOptions options;
  options.job = "job/llm";
  std::ostringstream err;
  const int code = trace_command(
      options,
      [](const TraceOptions&) -> Result<ClusterWay> {
        return fail(Code::kNotFound, Origin::kConfig, "no cluster is named");
      },
      err);
  EXPECT_EQ(code, 2);
  EXPECT_EQ(err.str(), "paceline trace: no cluster is named\n");
}

TEST(ReadLinesOf, PassesOnWholeLinesAndTheCode) {
  std::vector<std::string> lines;
  const auto code = read_lines_of({"/bin/sh", "-c", "printf 'a\\nb'; printf 'c\\n'; exit 3"},
                                  [&](std::string_view line) -> Status {
                                    lines.emplace_back(line);
                                    return {};
                                  });
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(*code, 3);
  EXPECT_THAT(lines, ElementsAre("a", "bc"));
}

TEST(ReadLinesOf, WhatAPodSaysDoesNotSteerTheTerminal) {
  testing::internal::CaptureStderr();
  const auto code = read_lines_of({"/bin/sh", "-c", "printf '\\033[2Jbad\\nend' >&2"},
                                  [](std::string_view) { return Status(); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "?[2Jbad\nend\n");
  EXPECT_TRUE(code);
}

TEST(ReadLinesOf, EndsTheProgramWhenALineIsRefused) {
  const auto code = read_lines_of(
      {"/bin/sh", "-c", "echo a; exec sleep 600"},
      [](std::string_view) -> Status { return fail(Code::kInvalid, Origin::kProtocol, "no"); });
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().message, "no");
  EXPECT_FALSE(read_lines_of({"/does/not/exist"}, [](std::string_view) { return Status(); }));
}

struct LocalRuns : testing::Test {
  LocalRuns() {
    std::string path = ::testing::TempDir() + "local-runs-XXXXXX";
    base = ::mkdtemp(path.data());
  }
  ~LocalRuns() override { fs::remove_all(base); }
  void put(const std::string& job) const {
    const fs::path state = base / ("paceline-" + job);
    fs::create_directory(state);
    ASSERT_TRUE(write_note(state.string(), {::getpid(),
                                            {4000, 4001},
                                            "secret",
                                            "/bin/launcher",
                                            run_document(job, 2, WallTime(), nullptr)}));
  }
  fs::path base;
};

TEST_F(LocalRuns, AreFoundByNameOrIfThereIsOne) {
  EXPECT_FALSE(find_local_run(base.string(), ""));
  put("digits");
  const auto only = find_local_run(base.string(), "");
  ASSERT_TRUE(only) << only.error().message;
  EXPECT_EQ(only->document["name"], "digits");
  EXPECT_EQ(only->launcher, "/bin/launcher");
  struct stat about{};
  ASSERT_EQ(::stat(only->path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U) << "it holds the token";
  put("words");
  const auto several = find_local_run(base.string(), "");
  ASSERT_FALSE(several);
  EXPECT_THAT(several.error().message, HasSubstr("digits (process "));
  EXPECT_EQ(find_local_run(base.string(), "words")->document["name"], "words");
  EXPECT_THAT(find_local_run(base.string(), "none").error().message, HasSubstr("of the name none"));
}

TEST_F(LocalRuns, AreThisUsersAlone) {
  put("digits");
  const fs::path file = base / "paceline-digits" / "run.json";
  fs::permissions(file, fs::perms(0666));
  EXPECT_FALSE(find_local_run(base.string(), "")) << "anyone can have written it";
  fs::permissions(file, fs::perms(0600));
  EXPECT_TRUE(find_local_run(base.string(), ""));
  fs::rename(file, base / "elsewhere.json");
  fs::create_symlink(base / "elsewhere.json", file);
  EXPECT_FALSE(find_local_run(base.string(), ""));
}

TEST_F(LocalRuns, ThatHaveEndedArePassedOver) {
  fs::create_directory(base / "paceline-dead");
  std::ofstream(base / "paceline-dead" / "run.json")
      << R"({"pid":1073741824,"launchers":["127.0.0.1:1"],"document":{"name":"dead"}})";
  fs::create_directory(base / "paceline-broken");
  std::ofstream(base / "paceline-broken" / "run.json") << "[";
  EXPECT_FALSE(find_local_run(base.string(), ""));
}

}  // namespace
}  // namespace paceline::cli
