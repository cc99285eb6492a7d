// SPDX-License-Identifier: Apache-2.0
#include "launcher/summary/effects.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "common/base/unique_fd.hpp"
#include "common/contract/acceleration.hpp"

namespace paceline::summary {
namespace {

using nlohmann::json;

constexpr std::size_t kMostBytes = 16 * 1024;
constexpr std::size_t kMostReason = 256;
constexpr double kMostGain = 1000;

const json& part(const json& object, const char* key) {
  static const json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

bool is_feature(const std::string& name) {
  return std::ranges::find(contract::kFeatures, name, &contract::FeatureRule::name) !=
         contract::kFeatures.end();
}

/// One line of valid UTF-8, as nlohmann has checked it.
std::string shown(std::string text) {
  if (text.size() > kMostReason) {
    std::size_t end = kMostReason;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    text.resize(end);
  }
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, ' ');
  return text;
}

std::optional<Effect> effect_of(const json& entry) {
  if (!entry.is_object()) return std::nullopt;
  const json& feature = part(entry, "feature");
  const json& kept = part(entry, "kept");
  if (!feature.is_string() || !kept.is_boolean()) return std::nullopt;
  Effect effect{feature.get<std::string>(), kept.get<bool>(), std::nullopt, ""};
  if (!is_feature(effect.feature)) return std::nullopt;
  if (const json& gain = part(entry, "gain"); gain.is_number()) {
    const double ratio = gain.get<double>();
    if (std::isfinite(ratio) && ratio > -1 && ratio < kMostGain) effect.gain = ratio;
  }
  if (const json& reason = part(entry, "reason"); reason.is_string())
    effect.reason = shown(reason.get<std::string>());
  return effect;
}

}  // namespace

std::optional<Effects> parse_effects(std::string_view text) {
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object() || part(document, "version") != 1) return std::nullopt;
  const json& list = part(document, "effects");
  if (!list.is_array()) return std::nullopt;
  Effects effects;
  for (const json& entry : list) {
    auto effect = effect_of(entry);
    if (effect && std::ranges::find(effects, effect->feature, &Effect::feature) == effects.end())
      effects.push_back(*std::move(effect));
  }
  return effects;
}

std::optional<std::string> read_rank_zero_file(const std::filesystem::path& file) {
  // Do not block on a pipe and do not follow a link that the program may have put there.
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat about{};
  if (!fd.valid() || ::fstat(fd.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      about.st_size <= 0 || static_cast<std::size_t>(about.st_size) > kMostBytes)
    return std::nullopt;
  std::string text(kMostBytes, '\0');
  const ssize_t size = ::read(fd.get(), text.data(), text.size());
  if (size <= 0) return std::nullopt;
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<Effects> read_effects(const std::filesystem::path& file) {
  const auto text = read_rank_zero_file(file);
  return text ? parse_effects(*text) : std::nullopt;
}

bool trial_in(std::string_view text) {
  const json document = json::parse(text, nullptr, false);
  return document.is_object() && part(document, "version") == 1 && part(document, "trial") == true;
}

bool trial_runs(const std::filesystem::path& file) {
  const auto text = read_rank_zero_file(file);
  return text && trial_in(*text);
}

std::string effects_line(const std::optional<Effects>& effects) {
  std::string line;
  for (const Effect& effect : effects.value_or(Effects{})) {
    if (!line.empty()) line += ", ";
    line += effect.feature;
    if (effect.gain) {
      std::array<char, 32> percent{};
      (void)std::snprintf(percent.data(), percent.size(), " %+.1f %%", *effect.gain * 100);
      line += percent.data() + std::string(effect.kept ? " (kept)" : " (rolled back)");
    } else {
      line += effect.kept ? " kept" : " left";
    }
  }
  return line;
}

}  // namespace paceline::summary
