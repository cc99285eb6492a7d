// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/frame.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace paceline::rendezvous {
namespace {

TEST(Frame, SurvivesAnyCutting) {
  const std::string bytes =
      encode_frame("hello") + encode_frame(std::string(300, 'x')) + encode_frame("{}");
  for (std::size_t piece = 1; piece < bytes.size(); piece += 7) {
    FrameDecoder decoder(1024);
    std::vector<std::string> frames;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      decoder.push(std::string_view(bytes).substr(at, piece));
      while (true) {
        auto frame = decoder.next();
        ASSERT_TRUE(frame.has_value());
        if (!*frame) break;
        frames.push_back(**frame);
      }
    }
    EXPECT_EQ(frames, (std::vector<std::string>{"hello", std::string(300, 'x'), "{}"}));
  }
}

TEST(Frame, RefusesEmptyAndHugeOnes) {
  FrameDecoder decoder(1024);
  decoder.push(std::string("\0\0\0\0", 4));
  EXPECT_FALSE(decoder.next().has_value());
  FrameDecoder other(1024);
  other.push("\xff\xff\xff\xff");
  EXPECT_FALSE(other.next().has_value());
  FrameDecoder exact(5);
  exact.push(encode_frame("12345"));
  EXPECT_EQ(**exact.next(), "12345");
  exact.push(encode_frame("123456"));
  EXPECT_FALSE(exact.next().has_value());
}

}  // namespace
}  // namespace paceline::rendezvous
