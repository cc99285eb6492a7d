// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/effects.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace paceline::summary {
namespace {

namespace fs = std::filesystem;

std::string document_of(const std::string& list) {
  return R"({"version":1,"effects":[)" + list + "]}";
}

TEST(EffectsDocument, IsReadEntryByEntry) {
  const auto effects =
      parse_effects(document_of(R"({"feature":"compile","kept":true,"gain":0.214,"reason":"a\nb"},)"
                                R"({"feature":"loader","kept":false})"));
  ASSERT_TRUE(effects.has_value());
  EXPECT_EQ(*effects, (Effects{{"compile", true, 0.214, "a b"}, {"loader", false, {}, ""}}));
  EXPECT_EQ(parse_effects(document_of("")), Effects{});
}

TEST(EffectsDocument, AProgramCannotMakeItWhatItIsNot) {
  for (const char* text :
       {"", "{}", "[]", "nonsense", R"({"version":2,"effects":[]})", R"({"version":1})",
        R"({"version":1,"effects":{}})", "{\"version\":1,\"effects\":[],\"x\":\"\xff\"}"})
    EXPECT_FALSE(parse_effects(text).has_value()) << text;
  for (const char* entry :
       {"1", "null", R"({"feature":1,"kept":true})", R"({"feature":"compile"})",
        R"({"feature":"compile","kept":1})", R"({"feature":"\"} 1\nup 1","kept":true})",
        R"({"feature":"","kept":true})"})
    EXPECT_EQ(parse_effects(document_of(entry)), Effects{}) << entry;
  for (const char* gain : {"-2", "1e9", "\"1\"", "null", "true"}) {
    const auto effects = parse_effects(
        document_of(std::string(R"({"feature":"loader","kept":true,"gain":)") + gain + "}"));
    EXPECT_EQ(effects, (Effects{{"loader", true, std::nullopt, ""}})) << gain;
  }
  const auto twice = parse_effects(
      document_of(R"({"feature":"loader","kept":true},{"feature":"loader","kept":false})"));
  EXPECT_EQ(twice->size(), 1U);
}

TEST(EffectsDocument, ReasonsAreCutBetweenCharacters) {
  std::string reason = "x";
  while (reason.size() < 1000) reason += "é";
  const auto effects = parse_effects(
      document_of(R"({"feature":"loader","kept":true,"reason":")" + reason + R"("})"));
  EXPECT_EQ(effects->front().reason, reason.substr(0, 255));
}

TEST(EffectsDocument, TellsWhetherAChangeIsBeingTried) {
  EXPECT_TRUE(trial_in(R"({"version":1,"trial":true,"effects":[]})"));
  for (const char* text : {R"({"version":1,"trial":false,"effects":[]})", R"({"trial":true})",
                           R"({"version":1,"trial":"yes"})", "[]", ""})
    EXPECT_FALSE(trial_in(text)) << text;
}

TEST(EffectsLine, SaysWhatCameOfEachFeature) {
  EXPECT_EQ(effects_line(std::nullopt), "");
  EXPECT_EQ(effects_line(Effects{{"compile", true, 0.2143, "r"},
                                 {"optimizer", false, -0.004, "r"},
                                 {"loader", true, std::nullopt, "r"},
                                 {"precision", false, std::nullopt, "r"}}),
            "compile +21.4 % (kept), optimizer -0.4 % (rolled back), loader kept, precision left");
}

struct EffectsFile : ::testing::Test {
  EffectsFile() { fs::create_directories(root); }
  ~EffectsFile() override { fs::remove_all(root); }
  fs::path put(const std::string& name, const std::string& text) const {
    std::ofstream(root / name) << text;
    return root / name;
  }
  const fs::path root = fs::temp_directory_path() / ("effects-" + std::to_string(::getpid()));
};

TEST_F(EffectsFile, OnlyAShortRegularFileIsRead) {
  const std::string entry = R"({"feature":"loader","kept":true})";
  const fs::path plain = put("plain", document_of(entry));
  EXPECT_EQ(read_effects(plain), (Effects{{"loader", true, std::nullopt, ""}}));
  EXPECT_FALSE(read_effects(root / "missing").has_value());
  EXPECT_FALSE(read_effects(root).has_value());
  EXPECT_FALSE(read_effects(put("long", document_of(entry) + std::string(16 * 1024, ' '))));
  EXPECT_FALSE(read_effects(put("empty", "")).has_value());
  fs::create_symlink(plain, root / "link");
  EXPECT_FALSE(read_effects(root / "link").has_value());
  ASSERT_EQ(::mkfifo((root / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(read_effects(root / "pipe").has_value());
}

}  // namespace
}  // namespace paceline::summary
