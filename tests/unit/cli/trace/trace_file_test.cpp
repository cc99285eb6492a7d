// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/trace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <istream>
#include <iterator>

#include "common/base/base64.hpp"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kBase = 1'764'000'000'000'000'000;

struct TraceFileTest : ::testing::Test {
  TraceFileTest() {
    std::string path = ::testing::TempDir() + "trace-file-XXXXXX";
    folder = ::mkdtemp(path.data());
  }
  ~TraceFileTest() override { fs::remove_all(folder); }

  TraceFile create(const std::string& name) const {
    return TraceFile(*GzipFile::create((folder / name).string()), [](const std::string&) {});
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string packed((std::istreambuf_iterator<char>(file)), {});
    InflatingBuffer buffer(packed);
    std::istream stream(&buffer);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::string packed(const std::string& text) const {
    auto file = *GzipFile::create((folder / "part.gz").string());
    EXPECT_TRUE(file.write(text));
    EXPECT_TRUE(file.finish());
    std::ifstream read(folder / "part.gz", std::ios::binary);
    return {std::istreambuf_iterator<char>(read), {}};
  }
  static Status take(TraceFile& trace, const json& line) { return trace.take(line.dump()); }
  static json plan() {
    return {{"type", "plan"},      {"job", "digits"}, {"startStep", 120},
            {"zeroUnixNs", kBase}, {"steps", 5},      {"lostLaunchers", json::array()}};
  }
  static json rank(int number, const std::string& problem = "") {
    return {{"type", "rank"},
            {"rank", number},
            {"node", "node-a"},
            {"problem", problem},
            {"clock", {{"offsetNs", 1000}, {"uncertaintyNs", 2'000'000}}},
            {"firstStep", problem.empty() ? 120 : 0},
            {"profilerStepZero", 119},
            {"steps", json::array({{{"step", 120}, {"startUnixNs", kBase}, {"wallNs", 5000}}})}};
  }

  fs::path folder;
};

const std::string kFile = R"({"schemaVersion": 1, "distributedInfo": {"rank": 0},
  "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 41.5, "dur": 2,
     "args": {"External id": 1}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 7, "tid": 7, "ts": 44, "dur": 2}
  ], "traceName": "x", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1764000000000000000})";

TEST_F(TraceFileTest, JoinsRecordsAndFilesOfRanks) {
  TraceFile trace = create("trace.json.gz");
  ASSERT_TRUE(take(trace, plan()));
  ASSERT_TRUE(take(trace, rank(0)));
  ASSERT_TRUE(take(trace, rank(1, "not done within 60.0 s")));
  const std::string bytes = packed(kFile);
  for (const std::string& part : {bytes.substr(0, 50), bytes.substr(50)})
    ASSERT_TRUE(take(trace, {{"type", "piece"}, {"rank", 0}, {"data", encode_base64(part)}}));
  ASSERT_TRUE(take(trace, {{"type", "fileEnd"}, {"rank", 0}}));
  ASSERT_TRUE(take(trace, {{"type", "end"}}));
  EXPECT_FALSE(fs::exists(folder / "trace.json.gz")) << "it is not complete yet";
  ASSERT_TRUE(trace.finish());

  const json written = json::parse(text_of(folder / "trace.json.gz"));
  std::vector<std::string> names;
  for (const json& event : written["traceEvents"]) {
    if (event["ph"] == "X") names.push_back(event["name"]);
    if (event["name"] == "aten::add") {
      EXPECT_DOUBLE_EQ(event["ts"].get<double>(), 40.5);
    }
  }
  EXPECT_THAT(names, ElementsAre("step 120", "step 120", "aten::add", "aten::mul"));
  EXPECT_EQ(written["baseTimeNanoseconds"], kBase);
  EXPECT_EQ(written["paceline"]["ranks"][0]["clockUncertaintyNs"], 2'000'000);
  EXPECT_EQ(written["paceline"]["ranks"][1]["recorded"], false);
  EXPECT_EQ(trace.summary().recorded, 1);
  EXPECT_THAT(trace.summary().problems, ElementsAre("rank 1 on node-a: not done within 60.0 s"));
}

TEST_F(TraceFileTest, TheBaseTimeMayStandInFront) {
  TraceFile trace = create("trace.json.gz");
  ASSERT_TRUE(take(trace, plan()));
  ASSERT_TRUE(take(trace, rank(0)));
  const std::string file = R"({"baseTimeNanoseconds": 1764000000000002000, "traceEvents": [)" +
                           std::string(100'000, ' ') +
                           R"({"ph": "i", "s": "t", "name": "x", "pid": 7, "tid": 7, "ts": 1}]})";
  ASSERT_TRUE(take(trace, {{"type", "piece"}, {"rank", 0}, {"data", encode_base64(packed(file))}}));
  ASSERT_TRUE(take(trace, {{"type", "fileEnd"}, {"rank", 0}}));
  ASSERT_TRUE(take(trace, {{"type", "end"}}));
  ASSERT_TRUE(trace.finish());
  const json written = json::parse(text_of(folder / "trace.json.gz"));
  EXPECT_DOUBLE_EQ(written["traceEvents"].back()["ts"].get<double>(), 2);
}

TEST_F(TraceFileTest, ADamagedFileOfARankIsNamed) {
  TraceFile trace = create("trace.json.gz");
  ASSERT_TRUE(take(trace, plan()));
  ASSERT_TRUE(take(trace, rank(0)));
  const std::string bytes = packed(kFile);
  ASSERT_TRUE(take(trace, {{"type", "piece"},
                           {"rank", 0},
                           {"data", encode_base64(bytes.substr(0, bytes.size() / 2))}}));
  ASSERT_TRUE(take(trace, {{"type", "fileEnd"}, {"rank", 0}}));
  ASSERT_TRUE(take(trace, {{"type", "end"}}));
  ASSERT_TRUE(trace.finish());
  EXPECT_TRUE(json::accept(text_of(folder / "trace.json.gz")));
  EXPECT_THAT(trace.summary().problems,
              ElementsAre("rank 0 on node-a: the end of its file is damaged"));
}

TEST_F(TraceFileTest, AFewBytesThatStandForAHugeEventAreRefused) {
  TraceFile trace = create("trace.json.gz");
  ASSERT_TRUE(take(trace, plan()));
  ASSERT_TRUE(take(trace, rank(0)));
  const std::string huge = R"({"traceEvents":[{"ph":"X","name":")" + std::string(17U << 20U, 'x') +
                           R"(","pid":7,"tid":7,"ts":1,"dur":2}]})";
  ASSERT_TRUE(take(trace, {{"type", "piece"}, {"rank", 0}, {"data", encode_base64(packed(huge))}}));
  ASSERT_TRUE(take(trace, {{"type", "fileEnd"}, {"rank", 0}}));
  ASSERT_TRUE(take(trace, {{"type", "end"}}));
  ASSERT_TRUE(trace.finish());
  ASSERT_EQ(trace.summary().problems.size(), 1U);
  EXPECT_NE(trace.summary().problems[0].find("too large to be read whole"), std::string::npos);
}

TEST_F(TraceFileTest, ManyEventsOfAFileAreNotRefused) {
  TraceFile trace = create("trace.json.gz");
  ASSERT_TRUE(take(trace, plan()));
  ASSERT_TRUE(take(trace, rank(0)));
  std::string file = R"({"traceEvents":[1)";
  for (int i = 0; i < 20; ++i)
    file += R"(,{"ph":"X","name":")" + std::string(1U << 20U, 'x') +
            R"(","pid":7,"tid":7,"ts":1,"dur":2})";
  file += "]}";
  ASSERT_TRUE(take(trace, {{"type", "piece"}, {"rank", 0}, {"data", encode_base64(packed(file))}}));
  ASSERT_TRUE(take(trace, {{"type", "fileEnd"}, {"rank", 0}}));
  ASSERT_TRUE(take(trace, {{"type", "end"}}));
  ASSERT_TRUE(trace.finish());
  EXPECT_TRUE(trace.summary().problems.empty());
}

TEST_F(TraceFileTest, ALostFileLeavesTheRecords) {
  TraceFile trace = create("trace.json");
  ASSERT_TRUE(take(trace, plan()));
  ASSERT_TRUE(take(trace, rank(0)));
  ASSERT_TRUE(take(trace, {{"type", "piece"}, {"rank", 0}, {"data", encode_base64("x")}}));
  ASSERT_TRUE(take(trace, {{"type", "fileLost"}, {"rank", 0}, {"problem", "no answer"}}));
  ASSERT_TRUE(take(trace, {{"type", "end"}}));
  ASSERT_TRUE(trace.finish());
  EXPECT_EQ(trace.summary().recorded, 0);
  EXPECT_EQ(trace.summary().with_steps, 1);
  EXPECT_THAT(trace.summary().problems,
              ElementsAre("rank 0 on node-a: its file was lost on the way: no answer"));
}

TEST_F(TraceFileTest, WithoutAnEndNothingIsWritten) {
  {
    TraceFile trace = create("trace.json");
    ASSERT_TRUE(take(trace, plan()));
    ASSERT_TRUE(take(trace, rank(0)));
    EXPECT_FALSE(trace.finish());
  }
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(TraceFileTest, AProblemOfTheLauncherIsTheError) {
  TraceFile trace = create("trace.json");
  const auto taken = take(trace, {{"type", "problem"}, {"text", "a trace of ann is under way"}});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().message, "a trace of ann is under way");
  EXPECT_FALSE(trace.take("Defaulted container"));
}

TEST_F(TraceFileTest, LinesOfAPodCannotBreakIt) {
  TraceFile trace = create("trace.json");
  for (const char* line :
       {"{}", "[]", R"({"type":5})", R"({"type":"rank","rank":"x","steps":5,"clock":[]})",
        R"({"type":"plan","zeroUnixNs":"x","lostLaunchers":7})",
        R"({"type":"rank","rank":1,"steps":[7,{"startUnixNs":"x"},{"startUnixNs":1,"hostNs":[]}]})",
        R"({"type":"piece","rank":99,"data":"eA=="})", R"({"type":"fileEnd","rank":1})"})
    (void)trace.take(line);
  (void)take(trace, {{"type", "end"}});
  (void)trace.finish();
}

TEST_F(TraceFileTest, AFileThatCannotBeWrittenIsNamed) {
  const auto nowhere = GzipFile::create((folder / "missing/trace.json.gz").string());
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().message, HasSubstr("missing/trace.json.gz: No such file"));

  // As a full disk: a limit on the size of files.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  Status written;
  {
    auto file = *GzipFile::create((folder / "trace.json").string());
    for (int i = 0; i < 100 && written; ++i) written = file.write(std::string(10'000, 'x'));
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr("trace.json: File too large"));
  EXPECT_TRUE(fs::is_empty(folder)) << "no part of it stays";
}

}  // namespace
}  // namespace paceline::cli
