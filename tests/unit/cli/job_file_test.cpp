// SPDX-License-Identifier: Apache-2.0
#include "cli/run/job_file.hpp"

#include <gtest/gtest.h>

#include <string>

namespace paceline::cli {
namespace {

std::string error_of(const std::string& text) {
  const auto file = parse_job("job.yaml", text);
  return file ? "" : file.error().message;
}

TEST(JobFile, ScalarsMeanWhatTheApiServerReads) {
  const auto file = parse_job("f",
                              "a: 1\nb: '1'\nc: true\nd: yes\ne: 1.5\nf: ~\ng: 1Gi\nh: 0x10\ni: "
                              "\"\"\nj: -3\nk: 1e3\nl: .\n");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(
      file->document,
      nlohmann::json::parse(
          R"({"a":1,"b":"1","c":true,"d":"yes","e":1.5,"f":null,"g":"1Gi","h":16,"i":"","j":-3,"k":1000.0,"l":"."})"));
}

TEST(JobFile, KnowsTheLineOfEveryField) {
  const auto file = parse_job(
      "f",
      "spec:\n  roles:\n  - name: a\n    replicas: 2\n  - name: b\n    template:\n      spec: "
      "{containers: [{name: x}]}\n");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->line_of("spec.roles[0].replicas"), 4);
  EXPECT_EQ(file->line_of("spec.roles[1].name"), 5);
  EXPECT_EQ(file->line_of("spec.roles[1].template.spec.containers[0].command"), 7)
      << "a missing field is where its object is";
  EXPECT_EQ(file->line_of("metadata.name"), 1);
  EXPECT_EQ(describe(*file, {{"spec.roles[0].replicas", "2", "is odd", "write 3"}}).substr(0, 28),
            "f:4: spec.roles[0].replicas:");
}

TEST(JobFile, ErrorsNameFileAndLine) {
  EXPECT_TRUE(error_of("a: 1\nb: [1, 2\n").starts_with("job.yaml:3: not YAML"))
      << error_of("a: 1\nb: [1, 2\n");
  EXPECT_TRUE(error_of("a: 1\n\ta: 2\n").starts_with("job.yaml:2: not YAML"));
  EXPECT_TRUE(error_of("a: 1\nb: 2\na: 3\n").starts_with("job.yaml:3: \"a\" is written twice"));
  EXPECT_TRUE(error_of("a: 1\n---\nb: 2\n").starts_with("job.yaml:3: a second document"));
  EXPECT_TRUE(error_of("").starts_with("job.yaml:1: the file holds no job"));
  EXPECT_TRUE(error_of("? [a, b]\n: c\n").find("a key is not a word") != std::string::npos);
  EXPECT_TRUE(error_of(std::string(2 << 20, ' ')).find("1 MiB") != std::string::npos);
}

TEST(JobFile, HostileFilesEndInAnError) {
  // Each line doubles the one before: half a page of YAML makes a million values.
  std::string laughs = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + ", " + before +
              "]\n";
  }
  EXPECT_NE(error_of(laughs), "");
  EXPECT_NE(error_of("a: " + std::string(200, '[') + std::string(200, ']')).find("levels deep"),
            std::string::npos);
}

TEST(JobFile, AMissingFileIsNamed) {
  const auto file = read_job("/nowhere/job.yaml");
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().message, "cannot read /nowhere/job.yaml: No such file or directory");
  EXPECT_FALSE(read_job("/tmp").has_value());
}

}  // namespace
}  // namespace paceline::cli
