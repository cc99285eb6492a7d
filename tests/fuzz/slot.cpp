// SPDX-License-Identifier: Apache-2.0
// Frames over a slot's socket, to either end. Either a container sends any frames to its node's
// agent, with or without a ring, while a pod that keeps the rules has its steps counted. Or an
// agent sends any frames to a launcher.
//
// The input is a list of messages. A message is: kind, flags, number, start and read (1 byte each);
// a count of edits (1 byte), each a place and a byte; and the size of the message (1 byte) before
// its end.
#include "common/base/log.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "agent/collect/slot_collector.hpp"
#include "common/telemetry/metrics/text_sink.hpp"
#include "common/telemetry/slot/slot_client.hpp"
#include "testing/ring_fixture.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

namespace fs = std::filesystem;
using namespace paceline;  // NOLINT(google-build-using-namespace): a program of its own
using telemetry::SlotFrame;
using telemetry::SlotKind;
using telemetry::test::ring_offer;
using telemetry::test::TestRing;

constexpr int kMostMessages = 48;
constexpr int kMostEdits = 8;

struct Message {
  std::array<std::byte, telemetry::kMostSlotFrame + 64> bytes{};
  std::size_t size = 0;
  bool brings_ring = false;
};

Message message(fuzz::Bytes& input) {
  SlotFrame frame;
  frame.size = sizeof frame;
  frame.kind = input.byte() % 12;
  const unsigned flags = input.byte();
  frame.ring = input.byte() % 4;
  frame.start = input.byte();
  frame.read = input.byte();
  frame.processes = static_cast<int>(flags % 5);
  frame.features = flags & 8U;
  frame.features >>= 3U;
  frame.offer = ring_offer(static_cast<int>(flags >> 5U), (flags & 16U) == 0 ? 0 : 1);
  frame.attempt = frame.offer.attempt;
  std::strcpy(frame.job.data(), "evil");
  std::strcpy(frame.role.data(), "worker");
  Message made;
  std::memcpy(made.bytes.data(), &frame, sizeof frame);
  for (int edits = input.byte() % kMostEdits; edits > 0; --edits) {
    const std::size_t at = input.number(2) % made.bytes.size();
    made.bytes.at(at) = static_cast<std::byte>(input.byte());
  }
  const std::size_t cut = input.byte();
  made.size = cut == 0 ? sizeof frame : (cut * 5) % made.bytes.size();
  const auto kind = static_cast<SlotKind>(frame.kind);
  made.brings_ring = (kind == SlotKind::kRing || kind == SlotKind::kPast) != (flags == 0xff);
  return made;
}

sockaddr_un address_of(const fs::path& folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder / telemetry::kSlotSocket).string().copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

UniqueFd new_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void to_agent(const fs::path& folder, fuzz::Bytes& input) {
  ManualClock clock;
  agent::CollectLimits limits;
  limits.frames_at_once = 2 * kMostMessages;
  limits.sure_ranks = 2;
  limits.more_ranks = 1;
  limits.rings_of_rank = 2;
  agent::SlotCollector collector("node", clock, limits);
  for (const char* slot : {"good", "evil"})
    fuzz::require(collector.open(slot, folder / slot).has_value(), "a slot has its socket");
  telemetry::SlotClient good(folder / "good", {"good", "worker", 0, 0}, clock);
  good.begin_attempt(0, 0, 0, 1);
  TestRing ring;
  good.add(1, ring_offer(0), ring.fd());
  good.tend();
  const UniqueFd evil = new_socket();
  const sockaddr_un address = address_of(folder / "evil");
  ::connect(evil.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const agent::SlotPods pods{{"good", agent::PodName{"ns", "good-worker-0-0"}},
                             {"evil", agent::PodName{"ns", "evil-worker-0-0"}}};
  TestRing others(4);
  others.header().capabilities = input.byte();
  std::uint64_t published = 0;
  // At least so often that the kubelet's answer arrives.
  for (int i = 0; i < kMostMessages && (i < 2 || !input.empty()); ++i) {
    const Message next = message(input);
    telemetry::send_message(evil.get(), next.bytes.data(), next.size,
                            next.brings_ring ? others.fd() : -1);
    others.publish(telemetry::test::step(static_cast<std::uint64_t>(i) + 1));
    ring.publish(telemetry::test::step(++published));
    collector.pump();
    collector.tell(pods, clock.steady());
    good.tend();
    clock.advance(std::chrono::milliseconds(250));
  }
  collector.pump();
  good.tend();
  collector.pump();
  fuzz::require(good.held(), "a pod that keeps the rules is served");
  telemetry::TextSink sink;
  collector.export_metrics(sink);
  const std::string counted =
      "paceline_steps_total{namespace=\"ns\",job=\"good\",role=\"worker\",rank=\"0\","
      "node=\"node\",gpu=\"\"} " +
      std::to_string(std::min<std::uint64_t>(published, kMostMessages)) + "\n";
  fuzz::require(sink.text().find(counted) != std::string::npos,
                "each step of another pod is counted once");
}

void to_launcher(const fs::path& folder, fuzz::Bytes& input) {
  ManualClock clock;
  const UniqueFd listener = new_socket();
  const sockaddr_un address = address_of(folder / "good");
  ::unlink(address.sun_path);
  ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::listen(listener.get(), 4);
  telemetry::SlotClient client(folder / "good", {"good", "worker", 0, 0}, clock);
  client.begin_attempt(0, 0, 0, 4);
  TestRing first;
  TestRing second;
  UniqueFd agent;
  std::uint32_t attempt = 0;
  for (int i = 0; i < kMostMessages && !input.empty(); ++i) {
    switch (input.byte() % 8) {
      case 0: agent.reset(); break;
      case 1: client.begin_attempt(++attempt, 0, 0, 4); break;
      case 2:
        client.add(1 + static_cast<std::uint64_t>(i), ring_offer(0, attempt), first.fd());
        break;
      case 3:
        client.add(1 + static_cast<std::uint64_t>(i), ring_offer(1, attempt), second.fd());
        break;
      case 4: client.remove(input.byte() % kMostMessages); break;
      default: {
        const Message next = message(input);
        if (agent.valid()) telemetry::send_message(agent.get(), next.bytes.data(), next.size, -1);
      }
    }
    first.publish(telemetry::test::step(static_cast<std::uint64_t>(i) + 1));
    client.tend();
    if (!agent.valid())
      agent.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    SlotFrame frame;
    while (agent.valid() &&
           telemetry::receive_message(agent.get(), &frame, sizeof frame).size > 0) {
      const bool about_ring = frame.kind == static_cast<std::uint16_t>(SlotKind::kRing) ||
                              frame.kind == static_cast<std::uint16_t>(SlotKind::kPast);
      fuzz::require(!about_ring || frame.start <= static_cast<std::uint64_t>(i) + 1,
                    "a ring begins where it is");
      fuzz::require(!about_ring || frame.read >= frame.start, "what is counted is read");
    }
    clock.advance(std::chrono::milliseconds(500));
  }
  fuzz::require(client.held() == client.served_here().has_value(),
                "either serves all that the other does not");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fs::path kFolder =
      (fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
      ("paceline-fuzz-slot-" + std::to_string(::getpid()));
  static const int kCleanUp = std::atexit([] { fs::remove_all(kFolder); });
  static const bool kMade =
      fs::create_directories(kFolder / "good") && fs::create_directories(kFolder / "evil");
  static_cast<void>(kCleanUp);
  static_cast<void>(kMade);
  spdlog::set_level(spdlog::level::off);
  fuzz::Bytes input(data, size);
  if (input.byte() % 2 == 0) {
    to_agent(kFolder, input);
  } else {
    to_launcher(kFolder, input);
  }
  return 0;
}
