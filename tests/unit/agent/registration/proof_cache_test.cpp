// SPDX-License-Identifier: Apache-2.0
// What a run of paceline-probe caches for the next one: proofs of GPUs that are busy by then, and
// nothing else.
#include "agent/device_probe/proof_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/checks/privileged_scan.hpp"
#include "common/base/timestamp.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

constexpr const char* kGpuA = "0000:1b:00.0";
constexpr const char* kGpuB = "0000:43:00.0";
const WallTime kFirst = std::chrono::sys_days(std::chrono::year(2026) / 3 / 1) + 7h;

struct KeptProofs : testing::Test {
  KeptProofs() {
    tree.write("proc/sys/kernel/random/boot_id", "0b6f8c1e-0000-4000-8000-000000000001\n");
  }

  fs::path file() const { return tree.folder() / "proofs.json"; }
  std::string machine() const { return machine_state(tree.root()); }
  CachedProofs read(WallTime now = kFirst + 1h) const {
    return read_proof_cache(file(), machine(), now);
  }

  /// Two NICs; for busy GPUs only the note that they are busy.
  static Registrations look(WallTime when, const std::string& busy = {}) {
    Registrations report;
    report.taken = when;
    for (const char* nic : {"mlx5_0", "mlx5_1"})
      report.attempts.push_back({Step::kOpen, nic, "", Outcome::kDone, 0, ""});
    for (const std::string gpu : {kGpuA, kGpuB}) {
      if (gpu == busy || busy == "*") {
        report.attempts.push_back(
            {Step::kGpuMemory, "", gpu, Outcome::kNotTried, 0, "processes use it"});
        continue;
      }
      report.attempts.push_back({Step::kGpuMemory, "", gpu, Outcome::kDone, 0, ""});
      for (const char* nic : {"mlx5_0", "mlx5_1"}) {
        report.attempts.push_back({Step::kDmaBuf, nic, gpu, Outcome::kDone, 0, ""});
        report.attempts.push_back(
            {Step::kPeerMemory, nic, gpu, Outcome::kRefused, 14, "ibv_reg_mr: Bad address"});
      }
    }
    return report;
  }

  NodeTree tree{"dgx-h100-like"};
};

std::ptrdiff_t done(const Registrations& report, const std::string& gpu) {
  return std::ranges::count_if(report.attempts, [&](const Attempt& attempt) {
    return attempt.step == Step::kDmaBuf && attempt.gpu == gpu && attempt.outcome == Outcome::kDone;
  });
}

TEST_F(KeptProofs, StandForGpusThatAreBusyAtTheNextLooks) {
  ASSERT_TRUE(write_proof_cache(file(), machine(), look(kFirst)));
  auto second = look(kFirst + 1h, kGpuA);
  apply_cached_proofs(second, read().attempts);
  EXPECT_EQ(done(second, kGpuA), 2);
  EXPECT_EQ(done(second, kGpuB), 2);
  EXPECT_TRUE(std::ranges::none_of(second.attempts, [](const Attempt& attempt) {
    return attempt.outcome == Outcome::kNotTried;
  }));
  // A cached attempt keeps its time; a new one has the report's.
  for (const auto& attempt : second.attempts) {
    const bool old = attempt.gpu == kGpuA;
    EXPECT_EQ(attempt.taken, old ? std::optional(kFirst) : std::nullopt) << describe(attempt);
  }
  ASSERT_TRUE(write_proof_cache(file(), machine(), second));
  auto third = look(kFirst + 3h, "*");
  apply_cached_proofs(third, read(kFirst + 3h).attempts);
  tree.write("report.json", registrations_json(third));
  const PrivilegedScan scan = read_privileged_scan({{}, tree.folder() / "report.json"});
  ASSERT_TRUE(scan.registrations) << scan.problem;
  EXPECT_EQ(*scan.registrations, third);
  EXPECT_EQ(ages_text({{}, tree.folder() / "report.json"}, scan, kFirst + 4h),
            "registrations of 1h ago (those of 2 GPUs that had work then: of 4h ago)");
}

TEST_F(KeptProofs, AreOnlyOfWhatWasReached) {
  auto report = look(kFirst);
  for (auto& attempt : report.attempts) {
    if (attempt.gpu == kGpuB && attempt.nic == "mlx5_1") attempt.outcome = Outcome::kRefused;
  }
  ASSERT_TRUE(write_proof_cache(file(), machine(), report));
  for (const auto& attempt : read().attempts) EXPECT_EQ(attempt.gpu, kGpuA);
  EXPECT_FALSE(read().attempts.empty());
  // A run in which a driver hung says nothing about the GPUs after it: no cached proof takes their
  // place.
  Registrations hung;
  hung.attempts.push_back({Step::kOpen, "mlx5_0", "", Outcome::kHung, 0, "no answer"});
  apply_cached_proofs(hung, read().attempts);
  EXPECT_EQ(hung.attempts.size(), 1U);
  // An attempt made now counts, whatever its outcome.
  auto refused = look(kFirst + 1h);
  for (auto& attempt : refused.attempts) {
    if (!attempt.gpu.empty()) attempt.outcome = Outcome::kRefused;
  }
  apply_cached_proofs(refused, read().attempts);
  EXPECT_EQ(done(refused, kGpuA), 0);
}

TEST_F(KeptProofs, EndWithTheStateOfTheMachine) {
  ASSERT_TRUE(write_proof_cache(file(), machine(), look(kFirst)));
  const auto changes = {
      std::pair{"proc/sys/kernel/random/boot_id", "another\n"},
      std::pair{"proc/sys/kernel/osrelease", "6.8.0\n"},
      std::pair{"proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX Open Kernel Module  570.1\n"},
      std::pair{"sys/module/nvidia_peermem/version", "570.1\n"},
      std::pair{"sys/class/infiniband/mlx5_3/fw_ver", "28.40\n"},
      std::pair{"sys/bus/pci/devices/0000:1b:00.0/device", "0x2331\n"},
  };
  for (const auto& [name, text] : changes) {
    const auto before = read_text(tree.folder() / name);
    tree.write(name, text);
    EXPECT_THAT(read().attempts, IsEmpty()) << name;
    EXPECT_THAT(read().refused, HasSubstr("booted since, or has another kernel")) << name;
    before ? tree.write(name, *before + "\n") : tree.remove(name);
    EXPECT_FALSE(read().attempts.empty()) << name;
  }
  tree.remove("proc/sys/kernel/random/boot_id");
  EXPECT_THAT(read().refused, HasSubstr("id of this boot"));
}

TEST_F(KeptProofs, AreRefusedWhereTheyAreNotWhatWasWritten) {
  EXPECT_EQ(read().refused, "");  // none yet
  ASSERT_TRUE(write_proof_cache(file(), machine(), look(kFirst)));
  const std::string good = *read_text(file());
  const auto with = [&](const char* field, const json& value) {
    auto document = json::parse(good);
    document["attempts"][0][field] = value;
    return document.dump();
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "no proof cache"},
      {"[]", "no proof cache"},
      {good.substr(0, good.size() / 2), "no proof cache"},
      {R"({"version":1})", "names no machine"},
      {with("taken", "tomorrow"), "malformed attempt"},
      {with("taken", format_time(kFirst + 2h)), "in the future"},
      {with("outcome", "hung"), "malformed attempt"},
      {with("gpu", ""), "malformed attempt"},
      {with("step", 7), "malformed attempt"},
      {std::string(std::size_t{5} << 20U, ' '), "larger than"},
  };
  for (const auto& [text, why] : cases) {
    tree.write("proofs.json", text);
    EXPECT_THAT(read().refused, HasSubstr(why));
    EXPECT_THAT(read().attempts, IsEmpty()) << why;
  }
  tree.write("proofs.json", good);
  EXPECT_EQ(read().refused, "");
  ASSERT_EQ(::chmod(file().c_str(), 0666), 0);
  EXPECT_THAT(read().refused, HasSubstr("others may write it"));
  fs::rename(file(), tree.folder() / "elsewhere");
  fs::create_symlink(tree.folder() / "elsewhere", file());
  EXPECT_NE(read().refused, "");
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_THAT(read().refused, HasSubstr("no regular file"));
  // Nothing is written through the existing link.
  ASSERT_TRUE(write_proof_cache(file(), machine(), look(kFirst)));
  EXPECT_FALSE(read().attempts.empty());
  fs::create_directories(tree.folder() / "proofs.json.new/occupied");
  EXPECT_FALSE(write_proof_cache(file(), machine(), look(kFirst)));
  EXPECT_FALSE(read().attempts.empty());
}

/// The program of the agent's one-shot container, with fake drivers. In the second run all GPUs are
/// busy.
TEST_F(KeptProofs, CarryAnUpgradeOfTheAgentOnABusyNode) {
  const auto probe = [&](const char* nvml) {
    const std::string line = std::string(PACELINE_PROBE) +
                             " --verbs " PACELINE_FAKE_IBVERBS " --cuda " + PACELINE_FAKE_CUDA +
                             " --nvml " + nvml + " --sys " + (tree.folder() / "sys").string() +
                             " --keep " + tree.folder().string() + " --output " +
                             (tree.folder() / "report.json").string() + " --exit-zero 2>/dev/null";
    EXPECT_EQ(std::system(line.c_str()),
              0);  // NOLINT(concurrency-mt-unsafe): a test has one thread
    return read_privileged_scan({{}, tree.folder() / "report.json"})
        .registrations.value_or(Registrations{});
  };
  EXPECT_EQ(done(probe(PACELINE_FAKE_NVML), kGpuA), 2);
  const auto busy = probe("libnowhere.so");  // a GPU that cannot be asked about counts as busy
  EXPECT_EQ(done(busy, kGpuA), 2);
  EXPECT_EQ(done(busy, kGpuB), 2);
  EXPECT_TRUE(std::ranges::any_of(
      busy.attempts, [](const Attempt& attempt) { return attempt.taken.has_value(); }));
}

}  // namespace
}  // namespace paceline::agent
