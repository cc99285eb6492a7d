// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "common/service/logging.hpp"

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/base/timestamp.hpp"

namespace paceline {
namespace {

std::string text_of(spdlog::string_view_t text) { return {text.data(), text.size()}; }

class JsonLines : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& line, spdlog::memory_buf_t& out) override {
    nlohmann::ordered_json fields;
    fields["time"] = format_micro_time(line.time);
    fields["level"] = text_of(spdlog::level::to_string_view(line.level));
    if (line.logger_name.size() > 0) fields["object"] = text_of(line.logger_name);
    fields["message"] = text_of(line.payload);
    const std::string text =
        fields.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
    out.append(text.data(), text.data() + text.size());
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonLines>();
  }
};

}  // namespace

std::unique_ptr<spdlog::formatter> json_lines() { return std::make_unique<JsonLines>(); }

void add_log_options(CLI::App& app) {
  app.add_option_function<std::string>(
         "--log-format",
         [](const std::string& format) {
           if (format == "json") spdlog::set_formatter(json_lines());
         },
         "text for people, json for collectors of logs")
      ->check(CLI::IsMember({"text", "json"}))
      ->default_str("text");
  app.add_option_function<std::string>(
         "--log-level",
         [](const std::string& level) { spdlog::set_level(spdlog::level::from_str(level)); },
         "the least important lines that are written")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->default_str("info");
}

}  // namespace paceline
