// SPDX-License-Identifier: Apache-2.0
// Frames that members and unknown peers send to rank 0's launcher. Each line is one frame after a
// character that names the connection; `!` closes it, `+` lets time pass. If the first byte is 0,
// the input is the raw bytes of one connection instead.
#include "launcher/rendezvous/frame.hpp"
#include "launcher/rendezvous/gang.hpp"
#include "launcher/rendezvous/message.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace {

using namespace paceline;
using namespace paceline::rendezvous;

void raw(std::string_view bytes) {
  FrameDecoder decoder(kHelloLimit);
  decoder.push(bytes);
  for (;;) {
    const auto frame = decoder.next();
    if (!frame || !*frame) return;
    fuzz::require((*frame)->size() <= kHelloLimit, "no frame is larger than its limit");
    (void)parse_message(**frame);
  }
}

void lines(std::string_view text) {
  Gang gang({.job_uid = "uid",
             .token = "token",
             .node_count = 2,
             .max_restarts = 2,
             .rules = {},
             .master_port = [](int) { return std::uint16_t{29500}; },
             .port_base = [](int) { return std::uint16_t{25000}; }});
  SteadyTime now{std::chrono::hours(1)};
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const auto id = static_cast<ConnectionId>(static_cast<unsigned char>(line[0]) % 4);
    const int attempt = gang.attempt();
    if (line.substr(1) == "!") {
      (void)gang.on_closed(id, now);
    } else if (line.substr(1) == "+") {
      now += std::chrono::seconds(3);
      (void)gang.on_tick(now);
    } else if (const auto message = parse_message(line.substr(1))) {
      fuzz::require(parse_message(to_json(*message)).has_value(),
                    "what was read can be written and read again");
      (void)gang.on_message(id, *message, now);
    }
    fuzz::require(gang.attempt() >= attempt, "the attempt never falls");
    fuzz::require(gang.gathered() <= gang.expected(), "nobody is counted twice");
    (void)gang.ranks();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0 && data[0] == 0) {
    raw(fuzz::text(data + 1, size - 1));
  } else {
    lines(fuzz::text(data, size));
  }
  return 0;
}
