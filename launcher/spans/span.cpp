// SPDX-License-Identifier: Apache-2.0
#include "launcher/spans/span.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace paceline::spans {
namespace {

constexpr std::size_t kTraceDigits = 32;

/// FNV-1a of the two texts; never 0, which OpenTelemetry does not take as an id.
std::uint64_t hash(std::string_view first, std::string_view second) {
  std::uint64_t value = 14695981039346656037ULL;
  const auto add = [&value](std::string_view text) {
    for (const char letter : text) {
      value ^= static_cast<unsigned char>(letter);
      value *= 1099511628211ULL;
    }
  };
  add(first);
  add("/");
  add(second);
  return value == 0 ? 1 : value;
}

std::string hex(std::uint64_t value) {
  std::array<char, 17> digits{};
  (void)std::snprintf(digits.data(), digits.size(), "%016llx",
                      static_cast<unsigned long long>(value));
  return digits.data();
}

bool is_hex(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
}

}  // namespace

std::string trace_id(std::string_view job_uid) {
  std::string digits;
  for (const char letter : job_uid)
    if (letter != '-') digits += letter;
  const bool usable = digits.size() == kTraceDigits && std::ranges::all_of(digits, is_hex) &&
                      digits.find_first_not_of('0') != std::string::npos;
  return usable ? digits : hex(hash(job_uid, "trace")) + hex(hash("trace", job_uid));
}

std::string span_id(std::string_view job_uid, std::string_view span) {
  return hex(hash(job_uid, span));
}

std::string attempt_span(std::string_view job_uid, int attempt) {
  return span_id(job_uid, "attempt " + std::to_string(attempt));
}

}  // namespace paceline::spans
