// SPDX-License-Identifier: Apache-2.0
// The bytes of a watch, cut into chunks of any size: decoded into events and projected into every
// store of the operator. The first byte is the chunk size.
#include "common/kube/client/frame_decoder.hpp"
#include "operator/apply/stores.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace paceline;
  constexpr std::size_t kMostBytes = 64 * 1024;
  fuzz::Bytes bytes(data, size);
  const std::size_t piece = 1 + bytes.byte();
  kube::FrameDecoder decoder(kMostBytes);
  apply::Stores stores;
  const auto apply = [&](const kube::WatchEvent& event) {
    for (kube::ObjectSink* sink : {static_cast<kube::ObjectSink*>(&stores.pods),
                                   static_cast<kube::ObjectSink*>(&stores.jobs),
                                   static_cast<kube::ObjectSink*>(&stores.nodes),
                                   static_cast<kube::ObjectSink*>(&stores.quotas),
                                   static_cast<kube::ObjectSink*>(&stores.priorities),
                                   static_cast<kube::ObjectSink*>(&stores.profiles)})
      (void)sink->apply(event);
    return true;
  };
  while (!bytes.empty()) {
    if (!decoder.feed(bytes.take(piece), apply)) break;
    fuzz::require(decoder.unfinished() <= kMostBytes, "an unfinished event stays within its limit");
  }
  for (const auto& pod : stores.pods.list()) {
    fuzz::require(!pod->gang || pod->gang->termination_message.size() <= 4096,
                  "a termination message is bounded");
  }
  return 0;
}
