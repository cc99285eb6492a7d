// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/yaml_writer.hpp"

#include <gtest/gtest.h>

#include "cli/yaml/document.hpp"

namespace paceline::cli {
namespace {

Json read_back(const Json& value) {
  const Json document{{"value", value}, {"list", {value, {{"a", {{value}}}}}}};
  const auto documents = YamlReader("f").read(to_yaml(document));
  if (!documents || documents->size() != 1) return "not readable: " + to_yaml(document);
  EXPECT_EQ(documents->front().value, document) << to_yaml(document);
  return documents->front().value["value"];
}

TEST(YamlWriter, StringsStayStrings) {
  for (const char* text :
       {"",           " ",        "plain",   "true",  "Yes",    "off",    "null",       "~",
        "1",          "1e3",      "0x10",    "-",     "- a",    "a: b",   "a #b",       "#",
        "&a",         "*a",       "!a",      "%",     "@a",     "`",      "'",          "\"",
        "{a}",        "[a]",      ",",       "a,b",   "a\nb",   "a\nb\n", "a\n\nb\n",   "a\n\n",
        " a\nb",      "a \nb",    "a\n b\n", "\ta\n", "a\r\nb", "\x7f\n", "ä",          "ä\nö\n",
        "---\na\n",   "a\n---\n", "...",     "? a",   "| a",    "> a",    "=",          "<<",
        "2026-01-01", "12:30:00", "1_000",   ".inf",  "64Gi",   "90s",    "0x1f",       "0xab",
        "1e",         "-e",       "--",      "---",   "a:b",    "a:",     "a\n   \nb\n"})
    EXPECT_EQ(read_back(text), Json(text));
}

TEST(YamlWriter, OtherValuesStayWhatTheyAre) {
  for (const char* text : {"1", "-3", "1.5", "true", "null", "[]", "{}", "[[1, 2], [], [{}]]",
                           R"({"a": [], "b": {"c": [1, {"d": "e"}]}})", R"([{"a": [1]}, {}])"})
    EXPECT_EQ(read_back(Json::parse(text)), Json::parse(text));
}

TEST(YamlWriter, WritesAsAPersonWould) {
  const Json document = Json::parse(
      R"({"kind": "Job", "spec": {"command": ["python3", "train.py", "--lr=0.1"], "env": [{"name":
      "A", "value": "1"}], "script": "set -e\nrun\n", "empty": {}}})");
  EXPECT_EQ(to_yaml(document), R"(kind: Job
spec:
  command: [python3, train.py, --lr=0.1]
  env:
  - name: A
    value: "1"
  script: |
    set -e
    run
  empty: {}
)");
}

}  // namespace
}  // namespace paceline::cli
