// SPDX-License-Identifier: Apache-2.0
#include "comm/failure/call.hpp"

#include <array>

#include "comm/codec/coding.hpp"
#include "comm/codec/sum.hpp"

namespace paceline::comm {

std::string describe(const Call& call) {
  constexpr std::array<const char*, 10> kNames{
      "nothing", "all_reduce", "reduce_scatter",    "all_gather", "broadcast",
      "barrier", "all_to_all", "sparse all_reduce", "sending",    "reduce"};
  const auto name = static_cast<std::size_t>(call.kind);
  std::string text = name < kNames.size() ? kNames[name] : "something unknown";
  text += " #" + std::to_string(call.sequence);
  if (call.kind == Kind::kBarrier || call.kind == Kind::kNone) return text;
  if (call.kind == Kind::kAllToAll && call.root != 0) return text + " of pieces that differ";
  text += " of " + std::to_string(call.count) + " " +
          (is_type(call.type) ? name_of(Type{call.type}) : "unknown");
  if (call.kind == Kind::kAllReduce && call.root != 0) {
    text += std::string(" as ") + name_of(static_cast<Codec>(call.root & 0xff));
    if (const auto keep = static_cast<std::uint32_t>(call.root >> 8); keep != 0)
      text += " of " + std::to_string(keep) + " in a million";
    if (call.root >> 40 != 0) text += " with momentum " + std::to_string(call.root >> 40) + "/1000";
  }
  if (call.kind == Kind::kBroadcast) text += " from rank " + std::to_string(call.root);
  if (call.kind == Kind::kReduce) text += " to rank " + std::to_string(call.root);
  return text;
}

}  // namespace paceline::comm
