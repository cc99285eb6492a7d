// SPDX-License-Identifier: Apache-2.0
// A ring whose writer may store anything at any time, in header and records. The input is a list of
// edits (place: 3 bytes, count: 1 byte, bytes), and the collector reads after each. The first byte
// is the number of records.
#include <cmath>
#include <cstring>

#include "common/telemetry/collector.hpp"
#include "common/telemetry/metrics/text_sink.hpp"
#include "testing/ring_fixture.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace paceline;
using namespace paceline::telemetry;

constexpr std::uint32_t kMostRecords = 16;
constexpr int kMostEdits = 64;

paceline_ring_offer offer() {
  paceline_ring_offer value{};
  value.magic = PACELINE_OFFER_MAGIC;
  value.version = PACELINE_OFFER_VERSION;
  value.size = sizeof value;
  return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Bytes bytes(data, size);
  test::TestRing ring(1 + bytes.byte() % kMostRecords);
  const std::size_t room =
      PACELINE_HEADER_BYTES + std::size_t{PACELINE_RECORD_BYTES} * ring.header().capacity;
  auto* base = reinterpret_cast<std::byte*>(&ring.header());
  const auto edit = [&] {
    const std::size_t at = bytes.number(3) % room;
    const std::string_view piece = bytes.take(bytes.byte());
    std::memcpy(base + at, piece.data(), std::min(piece.size(), room - at));
  };
  const bool before = bytes.byte() % 2 == 1;  // edits a reader has not yet mapped
  if (before) edit();
  ManualClock clock;
  Collector collector({"ns", "job", "worker", "node-a"}, clock);
  collector.begin_attempt(0, 0, 0, 1);
  const auto key = collector.add(offer(), ring.fd());
  if (!key) return 0;
  for (int i = 0; i < kMostEdits && !bytes.empty(); ++i) {
    if (bytes.byte() % 4 == 0) {
      ring.publish(test::step(static_cast<std::uint64_t>(i) + 1));
    } else {
      edit();
    }
    collector.poll();
    clock.advance(std::chrono::seconds(1));
  }
  for (const RankSummary& rank : collector.summaries())
    fuzz::require(std::isfinite(rank.p50) && rank.p50 >= 0, "a step time is a number");
  TextSink sink;
  collector.export_metrics(sink);
  collector.remove(*key);
  return 0;
}
