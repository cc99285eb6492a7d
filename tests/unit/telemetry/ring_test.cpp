// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "common/telemetry/ring/ring_reader.hpp"
#include "testing/ring_fixture.hpp"

namespace paceline::telemetry {
namespace {

using test::step;
using test::TestRing;

std::vector<std::uint64_t> read_steps(RingReader& reader) {
  std::vector<std::uint64_t> steps;
  reader.poll([&](const paceline_step_record& record) { steps.push_back(record.step); });
  return steps;
}

RingReader reader_of(const TestRing& ring) {
  auto view = RingView::open(ring.fd());
  EXPECT_TRUE(view.has_value());
  return RingReader(std::move(*view));
}

TEST(RingView, RefusesARingThatCouldShrinkUnderItsReader) {
  const TestRing unsealed(8, 0);
  EXPECT_FALSE(RingView::open(unsealed.fd()).has_value());
  const TestRing half(8, F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_FALSE(RingView::open(half.fd()).has_value());
  const UniqueFd file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(RingView::open(file.get()).has_value());
}

TEST(RingView, RefusesGeometryThatDoesNotFit) {
  const auto refused = [](auto change) {
    TestRing ring;
    change(ring.header());
    return !RingView::open(ring.fd()).has_value();
  };
  EXPECT_FALSE(refused([](paceline_ring_header&) {}));
  EXPECT_TRUE(refused([](paceline_ring_header& header) { header.magic = 1; }));
  EXPECT_TRUE(refused([](paceline_ring_header& header) { header.abi_major = 2; }));
  EXPECT_TRUE(refused([](paceline_ring_header& header) { header.capacity = 9; }));
  EXPECT_TRUE(refused([](paceline_ring_header& header) { header.capacity = 0; }));
  EXPECT_TRUE(refused([](paceline_ring_header& header) { header.capacity = 0xffffffff; }));
  EXPECT_TRUE(refused([](paceline_ring_header& header) { header.record_bytes = 0; }));
  EXPECT_TRUE(refused([](paceline_ring_header& header) { header.header_bytes = 64; }));
  EXPECT_TRUE(refused([](paceline_ring_header& header) { header.header_bytes = 0xffffffc0; }));
  EXPECT_FALSE(refused([](paceline_ring_header& header) { header.abi_minor = 7; }));
}

TEST(RingView, GeometryIsNotReadAgainFromTheWriter) {
  TestRing ring;
  RingReader reader = reader_of(ring);
  ring.publish(step(1));
  ring.header().capacity = 0xffffffff;
  ring.header().record_bytes = 0;
  EXPECT_EQ(read_steps(reader), std::vector<std::uint64_t>{1});
}

TEST(RingReader, ReadsEachRecordOnceAndReadersDoNotDisturbEachOther) {
  TestRing ring;
  RingReader quick = reader_of(ring);
  RingReader slow = reader_of(ring);
  ring.publish(step(1));
  ring.publish(step(2));
  EXPECT_EQ(read_steps(quick), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_TRUE(read_steps(quick).empty());
  ring.publish(step(3));
  EXPECT_EQ(read_steps(quick), std::vector<std::uint64_t>{3});
  EXPECT_EQ(read_steps(slow), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_EQ(quick.gaps() + slow.gaps(), 0U);
}

TEST(RingReader, CountsWhatWasOverwritten) {
  TestRing ring(4);
  RingReader reader = reader_of(ring);
  for (std::uint64_t number = 1; number <= 10; ++number) ring.publish(step(number));
  EXPECT_EQ(read_steps(reader), (std::vector<std::uint64_t>{7, 8, 9, 10}));
  EXPECT_EQ(reader.gaps(), 6U);
}

TEST(RingReader, SkipsASlotThatIsBeingWritten) {
  TestRing ring;
  RingReader reader = reader_of(ring);
  ring.publish(step(1));
  ring.publish(step(2));
  ring.slot(0).seq = 0;  // the writer was killed while it wrote
  EXPECT_EQ(read_steps(reader), std::vector<std::uint64_t>{2});
  EXPECT_EQ(reader.gaps(), 1U);
}

TEST(RingReader, RefusesAbsurdRecordsAndAWriterThatGoesBack) {
  TestRing ring;
  RingReader reader = reader_of(ring);
  auto longer_than_wall = step(1);
  longer_than_wall.host_ns[PACELINE_PHASE_BACKWARD] = 1'000'000'000;
  auto overflowing = step(2);
  for (auto& phase : overflowing.host_ns) phase = ~std::uint64_t{0};
  auto unknown_version = step(3);
  unknown_version.version = 9;
  auto unknown_kind = step(4);
  unknown_kind.kind = 77;
  auto year = step(5);
  year.wall_ns = ~std::uint64_t{0};
  auto tokens = step(7);
  tokens.valid |= PACELINE_VALID_TOKENS;
  tokens.tokens = 1ULL << 62U;
  for (const auto& record :
       {longer_than_wall, overflowing, unknown_version, unknown_kind, year, tokens})
    ring.publish(record);
  ring.publish(step(6));
  EXPECT_EQ(read_steps(reader), std::vector<std::uint64_t>{6});
  EXPECT_EQ(reader.invalid(), 6U);
  ring.header().write_index = 2;
  EXPECT_TRUE(read_steps(reader).empty());
  EXPECT_EQ(reader.invalid(), 7U);
  ring.header().write_index = ~std::uint64_t{0};
  read_steps(reader);  // returns, and counts the records that it missed
  EXPECT_GT(reader.gaps(), 1'000'000U);
}

}  // namespace
}  // namespace paceline::telemetry
