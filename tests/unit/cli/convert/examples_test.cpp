// SPDX-License-Identifier: Apache-2.0
// Every job of tests/fixtures/convert becomes what stands beside it in NAME.expected, and Paceline
// accepts it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "cli/convert/convert.hpp"
#include "cli/yaml/document.hpp"
#include "operator/api/parse.hpp"
#include "operator/api/validate.hpp"

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::set<fs::path> examples() {
  std::set<fs::path> found;
  for (const auto& entry : fs::directory_iterator(PACELINE_SOURCE_DIR "/tests/fixtures/convert")) {
    if (entry.path().extension() == ".yaml" || entry.path().extension() == ".sbatch")
      found.insert(entry.path());
  }
  return found;
}

TEST(ConvertExamples, BecomeWhatIsExpected) {
  const std::set<fs::path> files = examples();
  EXPECT_GE(files.size(), 20U);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.filename().string());
    const auto result = convert(file.filename().string(), read(file));
    ASSERT_TRUE(result) << result.error().message;
    const fs::path expected = fs::path(file).replace_extension(".expected");
    EXPECT_EQ(result->text, read(expected))
        << "if the new text is right: paceline convert -f " << file << " -o " << expected;
  }
}

TEST(ConvertExamples, AreAcceptedByPaceline) {
  for (const fs::path& file : examples()) {
    SCOPED_TRACE(file.filename().string());
    const auto result = convert("f", read(file));
    ASSERT_TRUE(result) << result.error().message;
    const auto documents = YamlReader("f").read(result->text);
    ASSERT_TRUE(documents) << documents.error().message;
    int jobs = 0;
    for (const YamlDocument& document : *documents) {
      if (document.value["kind"] != "TrainingJob") continue;
      ++jobs;
      const auto job = api::parse_training_job(nlohmann::json(document.value));
      ASSERT_TRUE(job) << api::to_error(job.error()).message;
      // Only a command that the image alone knows may be missing.
      for (const api::FieldError& error : api::validate_for_cluster(*job)) {
        EXPECT_TRUE(error.path.ends_with(".command")) << api::to_string(error);
        EXPECT_EQ(result->incomplete, 1);
      }
    }
    EXPECT_EQ(jobs, result->jobs);
  }
}

TEST(ConvertExamples, HaveNoLeftovers) {
  const std::set<fs::path> files = examples();
  for (const auto& entry : fs::directory_iterator(PACELINE_SOURCE_DIR "/tests/fixtures/convert")) {
    if (entry.path().extension() != ".expected") continue;
    EXPECT_TRUE(std::ranges::any_of(
        files, [&](const fs::path& file) { return file.stem() == entry.path().stem(); }))
        << entry.path() << " belongs to no example";
  }
}

}  // namespace
}  // namespace paceline::cli
