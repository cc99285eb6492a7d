// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "common/service/logging.hpp"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

namespace paceline {
namespace {

using nlohmann::json;

/// The process's log goes to `text` for the time of a test.
class Logging : public testing::Test {
 protected:
  Logging() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "", std::make_shared<spdlog::sinks::ostream_sink_st>(text)));
  }
  ~Logging() override { spdlog::set_default_logger(before_); }

  static void configure(const std::string& arguments) {
    CLI::App app;
    add_log_options(app);
    app.parse(arguments);
  }

  std::ostringstream text;

 private:
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(Logging, JsonHasAnObjectALine) {
  configure("--log-format=json");
  spdlog::info("leading");
  log_about("team/llm", spdlog::level::warn, "volumes: {}", "a \"claim\"\nis missing");
  std::istringstream lines(text.str());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  json fields = json::parse(line);
  EXPECT_TRUE(fields["time"].get<std::string>().ends_with("Z")) << line;
  fields.erase("time");
  EXPECT_EQ(fields, (json{{"level", "info"}, {"message", "leading"}}));
  ASSERT_TRUE(std::getline(lines, line));
  fields = json::parse(line);
  fields.erase("time");
  EXPECT_EQ(fields, (json{{"level", "warning"},
                          {"object", "team/llm"},
                          {"message", "volumes: a \"claim\"\nis missing"}}));
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(Logging, BytesThatAreNotTextDoNoHarm) {
  configure("--log-format=json");
  spdlog::error("{}", "name \xff");
  EXPECT_EQ(json::parse(text.str())["message"], "name \uFFFD");
}

TEST_F(Logging, TextNamesTheObject) {
  configure("");
  log_about("team/llm", spdlog::level::info, "{}", "Running");
  EXPECT_TRUE(text.str().ends_with("[team/llm] [info] Running\n")) << text.str();
}

TEST_F(Logging, TheLevelHoldsForLinesAboutObjectsToo) {
  configure("--log-level=error");
  spdlog::warn("nothing");
  log_about("team/llm", spdlog::level::warn, "nothing");
  EXPECT_EQ(text.str(), "");
  log_about("team/llm", spdlog::level::err, "internal error");
  EXPECT_NE(text.str().find("internal error"), std::string::npos);
}

TEST_F(Logging, AWrongValueIsNamedWithWhatIsKnown) {
  try {
    configure("--log-format=xml");
    FAIL();
  } catch (const CLI::ValidationError& error) {
    EXPECT_NE(std::string(error.what()).find("xml"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("json"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace paceline
