// SPDX-License-Identifier: Apache-2.0
// A container with a slot may send anything over its socket. Meanwhile a pod that keeps the rules
// has exact metrics, and the agent uses no descriptor and no page more.
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>

#include "tests/unit/agent/collect/collect_fixture.hpp"

namespace paceline::agent {
namespace {

using namespace std::chrono_literals;
using telemetry::test::step;
using telemetry::test::TestRing;

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

UniqueFd memory(std::size_t bytes, unsigned flags, int seals) {
  UniqueFd fd(::memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (!fd.valid() || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return {};
  if (seals != 0) ::fcntl(fd.get(), F_ADD_SEALS, seals);
  return fd;
}

class HostileClientTest : public CollectTest {
 protected:
  explicit HostileClientTest(CollectLimits limits = {}) : CollectTest(limits) {
    good_ = launcher("slot-0", "good");
    good_->add(1, ring_offer(0), ring_.fd());
    collector_->pump();
    pods_.emplace("slot-1", PodName{"team", "evil-worker-0-0"});
  }

  /// A client accepted as its own pod.
  std::unique_ptr<Stranger> admitted(int processes = 1) {
    auto stranger = std::make_unique<Stranger>(folder("slot-1"));
    EXPECT_TRUE(stranger->send(begin_frame("evil", "worker", processes)));
    collector_->pump();
    tell();
    EXPECT_FALSE(stranger->closed());
    return stranger;
  }

  void expect_good_goes_on() {
    ring_.publish(step(++published_));
    collector_->pump();
    EXPECT_EQ(steps("good"), static_cast<double>(published_));
    EXPECT_EQ(dropped("good"), 0);
    EXPECT_TRUE(good_->held());
  }

  TestRing ring_;
  std::uint64_t published_ = 0;
  std::unique_ptr<telemetry::SlotClient> good_;
};

TEST_F(HostileClientTest, ForgedLabelsAreCompared) {
  for (const auto& begin :
       {begin_frame("good", "worker"), begin_frame("evil", "good"), begin_frame("evil-worker", ""),
        begin_frame("other", "worker"), begin_frame("evil\"} 1\nx{job=\"good", "worker")}) {
    const Stranger stranger(folder("slot-1"));
    ASSERT_TRUE(stranger.send(begin));
    collector_->pump();
    tell();
    EXPECT_TRUE(stranger.closed());
    clock_.advance(10s);
  }
  EXPECT_EQ(refused("claim") + refused("frame"), 5);
  // An accepted client must not become another pod.
  const auto taken = admitted();
  taken->send(begin_frame("good", "worker"));
  collector_->pump();
  EXPECT_TRUE(taken->closed());
  expect_good_goes_on();
  const auto found = series();
  EXPECT_TRUE(std::ranges::none_of(found, [](const auto& entry) {
    return entry.first.find("job=\"other\"") != std::string::npos ||
           entry.first.find('\n') != std::string::npos;
  }));
}

TEST_F(HostileClientTest, ASlotThatTwoPodsHaveIsNobodys) {
  const Stranger stranger(folder("slot-1"));
  ASSERT_TRUE(stranger.send(begin_frame("evil", "worker")));
  pods_.emplace("slot-1", PodName{"others", "good-worker-0-0"});
  collector_->pump();
  tell();
  EXPECT_EQ(steps("evil"), -1);
  EXPECT_EQ(at("paceline_agent_slot_pods{node=\"node-a\"}"), 1);
}

TEST_F(HostileClientTest, OneClientSpeaksForAPod) {
  const auto first = admitted();
  const Stranger second(folder("slot-1"));
  ASSERT_TRUE(second.send(begin_frame("evil", "worker")));
  collector_->pump();
  tell();
  EXPECT_TRUE(second.closed());
  EXPECT_FALSE(first->closed());
  std::vector<std::unique_ptr<Stranger>> many;
  for (int i = 0; i < 6; ++i) many.push_back(std::make_unique<Stranger>(folder("slot-1")));
  collector_->pump();
  EXPECT_EQ(refused("second_client"), 1 + 3);
  expect_good_goes_on();
}

TEST_F(HostileClientTest, DescriptorsThatAreNoRingAreRefusedAndNoneIsKept) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  constexpr std::size_t kSize = PACELINE_HEADER_BYTES + 8 * PACELINE_RECORD_BYTES;
  std::vector<UniqueFd> foreign;
  foreign.push_back(memory(kSize, 0, 0));
  foreign.push_back(memory(kSize, 0, F_SEAL_SHRINK | F_SEAL_SEAL));
  foreign.push_back(memory(100, 0, kSeals));
  foreign.push_back(memory(0, 0, kSeals));
  foreign.push_back(memory(std::size_t{1} << 40, 0, kSeals));
  foreign.push_back(memory(std::size_t{2} << 20, MFD_HUGETLB, kSeals));
  foreign.emplace_back(::open("/etc/passwd", O_RDONLY | O_CLOEXEC));
  foreign.emplace_back(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  foreign.emplace_back(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  foreign.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  TestRing wrong;
  wrong.header().record_bytes = 1 << 30;
  const auto stranger = admitted();
  const std::size_t before = open_files();
  double offered = 0;
  for (const UniqueFd& fd : foreign) {
    if (!fd.valid()) continue;  // a kernel without huge pages
    ASSERT_TRUE(stranger->send(ring_frame(0), {fd.get()}));
    ++offered;
  }
  ASSERT_TRUE(stranger->send(ring_frame(0), {wrong.fd()}));
  ASSERT_TRUE(stranger->send(ring_frame(5), {ring_.fd()}));  // a rank that it has not
  expect_good_goes_on();
  EXPECT_EQ(refused("ring"), offered + 2);
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(steps("evil"), -1);
}

TEST_F(HostileClientTest, FramesThatAreNoneCloseTheirConnectionOnly) {
  auto other_magic = begin_frame("evil", "worker");
  other_magic.magic = 1;
  auto other_version = begin_frame("evil", "worker");
  other_version.version = 2;
  auto endless_name = begin_frame("evil", "worker");
  endless_name.job.fill('x');
  auto no_ranks = begin_frame("evil", "worker", 0);
  auto far_ranks = begin_frame("evil", "worker");
  far_ranks.first_rank = std::numeric_limits<std::int32_t>::max();
  const std::size_t before = open_files();
  for (const SlotFrame& frame :
       {other_magic, other_version, endless_name, no_ranks, far_ranks, slot_frame(SlotKind(9)),
        slot_frame(SlotKind::kTaken), slot_frame(SlotKind::kGone), ring_frame(0)}) {
    const Stranger stranger(folder("slot-1"));
    ASSERT_TRUE(stranger.send(frame));
    collector_->pump();
    EXPECT_TRUE(stranger.closed());
    clock_.advance(2s);
  }
  const std::vector<char> bytes(100'000, 'x');
  for (const std::size_t size :
       {std::size_t{1}, sizeof(SlotFrame) - 1, std::size_t{2000}, bytes.size()}) {
    const Stranger stranger(folder("slot-1"));
    ASSERT_TRUE(stranger.send(bytes.data(), size));
    collector_->pump();
    EXPECT_TRUE(stranger.closed()) << size;
    clock_.advance(2s);
  }
  {
    // a begin with more descriptors than are accepted
    const Stranger stranger(folder("slot-1"));
    ASSERT_TRUE(stranger.send(begin_frame("evil", "worker"), std::vector<int>(16, ring_.fd())));
    collector_->pump();
    EXPECT_TRUE(stranger.closed());
  }
  EXPECT_EQ(refused("frame"), 14);
  EXPECT_EQ(open_files(), before);
  expect_good_goes_on();
}

TEST_F(HostileClientTest, AFloodOfFramesEndsAndSoDoesAFloodOfConnections) {
  const auto stranger = admitted();
  std::uint64_t sent = 0;
  while (!stranger->closed() && sent < 100'000) {
    while (stranger->send(slot_frame(SlotKind::kGone))) ++sent;
    collector_->pump();
  }
  EXPECT_TRUE(stranger->closed());
  EXPECT_LT(sent, 2 * limits_.frames_at_once);
  EXPECT_EQ(refused("flood"), 1);
  expect_good_goes_on();

  const std::size_t before = open_files();
  std::vector<std::unique_ptr<Stranger>> many;
  for (int i = 0; i < 200; ++i) {
    many.push_back(std::make_unique<Stranger>(folder("slot-1")));
    collector_->pump();
  }
  // As many as may send, and those that wait in the kernel; the rest could not even connect.
  EXPECT_LE(std::ranges::count_if(many, [](const auto& one) { return one->connected(); }), 30);
  EXPECT_LE(open_files(), before + many.size() + limits_.clients_of_slot);
  expect_good_goes_on();
  many.clear();
  collector_->pump();
  EXPECT_EQ(open_files(), before);
}

TEST_F(HostileClientTest, AWriterThatDiesOrLiesSpoilsItsOwnRing) {
  TestRing ring(64);
  const auto stranger = admitted();
  ASSERT_TRUE(stranger->send(ring_frame(0), {ring.fd()}));
  ring.publish(step(1));
  ring.publish(step(2));
  ring.slot(1).seq = 0;  // died in the middle of the second
  collector_->pump();
  EXPECT_EQ(steps("evil"), 1);
  EXPECT_EQ(dropped("evil"), 1);
  ring.header().write_index = std::numeric_limits<std::uint64_t>::max() - 1;
  collector_->pump();
  ring.header().write_index = 0;
  collector_->pump();
  ring.header().capacity = 0xffffffff;
  ring.header().record_bytes = 0;
  collector_->pump();
  EXPECT_EQ(steps("evil"), 1);
  EXPECT_GT(dropped("evil"), 1e15);
  expect_good_goes_on();
}

TEST_F(HostileClientTest, ARingWithoutPagesTakesNone) {
  constexpr std::size_t kSize =
      PACELINE_HEADER_BYTES + std::size_t{PACELINE_RING_CAPACITY_MAX} * PACELINE_RECORD_BYTES;
  const UniqueFd hollow = memory(kSize, 0, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  paceline_ring_header header{};
  header.magic = PACELINE_RING_MAGIC;
  header.abi_major = PACELINE_ABI_MAJOR;
  header.header_bytes = PACELINE_HEADER_BYTES;
  header.record_bytes = PACELINE_RECORD_BYTES;
  header.capacity = PACELINE_RING_CAPACITY_MAX;
  header.write_index = PACELINE_RING_CAPACITY_MAX;
  ASSERT_EQ(::pwrite(hollow.get(), &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  const auto stranger = admitted();
  ASSERT_TRUE(stranger->send(ring_frame(0), {hollow.get()}));
  collector_->pump();
  EXPECT_EQ(dropped("evil"), PACELINE_RING_CAPACITY_MAX);
  struct stat is{};
  ASSERT_EQ(::fstat(hollow.get(), &is), 0);
  EXPECT_LE(is.st_blocks * 512, PACELINE_HEADER_BYTES)
      << "whoever reads a hole would be charged for it";
  expect_good_goes_on();
}

TEST_F(HostileClientTest, APodsRecordsAreReadToItsQuotaAndTheRestIsCounted) {
  TestRing ring(PACELINE_RING_CAPACITY_MAX);
  const auto stranger = admitted();
  ASSERT_TRUE(stranger->send(ring_frame(0), {ring.fd()}));
  for (std::uint64_t i = 0; i < PACELINE_RING_CAPACITY_MAX; ++i) ring.publish(step(i));
  collector_->pump();
  EXPECT_EQ(steps("evil"), limits_.records_per_second);
  EXPECT_EQ(dropped("evil"), PACELINE_RING_CAPACITY_MAX - limits_.records_per_second);
  for (std::uint64_t i = 0; i < 1000; ++i) ring.publish(step(i));
  clock_.advance(10ms);
  collector_->pump();
  EXPECT_EQ(steps("evil"), limits_.records_per_second * 1.01);
  // Reconnecting gives no more.
  for (std::uint64_t i = 0; i < 1000; ++i) ring.publish(step(i));
  for (int attempt = 0; attempt < 5; ++attempt) {
    stranger->send(begin_frame("evil", "worker"));
    stranger->send(ring_frame(0), {ring.fd()});
    collector_->pump();
  }
  EXPECT_EQ(steps("evil"), limits_.records_per_second * 1.01);
  expect_good_goes_on();
}

/// A node whose pods together have the quota of one pod.
class CrowdedNodeTest : public HostileClientTest {
 protected:
  CrowdedNodeTest() : HostileClientTest(crowded()) {}
  static CollectLimits crowded() {
    CollectLimits limits;
    limits.full_quotas = 1;
    return limits;
  }
};

TEST_F(CrowdedNodeTest, PodsShareANodesQuotaEqually) {
  TestRing ring(PACELINE_RING_CAPACITY_MAX);
  const auto stranger = admitted();
  ASSERT_TRUE(stranger->send(ring_frame(0), {ring.fd()}));
  for (std::uint64_t i = 0; i < PACELINE_RING_CAPACITY_MAX; ++i) ring.publish(step(i));
  collector_->pump();
  EXPECT_EQ(steps("evil"), limits_.records_per_second / 2);
  EXPECT_EQ(dropped("evil"), PACELINE_RING_CAPACITY_MAX - limits_.records_per_second / 2);
  expect_good_goes_on();
}

TEST_F(HostileClientTest, RanksBeyondAPodsOwnAreSharedAndAPodsOwnAreSure) {
  // Passthrough: the number of ranks is unknown.
  const auto stranger = admitted(1 << 24);
  std::vector<std::unique_ptr<TestRing>> rings;
  for (int rank = 0; rank < 100; ++rank) {
    rings.push_back(std::make_unique<TestRing>());
    stranger->send(ring_frame(rank, static_cast<std::uint64_t>(rank) + 1), {rings.back()->fd()});
    collector_->pump();
  }
  const auto found = series();
  EXPECT_EQ(
      std::ranges::count_if(
          found, [](const auto& entry) { return entry.first.starts_with("paceline_steps_total"); }),
      1 + 16);
  // As many rings of a rank as an occasional exec needs.
  for (std::uint64_t number = 200; number < 210; ++number) {
    rings.push_back(std::make_unique<TestRing>());
    stranger->send(ring_frame(0, number), {rings.back()->fd()});
  }
  collector_->pump();
  EXPECT_EQ(refused("ring"), 100 - 16 + 7);
  const auto late = launcher("slot-2", "late", 8);
  TestRing ring;
  ring.publish(step(1));
  late->add(1, ring_offer(7), ring.fd());
  collector_->pump();
  EXPECT_EQ(steps("late", 7), 1);
  expect_good_goes_on();
}

}  // namespace
}  // namespace paceline::agent
