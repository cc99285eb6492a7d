// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "agent/inject/injector.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <optional>
#include <set>
#include <string>

#include "testing/runtime_fixture.hpp"

namespace paceline::agent {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::SizeIs;

class PlayedKubelet final : public Kubelet {
 public:
  std::string incarnation() override { return life; }
  Status serve(DevicePlugin& given) override {
    ++served;
    if (!serve_error.empty()) return fail(Code::kUnavailable, Origin::kSystem, serve_error);
    plugin = &given;
    open = true;
    return {};
  }
  bool serving() override { return open; }
  void stop_serving() override { open = false; }
  Status enroll(const std::stop_token& /*stop*/) override {
    ++enrolled;
    if (!enroll_error.empty()) return fail(Code::kUnavailable, Origin::kKube, enroll_error);
    if (watches) streams = 1;
    return {};
  }
  int watchers() override { return open ? streams : 0; }
  void offer_changed() override { ++changes; }
  Result<SlotPods> slots_in_use(const std::stop_token& /*stop*/) override {
    ++asked;
    if (!used) return fail(Code::kUnavailable, Origin::kKube, "no such socket");
    return *used;
  }

  /// A start of the kubelet: it removes all sockets and makes its own.
  void restart() {
    life += "+";
    open = false;
    streams = 0;
  }

  std::string life = "first";
  std::string serve_error;
  std::string enroll_error;
  bool watches = true;
  bool open = false;
  int streams = 0;
  int served = 0;
  int enrolled = 0;
  int changes = 0;
  int asked = 0;
  std::optional<SlotPods> used = SlotPods{};
  DevicePlugin* plugin = nullptr;
};

class InjectorTest : public testing::Test {
 protected:
  InjectorTest() {
    make_runtime(options_.source, "one");
    injector_.emplace(kubelet_, clock_, options_);
  }

  InjectorOptions options() const {
    InjectorOptions options;
    options.source = scratch_ / "image";
    options.folder = scratch_ / "node";
    options.slots = 3;
    return options;
  }

  void run_for(std::chrono::milliseconds time) {
    const auto end = clock_.steady() + time;
    for (auto next = injector_->tick(); next <= end; next = injector_->tick())
      clock_.advance(next - clock_.steady());
    clock_.advance(end - clock_.steady());
  }

  /// Replaces the agent's pod by one of another build.
  void upgrade(const std::string& content) {
    injector_.reset();
    kubelet_.streams = 0;
    make_runtime(options_.source, content);
    injector_.emplace(kubelet_, clock_, options_);
  }

  std::string mounted(const std::string& slot) {
    auto grant = injector_->grant({slot});
    EXPECT_TRUE(grant) << grant.error().message;
    return grant ? grant->mounts.at("/opt/paceline") : "";
  }

  Scratch scratch_;
  const InjectorOptions options_ = options();
  ManualClock clock_;
  PlayedKubelet kubelet_;
  std::optional<Injector> injector_;
};

TEST_F(InjectorTest, StagesTellsTheKubeletAndGivesASlotItsFolderAndTheRuntime) {
  EXPECT_EQ(injector_->state().good, false);
  EXPECT_FALSE(injector_->offer().healthy);
  run_for(1s);
  EXPECT_EQ(injector_->state().good, true);
  EXPECT_THAT(injector_->state().message, HasSubstr("0.1.0-"));
  EXPECT_EQ(injector_->offer(), (Offer{{"slot-0", "slot-1", "slot-2"}, true}));
  EXPECT_EQ(kubelet_.plugin, &*injector_);

  const auto grant = injector_->grant({"slot-1"});
  ASSERT_TRUE(grant) << grant.error().message;
  EXPECT_THAT(grant->mounts, SizeIs(2));
  EXPECT_EQ(grant->mounts.at("/run/paceline-slot"), (scratch_ / "node/slots/slot-1").string());
  EXPECT_EQ(picture(grant->mounts.at("/opt/paceline")), picture(options_.source));
  EXPECT_EQ(grant->variables,
            (std::map<std::string, std::string>{{"PACELINE_SLOT_DIR", "/run/paceline-slot"}}));
  run_for(1min);
  EXPECT_EQ(kubelet_.enrolled, 1);
  EXPECT_EQ(kubelet_.served, 1);
}

TEST_F(InjectorTest, AnythingButOneOfItsSlotsIsRefusedAndWritesNothing) {
  run_for(1s);
  const auto before = picture(scratch_ / "node");
  for (const std::vector<std::string>& ids :
       std::vector<std::vector<std::string>>{{},
                                             {"slot-0", "slot-1"},
                                             {"slot-3"},
                                             {"../leader"},
                                             {"/etc"},
                                             {""},
                                             {"slot-0/"},
                                             {std::string("slot-0\0", 7)},
                                             {std::string(1'000'000, 'x')}}) {
    const auto refused = injector_->grant(ids);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_LT(refused.error().message.size(), 200U);
  }
  EXPECT_EQ(picture(scratch_ / "node"), before);
}

TEST_F(InjectorTest, AKubeletThatStartsAnewIsToldWithinASecond) {
  run_for(10s);
  kubelet_.restart();
  run_for(2s);
  EXPECT_EQ(kubelet_.served, 2);
  EXPECT_EQ(kubelet_.enrolled, 2);
  EXPECT_EQ(injector_->state().good, true);
  // After a long absence it is still checked as often.
  kubelet_.life.clear();
  kubelet_.open = false;
  run_for(10min);
  EXPECT_EQ(injector_->state().reason, "NoKubelet");
  EXPECT_EQ(kubelet_.enrolled, 2);
  kubelet_.life = "third";
  kubelet_.streams = 0;
  run_for(2s);
  EXPECT_EQ(kubelet_.enrolled, 3);
  EXPECT_EQ(injector_->state().good, true);
}

TEST_F(InjectorTest, AKubeletThatDoesNotWatchIsToldAgainNotAtOnce) {
  kubelet_.watches = false;
  run_for(9s);
  EXPECT_EQ(kubelet_.enrolled, 1);
  EXPECT_EQ(injector_->state().good, false);
  kubelet_.watches = true;
  run_for(3s);
  EXPECT_EQ(kubelet_.enrolled, 2);
  EXPECT_EQ(injector_->state().good, true);
  kubelet_.streams = 0;  // the stream ends, the kubelet is the same
  run_for(3s);
  EXPECT_EQ(kubelet_.enrolled, 3);
  EXPECT_EQ(kubelet_.served, 1);
}

TEST_F(InjectorTest, ARefusedRegistrationIsTriedAgainWithAGrowingPauseAndShown) {
  kubelet_.enroll_error = "resource already taken";
  run_for(20min);
  EXPECT_LE(kubelet_.enrolled, 50);
  EXPECT_GE(kubelet_.enrolled, 40);
  EXPECT_EQ(injector_->state().reason, "NotRegistered");
  EXPECT_THAT(injector_->state().message, HasSubstr("resource already taken"));
  kubelet_.enroll_error.clear();
  run_for(31s);
  EXPECT_EQ(injector_->state().good, true);
}

TEST_F(InjectorTest, WithoutAWholeRuntimeNothingIsOfferedUntilItIsThere) {
  fs::remove(options_.source / ".complete");
  run_for(10s);
  EXPECT_EQ(injector_->state().reason, "NotStaged");
  EXPECT_EQ(kubelet_.enrolled, 0);
  EXPECT_FALSE(injector_->grant({"slot-0"}));
  make_runtime(options_.source, "one");
  run_for(31s);
  EXPECT_EQ(injector_->state().good, true);
}

TEST_F(InjectorTest, AnEmptiedFolderIsFilledAgainAndSlotsAreIllMeanwhile) {
  run_for(1s);
  const int changes = kubelet_.changes;
  fs::remove_all(scratch_ / "node/runtimes");
  fs::remove_all(scratch_ / "node/slots");
  fs::rename(options_.source, scratch_ / "away");
  run_for(2s);
  EXPECT_FALSE(injector_->offer().healthy);
  EXPECT_GT(kubelet_.changes, changes);
  const auto refused = injector_->grant({"slot-0"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnavailable);
  fs::rename(scratch_ / "away", options_.source);
  run_for(31s);
  EXPECT_TRUE(injector_->offer().healthy);
  EXPECT_EQ(picture(mounted("slot-0")), picture(options_.source));
  EXPECT_TRUE(fs::is_directory(scratch_ / "node/slots/slot-0"));
}

TEST_F(InjectorTest, FoldersOfSlotsThatAloneAreGoneAreMadeAgainWithinASecond) {
  run_for(1s);
  const std::string runtime = mounted("slot-1");
  for (const char* gone : {"node/slots", "node/slots/slot-1", "node/assignments"}) {
    std::filesystem::remove_all(scratch_ / gone);
    run_for(1s);
    EXPECT_TRUE(std::filesystem::is_directory(scratch_ / "node/slots/slot-1")) << gone;
    EXPECT_EQ(mounted("slot-1"), runtime) << gone;
    EXPECT_TRUE(std::filesystem::exists(scratch_ / "node/assignments/slot-1")) << gone;
    EXPECT_EQ(injector_->state().reason, "Served") << gone;
  }
  // A failure is reported and tried again.
  std::filesystem::remove_all(scratch_ / "node/slots");
  std::ofstream(scratch_ / "node/slots") << "in the way";
  run_for(2s);
  EXPECT_EQ(injector_->state().reason, "NotStaged");
  EXPECT_THAT(injector_->state().message, HasSubstr("node/slots"));
  std::filesystem::remove(scratch_ / "node/slots");
  run_for(1min);
  EXPECT_EQ(injector_->state().reason, "Served");
}

TEST_F(InjectorTest, AnUpgradeKeepsTheSlotsFoldersAndWhatRunningPodsUse) {
  run_for(1s);
  const std::string running = mounted("slot-0");
  const std::string ended = mounted("slot-1");
  EXPECT_EQ(running, ended);
  struct stat before{};
  ASSERT_EQ(::stat((scratch_ / "node/slots/slot-0").c_str(), &before), 0);
  upgrade("two");
  kubelet_.used = SlotPods{{"slot-0", PodName{"ns", "pod"}}};
  run_for(1s);
  struct stat after{};
  ASSERT_EQ(::stat((scratch_ / "node/slots/slot-0").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_NE(mounted("slot-2"), running);
  run_for(1h);
  EXPECT_TRUE(fs::exists(running));  // by slot-0
  kubelet_.used->clear();
  run_for(10min);
  EXPECT_FALSE(fs::exists(running));
  EXPECT_TRUE(fs::exists(mounted("slot-2")));
}

TEST_F(InjectorTest, AFreshSlotCountsAsUsedAlthoughTheKubeletDoesNotNameItYet) {
  run_for(1s);
  const std::string given = mounted("slot-0");
  upgrade("two");  // right after: the pod is not on the kubelet's record
  run_for(9min);
  EXPECT_TRUE(fs::exists(given));
  run_for(21min);
  EXPECT_FALSE(fs::exists(given));
}

TEST_F(InjectorTest, WithoutTheKubeletsWordNothingIsRemoved) {
  run_for(1s);
  const std::string given = mounted("slot-0");
  upgrade("two");
  kubelet_.used.reset();
  run_for(2h);
  EXPECT_TRUE(fs::exists(given));
}

TEST_F(InjectorTest, OneAgentOfANodeServesAndTheOtherTakesOverWhenItEnds) {
  run_for(1s);
  PlayedKubelet seen_by_other;
  Injector other(seen_by_other, clock_, options_);
  other.tick();
  EXPECT_EQ(other.state().reason, "StandingBy");
  EXPECT_EQ(seen_by_other.served, 0);
  injector_.reset();
  clock_.advance(1s);
  other.tick();
  other.tick();
  EXPECT_EQ(seen_by_other.enrolled, 1);
  EXPECT_EQ(other.state().good, true);
}

TEST_F(InjectorTest, ARecordThatCannotBeWrittenRefusesTheSlot) {
  run_for(1s);
  fs::remove_all(scratch_ / "node/assignments");
  const auto refused = injector_->grant({"slot-0"});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("assignments/slot-0"));
}

}  // namespace
}  // namespace paceline::agent
