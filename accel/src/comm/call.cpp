// SPDX-License-Identifier: Apache-2.0
#include "call.hpp"

#include <array>

#include "sum.hpp"

namespace paceline::comm {

std::string describe(const Call& call) {
  constexpr std::array<const char*, 6> kNames{"nothing",   "allreduce", "reduce-scatter",
                                              "allgather", "broadcast", "barrier"};
  const auto kind = static_cast<std::size_t>(call.kind);
  std::string text = kind < kNames.size() ? kNames[kind] : "something unknown";
  text += " #" + std::to_string(call.sequence);
  if (call.kind == Kind::kBarrier || call.kind == Kind::kNone) return text;
  text += " of " + std::to_string(call.count) + " " + (is_type(call.type) ? name_of(Type{call.type}) : "unknown");
  if (call.kind == Kind::kBroadcast) text += " from rank " + std::to_string(call.root);
  return text;
}

}  // namespace paceline::comm
