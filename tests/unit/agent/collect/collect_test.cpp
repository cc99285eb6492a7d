// SPDX-License-Identifier: Apache-2.0
// The collector with launchers that keep the rules: whose series it has, from when, until when, and
// over restarts of either side.
#include "common/base/log.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "agent/inject/injector.hpp"
#include "tests/unit/agent/collect/collect_fixture.hpp"

namespace paceline::agent {
namespace {

using namespace std::chrono_literals;
using telemetry::test::step;
using telemetry::test::TestRing;

TEST_F(CollectTest, ServesAPodsRanksUnderTheKubeletsNames) {
  const auto client = launcher("slot-1", "mnist", 2);
  EXPECT_TRUE(client->held());
  TestRing ring;
  ring.header().world_rank = 7;  // a claim
  ring.publish(step(1));
  client->add(1, ring_offer(1), ring.fd());
  collector_->pump();
  ring.publish(step(2));
  collector_->pump();
  EXPECT_EQ(steps("mnist", 1), 2);
  EXPECT_EQ(steps("mnist", 0), -1) << "absent is not zero";
  EXPECT_EQ(at("paceline_agent_slot_pods{node=\"node-a\"}"), 1);
  // A rank without records is shown as such.
  const std::string waiting = of("mnist", 0);
  EXPECT_EQ(at("paceline_profiler_state" + waiting.substr(0, waiting.size() - 1) +
               ",source=\"host\",reason=\"no_training_mark_yet\"}"),
            0);
  ring.publish(step(3));
  client->remove(1);
  collector_->pump();
  EXPECT_EQ(steps("mnist", 1), 3);
}

TEST_F(CollectTest, NothingIsServedBeforeTheKubeletHasNamedThePod) {
  pods_.emplace("slot-0", PodName{"team", "mnist-worker-0-0"});
  telemetry::SlotClient client(folder("slot-0"), {"mnist", "worker", 0, 0}, clock_);
  EXPECT_FALSE(collector_->asks());
  client.begin_attempt(0, 0, 0, 1);
  TestRing ring;
  ring.publish(step(1));
  client.add(1, ring_offer(0), ring.fd());
  client.remove(1);  // a rank that is over by then counts all the same
  const SteadyTime before = clock_.steady();
  clock_.advance(1s);
  client.tend();
  collector_->pump();
  EXPECT_TRUE(collector_->asks());
  // An answer to an earlier question may name the slot's last owner.
  collector_->tell(pods_, before);
  collector_->tell({}, clock_.steady());
  client.tend();
  EXPECT_FALSE(client.held());
  EXPECT_EQ(steps("mnist"), -1);
  tell();
  client.tend();
  EXPECT_TRUE(client.held());
  EXPECT_FALSE(collector_->asks());
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 1);
  EXPECT_EQ(dropped("mnist"), 0);
}

TEST_F(CollectTest, WhomTheKubeletDoesNotKnowIsSentAwayAfterAMinute) {
  telemetry::SlotClient client(folder("slot-0"), {"mnist", "worker", 0, 0}, clock_);
  client.begin_attempt(0, 0, 0, 1);
  client.tend();
  collector_->pump();
  clock_.advance(59s);
  tell();
  EXPECT_EQ(refused("unknown_pod"), 0);
  clock_.advance(1s);
  tell();
  EXPECT_EQ(refused("unknown_pod"), 1);
  EXPECT_FALSE(collector_->asks());
}

TEST_F(CollectTest, CountersGoOnOverAttemptsAndOverALauncherThatStartsAnew) {
  auto client = launcher("slot-0", "mnist");
  TestRing first;
  client->add(1, ring_offer(0), first.fd());
  first.publish(step(1));
  client->begin_attempt(1, 0, 0, 1);
  TestRing second;
  client->add(2, ring_offer(0, 1), second.fd());
  second.publish(step(1));
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 2);

  client.reset();
  collector_->pump();
  EXPECT_EQ(at("paceline_agent_slot_pods{node=\"node-a\"}"), 0);
  client = launcher("slot-0", "mnist");
  TestRing third;
  third.publish(step(1));
  client->add(3, ring_offer(0), third.fd());
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 3);
}

TEST_F(CollectTest, SeriesStayFiveMinutesAndAPodThatFollowsAnotherReplacesThem) {
  auto client = launcher("slot-0", "mnist");
  TestRing ring;
  ring.publish(step(1));
  client->add(1, ring_offer(0), ring.fd());
  client.reset();
  collector_->pump();
  clock_.advance(299s);
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 1);

  // The replacement has the same labels: `series` would fail on a double.
  const auto next = launcher("slot-1", "mnist", 1, 1);
  TestRing other;
  next->add(1, ring_offer(0), other.fd());
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 0);
  clock_.advance(1s);
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 0);
  other.publish(step(1));
  collector_->pump();
  EXPECT_EQ(steps("mnist"), 1);
}

TEST_F(CollectTest, TheGpuIsTheKubeletsWordAndStays) {
  std::vector<Gpu> gpus(8);
  for (int i = 0; i < 8; ++i) {
    gpus[static_cast<std::size_t>(i)].index = i;
    gpus[static_cast<std::size_t>(i)].resource = "nvidia.com/gpu";
    gpus[static_cast<std::size_t>(i)].uuid = "GPU-" + std::string(1, static_cast<char>('a' + i));
    gpus[static_cast<std::size_t>(i)].mig_uuids = {"MIG-" + std::to_string(i)};
  }
  const auto gpu_of = [&](const std::string& job, int rank) {
    const std::string start = "paceline_steps_total{namespace=\"team\",job=\"" + job +
                              "\",role=\"worker\",rank=\"" + std::to_string(rank) +
                              "\",node=\"node-a\",gpu=\"";
    for (const auto& [name, value] : series()) {
      if (name.starts_with(start)) return name.substr(start.size(), name.size() - start.size() - 2);
    }
    return std::string("none");
  };
  const auto run = [&](const std::string& slot, const std::string& job, int processes,
                       std::vector<PodDevice> devices) {
    devices_[slot] = std::move(devices);
    auto client = launcher(slot, job, processes);
    for (int rank = 0; rank < processes; ++rank) {
      rings_.push_back(std::make_unique<TestRing>());
      rings_.back()->header().device_kind = PACELINE_DEVICE_CUDA;
      client->add(static_cast<std::uint64_t>(rank) + 1, ring_offer(rank), rings_.back()->fd());
    }
    collector_->pump();
    return client;
  };
  const auto two =
      run("slot-0", "two", 2, {{"nvidia.com/gpu", "GPU-f"}, {"nvidia.com/gpu", "GPU-c"}});
  EXPECT_EQ(gpu_of("two", 0), "") << "nobody has looked yet";
  collector_->know(gpus);
  EXPECT_EQ(gpu_of("two", 0), "GPU2");
  EXPECT_EQ(gpu_of("two", 1), "GPU5");
  // A GPU falls off the bus and others are renumbered: known names stay.
  gpus.erase(gpus.begin() + 2);
  for (auto& gpu : gpus) gpu.uuid[4] = 'z';
  collector_->know(gpus);
  EXPECT_EQ(gpu_of("two", 0), "GPU2");

  gpus[0].uuid = "GPU-a";
  gpus[0].pci_address = "0000:1b:00.0";
  collector_->know(gpus);
  const auto shared = run("slot-1", "shared", 2, {{"nvidia.com/gpu.shared", "GPU-a::3"}});
  EXPECT_EQ(gpu_of("shared", 0), "GPU0");
  EXPECT_EQ(gpu_of("shared", 1), "GPU0");
  const auto part = run("slot-2", "part", 1, {{"nvidia.com/mig-1g.10gb", "MIG-1"}});
  EXPECT_EQ(gpu_of("part", 0), "GPU1");
  const auto cpu = run("slot-3", "cpu", 1, {});
  EXPECT_EQ(gpu_of("cpu", 0), "");
  const auto both = run("slot-4", "both", 1, {{"nvidia.com/gpu", "0"}, {"nvidia.com/gpu", "1"}});
  EXPECT_EQ(gpu_of("both", 0), "GPU0,GPU1");
  const auto uneven =
      run("slot-5", "uneven", 3, {{"nvidia.com/gpu", "0"}, {"nvidia.com/gpu", "1"}});
  EXPECT_EQ(gpu_of("uneven", 0), "") << "who has which is not known";
  const auto strange = run("slot-6", "strange", 1, {{"nvidia.com/gpu", "no-such"}});
  EXPECT_EQ(gpu_of("strange", 0), "");
}

TEST_F(CollectTest, ASlotsSocketIsOpenToEveryUserAndComesBack) {
  const auto path = folder("slot-0") / "telemetry.sock";
  struct stat is{};
  ASSERT_EQ(::stat(path.c_str(), &is), 0);
  EXPECT_TRUE(S_ISSOCK(is.st_mode));
  EXPECT_EQ(is.st_mode & 0777U, 0666U);
  const auto inode = is.st_ino;
  ASSERT_TRUE(collector_->open("slot-0", folder("slot-0")));
  ASSERT_EQ(::stat(path.c_str(), &is), 0);
  EXPECT_EQ(is.st_ino, inode) << "nothing to do";
  std::filesystem::remove(path);
  ASSERT_TRUE(collector_->open("slot-0", folder("slot-0")));
  EXPECT_TRUE(Stranger(folder("slot-0")).connected());
  // Left by an agent that was killed.
  std::ofstream(folder("slot-0") / "telemetry.sock.new") << "left";
  collector_.reset();
  EXPECT_FALSE(Stranger(folder("slot-0")).connected());
  start();
  EXPECT_TRUE(Stranger(folder("slot-0")).connected());
  const auto refused = collector_->open("slot-0", scratch_ / std::string(100, 'x'));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("choose a shorter folder"));
}

/// A kubelet that names the pods that the test sets, and watches at once.
class NamingKubelet final : public Kubelet {
 public:
  explicit NamingKubelet(const SlotPods& pods) : pods_(pods) {}
  std::string incarnation() override { return "first"; }
  Status serve(DevicePlugin& /*plugin*/) override { return {}; }
  bool serving() override { return true; }
  void stop_serving() override {}
  Status enroll(const std::stop_token& /*stop*/) override { return {}; }
  int watchers() override { return 1; }
  void offer_changed() override {}
  Result<SlotPods> slots_in_use(const std::stop_token& /*stop*/) override {
    ++asked;
    return pods_;
  }
  int asked = 0;

 private:
  const SlotPods& pods_;
};

TEST_F(CollectTest, TheInjectorMakesSocketsBeforeSlotsAreGivenOutAndAsksOnlyForWhoWaits) {
  NamingKubelet kubelet(pods_);
  InjectorOptions options;
  options.source = scratch_ / "image";
  options.folder = scratch_ / "node";
  options.slots = 2;
  options.sockets = &*collector_;
  make_runtime(options.source, "one");
  Injector injector(kubelet, clock_, options);
  injector.tick();
  clock_.advance(1s);
  injector.tick();
  ASSERT_EQ(injector.state().reason, "Served") << injector.state().message;
  EXPECT_TRUE(Stranger(scratch_ / "node/slots/slot-1").connected());
  std::filesystem::remove_all(scratch_ / "node/slots/slot-1");
  EXPECT_FALSE(injector.grant({"slot-1"})) << "a slot without its socket is not given out";
  clock_.advance(1s);
  injector.tick();
  const auto grant = injector.grant({"slot-1"});
  ASSERT_TRUE(grant) << grant.error().message;
  EXPECT_TRUE(Stranger(grant->mounts.at("/run/paceline-slot")).connected());
  const int before = kubelet.asked;
  clock_.advance(1s);
  injector.tick();
  EXPECT_EQ(kubelet.asked, before);

  pods_.emplace("slot-1", PodName{"team", "mnist-worker-0-0"});
  telemetry::SlotClient client(scratch_ / "node/slots/slot-1", {"mnist", "worker", 0, 0}, clock_);
  client.begin_attempt(0, 0, 0, 1);
  client.tend();
  collector_->pump();
  clock_.advance(1s);
  injector.tick();
  EXPECT_EQ(kubelet.asked, before + 1);
  client.tend();
  EXPECT_TRUE(client.held());
  clock_.advance(1s);
  injector.tick();
  EXPECT_EQ(kubelet.asked, before + 1);
}

}  // namespace
}  // namespace paceline::agent
