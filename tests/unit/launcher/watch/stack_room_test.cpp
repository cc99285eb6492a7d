// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "launcher/watch/stack_capture.hpp"

namespace paceline::launcher {
namespace {

TEST(StackRoom, OneFrameHoldsTheStacksOfAllRanks) {
  EXPECT_EQ(stack_room(1), rendezvous::kMostStack);
  EXPECT_EQ(stack_room(64), rendezvous::kMostStack) << "as many as the operator starts in a pod";
  for (const std::size_t ranks : {std::size_t{85}, rendezvous::kMostReportedRanks}) {
    EXPECT_GT(stack_room(ranks), 1024U) << "the main thread is at the end, and needs so much";
    // Each character is written as two.
    rendezvous::CapturedStacks captured;
    for (std::size_t rank = 0; rank < ranks; ++rank)
      captured.ranks.push_back({static_cast<int>(rank), std::string(stack_room(ranks) - 32, '"')});
    const std::string frame = to_json(rendezvous::Message{captured});
    EXPECT_LE(frame.size(), rendezvous::kMemberLimit) << ranks;
    EXPECT_TRUE(rendezvous::parse_message(frame).has_value()) << ranks;
  }
}

}  // namespace
}  // namespace paceline::launcher
