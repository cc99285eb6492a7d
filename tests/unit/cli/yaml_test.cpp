// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/yaml/document.hpp"

namespace paceline::cli {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

ordered_json read(const std::string& text) {
  const auto documents = YamlReader("f").read(text);
  if (!documents) return documents.error().message;
  return documents->size() == 1 ? documents->front().value : ordered_json();
}

TEST(Yaml, NumbersAreThoseOfKubectl) {
  const ordered_json numbers = read(
      "[0400, 0o17, 0O17, 0x1f, 0XFF, -010, +7, -7, 0, 00, 08, 1.5, 1e3, -.5, 0x, 0xg, 0o8, "
      "+-1, "
      "0-1, 0x-1]");
  EXPECT_EQ(numbers.dump(),
            R"([256,15,15,31,255,-8,7,-7,0,0,8,1.5,1000.0,-0.5,"0x","0xg","0o8","+-1",)"
            R"("0-1","0x-1"])");
}

TEST(Yaml, TextStaysText) {
  EXPECT_EQ(read("[!!str 8, '0400', \"0x1f\", !!str true, !!str null]").dump(),
            R"(["8","0400","0x1f","true","null"])");
}

TEST(Yaml, MergeKeysAreCarriedOut) {
  EXPECT_EQ(read("a: &a {x: 1, y: {z: 2}}\nb: {<<: *a, x: 3}\nc: {y: 4, <<: *a}").dump(),
            R"({"a":{"x":1,"y":{"z":2}},"b":{"y":{"z":2},"x":3},"c":{"y":4,"x":1}})");
  // The first map decides, and a map that was merged may merge others.
  EXPECT_EQ(read("- &a {x: 1}\n- &b {x: 2, y: 2}\n- &c {<<: *b, z: 3}\n- {<<: [*a, *c]}").dump(),
            R"([{"x":1},{"x":2,"y":2},{"x":2,"y":2,"z":3},{"x":1,"z":3,"y":2}])");
  EXPECT_EQ(read("{\"<<\": 1}").dump(), R"({"<<":1})") << "in quotes it is a field";
}

TEST(Yaml, MergedFieldsHaveLines) {
  const auto documents = YamlReader("f").read("a: &a\n  x: 1\nb:\n  <<: *a\n  y: 2\n");
  ASSERT_TRUE(documents);
  EXPECT_EQ(line_of(documents->front().lines, "b.x"), 2);
  EXPECT_EQ(line_of(documents->front().lines, "b.y"), 5);
}

TEST(Yaml, MergeKeysThatCannotBeAreErrors) {
  EXPECT_THAT(read("a: {<<: 3}").dump(), HasSubstr("takes a map or a list of maps"));
  EXPECT_THAT(read("a: {<<: [{x: 1}, 3]}").dump(), HasSubstr("takes a map or a list of maps"));
  std::string laughs = "a0: &a0 {x: 1}\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " {<<: [" + before + ", " +
              before + "]}\n";
  }
  EXPECT_THAT(read(laughs).dump(), HasSubstr("more than 100000 values"));
}

}  // namespace
}  // namespace paceline::cli
