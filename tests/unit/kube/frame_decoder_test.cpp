// SPDX-License-Identifier: Apache-2.0
#include "common/kube/client/frame_decoder.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace paceline::kube {
namespace {

const std::string kStream =
    R"({"type":"ADDED","object":{"metadata":{"name":"a","note":"brace } quote \" newline \n"}}})"
    "\n"
    R"({"object":{"metadata":{"name":"b"}},"type":"MODIFIED"})"
    "\n\n"
    R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}})"
    "\n";

struct Collected {
  std::vector<WatchEventType> types;
  std::vector<std::string> objects;
  WatchHandler handler() {
    return [this](const WatchEvent& event) {
      types.push_back(event.type);
      objects.emplace_back(event.object);
      return true;
    };
  }
};

TEST(FrameDecoder, EveryWayToSplitTheStreamGivesTheSameEvents) {
  Collected whole;
  FrameDecoder one(1 << 20);
  ASSERT_TRUE(one.feed(kStream, whole.handler()));
  ASSERT_EQ(whole.types, (std::vector{WatchEventType::kAdded, WatchEventType::kModified,
                                      WatchEventType::kBookmark}));
  EXPECT_EQ(whole.objects[1], R"({"metadata":{"name":"b"}})");
  for (std::size_t split = 0; split <= kStream.size(); ++split) {
    Collected parts;
    FrameDecoder decoder(1 << 20);
    ASSERT_TRUE(decoder.feed(std::string_view(kStream).substr(0, split), parts.handler()));
    ASSERT_TRUE(decoder.feed(std::string_view(kStream).substr(split), parts.handler()));
    EXPECT_EQ(parts.types, whole.types) << split;
    EXPECT_EQ(parts.objects, whole.objects) << split;
    EXPECT_EQ(decoder.unfinished(), 0U);
  }
  Collected bytes;
  FrameDecoder decoder(1 << 20);
  for (const char c : kStream) ASSERT_TRUE(decoder.feed(std::string_view(&c, 1), bytes.handler()));
  EXPECT_EQ(bytes.objects, whole.objects);
}

TEST(FrameDecoder, ErrorEventIsTheErrorItCarries) {
  Collected seen;
  const auto result = FrameDecoder(1 << 20).feed(
      R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}})"
      "\n",
      seen.handler());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kGone);
  EXPECT_NE(result.error().message.find("too old"), std::string::npos);
}

TEST(FrameDecoder, EventOverTheLimitEndsTheWatchBeforeItIsHeld) {
  Collected seen;
  FrameDecoder decoder(1000);
  const std::string piece(600, 'x');
  ASSERT_TRUE(decoder.feed(piece, seen.handler()));
  const auto result = decoder.feed(piece, seen.handler());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kExhausted);
  EXPECT_LE(decoder.unfinished(), 1000U);
}

TEST(FrameDecoder, TextThatIsNoEventIsRefused) {
  for (const char* text : {"hello\n", "{}\n", "[1]\n",
                           R"({"type":"ADDED"})"
                           "\n",
                           R"({"type":"SPLIT","object":{}})"
                           "\n",
                           R"({"type":"ADDED","object":7})"
                           "\n",
                           R"({"type":"ADDED","object":{)"
                           "\n"}) {
    Collected seen;
    const auto result = FrameDecoder(1 << 20).feed(text, seen.handler());
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, Code::kInvalid) << text;
    EXPECT_TRUE(seen.types.empty());
  }
}

TEST(FrameDecoder, HandlerThatHasEnoughGetsNoMore) {
  int calls = 0;
  const auto result =
      FrameDecoder(1 << 20).feed(kStream, [&](const WatchEvent&) { return ++calls < 2; });
  ASSERT_TRUE(result);
  EXPECT_FALSE(*result);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace paceline::kube
