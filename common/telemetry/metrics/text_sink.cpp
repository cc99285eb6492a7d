// SPDX-License-Identifier: Apache-2.0
#include "common/telemetry/metrics/text_sink.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace paceline::telemetry {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 40> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

void append_escaped(std::string& out, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

}  // namespace

void TextSink::family(std::string_view name, MetricType type, std::string_view help) {
  name_ = name;
  text_ += "# HELP ";
  text_ += name;
  text_ += ' ';
  append_escaped(text_, help, false);
  text_ += "\n# TYPE ";
  text_ += name;
  text_ += type == MetricType::kCounter ? " counter\n"
           : type == MetricType::kGauge ? " gauge\n"
                                        : " histogram\n";
}

void TextSink::series(std::string_view suffix, const Labels& labels, std::string_view bound,
                      double value) {
  text_ += name_;
  text_ += suffix;
  if (!labels.empty() || !bound.empty()) {
    char separator = '{';
    for (const auto& [label, content] : labels) {
      text_ += separator;
      text_ += label;
      text_ += "=\"";
      append_escaped(text_, content, true);
      text_ += '"';
      separator = ',';
    }
    if (!bound.empty()) {
      text_ += separator;
      text_ += "le=\"";
      text_ += bound;
      text_ += '"';
    }
    text_ += '}';
  }
  text_ += ' ';
  text_ += number(value);
  text_ += '\n';
}

void TextSink::value(const Labels& labels, double value) { series("", labels, "", value); }

void TextSink::histogram(const Labels& labels, std::span<const double> bounds,
                         std::span<const std::uint64_t> counts, std::uint64_t total, double sum) {
  std::uint64_t cumulative = 0;
  for (std::size_t i = 0; i < bounds.size() && i < counts.size(); ++i) {
    cumulative += counts[i];
    series("_bucket", labels, number(bounds[i]), static_cast<double>(cumulative));
  }
  series("_bucket", labels, "+Inf", static_cast<double>(total));
  series("_sum", labels, "", sum);
  series("_count", labels, "", static_cast<double>(total));
}

}  // namespace paceline::telemetry
