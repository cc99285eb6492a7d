// SPDX-License-Identifier: Apache-2.0
#include "operator/api/acceleration.hpp"

#include <algorithm>
#include <map>
#include <regex>
#include <span>

#include "common/contract/env.hpp"
#include "operator/api/features/compression.hpp"

namespace paceline::api {
namespace {

using contract::FeatureRule;
using contract::kFeatures;
using contract::kOff;
using contract::kOn;

constexpr std::size_t kMostBytes = 64;  // of a value with settings

std::vector<std::string_view> words(std::span<const std::string_view> list) {
  return {list.begin(), list.end()};
}

std::string text(const nlohmann::json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// The patterns of all features, compiled once.
const std::regex& shape_of(const FeatureRule& rule) {
  static const std::map<std::string_view, std::regex> kShapes = [] {
    std::map<std::string_view, std::regex> shapes;
    for (const FeatureRule& known : kFeatures) {
      if (!known.pattern.empty()) shapes.emplace(known.name, std::string(known.pattern));
    }
    return shapes;
  }();
  return kShapes.at(rule.name);
}

/// The only feature whose value is an object in a document.
bool is_compression(const FeatureRule& rule) {
  return &rule == &kFeatures.at(static_cast<std::size_t>(Feature::kCompression));
}

std::optional<std::string> read_value(ObjectReader& reader, const FeatureRule& rule) {
  if (is_compression(rule)) return read_compression(reader);
  if (!rule.values.empty()) {
    const auto i = reader.one_of(rule.name, words(rule.values));
    return i ? std::optional(std::string(rule.values[*i])) : std::nullopt;
  }
  auto value = reader.string(rule.name, kMostBytes);
  if (!value || is_allowed(rule, *value)) return value;
  reader.error(rule.name, reader.find(rule.name), std::string(rule.problem),
               std::string(rule.remedy));
  return std::nullopt;
}

/// Reports a feature that contradicts what else the same document says.
void check(ObjectReader& reader, const FeatureRule& rule, const AccelerationChoice& choice) {
  const auto wrong = [&](std::string problem, const char* remedy) {
    reader.error(rule.name, reader.find(rule.name), std::move(problem), remedy);
  };
  if (choice.mode == AccelerationMode::kDisabled) {
    wrong("contradicts mode: Disabled", "remove it, or write mode: Manual");
  } else if (rule.numerics == Numerics::kLossy && choice.numerics != Numerics::kLossy) {
    wrong("loses precision, which only numerics: Lossy allows",
          "write numerics: Lossy beside it, or remove it");
  } else if (rule.needs && choice.features[*rule.needs] == kOff) {
    const std::string_view other = kFeatures.at(static_cast<std::size_t>(*rule.needs)).name;
    wrong("contradicts " + std::string(other) + ": Disabled", "remove one of them");
  }
}

/// A feature that a document asks for has the one that it needs with it, unless that is disabled.
bool is_carried(Feature needed, const AccelerationChoice& job, const AccelerationChoice& asks) {
  const auto& said = job.features[needed] ? job.features[needed] : asks.features[needed];
  return said != kOff;
}

}  // namespace

std::string_view to_string(Numerics numerics) {
  return contract::kNumericsNames.at(static_cast<std::size_t>(numerics));
}

PerFeature<std::string> features_at_rest() {
  PerFeature<std::string> features;
  for (std::size_t i = 0; i < kFeatures.size(); ++i) features[i] = kFeatures[i].fallback;
  return features;
}

bool is_allowed(const FeatureRule& rule, std::string_view value) {
  if (!rule.values.empty()) return std::ranges::find(rule.values, value) != rule.values.end();
  return value.size() <= kMostBytes && std::regex_match(value.begin(), value.end(), shape_of(rule));
}

AccelerationChoice read_acceleration(ObjectReader& reader) {
  AccelerationChoice choice;
  if (const auto i = reader.one_of("mode", words(contract::kModeNames)))
    choice.mode = static_cast<AccelerationMode>(*i);
  if (const auto i = reader.one_of("numerics", words(contract::kNumericsNames)))
    choice.numerics = static_cast<Numerics>(*i);
  for (std::size_t i = 0; i < kFeatures.size(); ++i)
    choice.features[i] = read_value(reader, kFeatures[i]);
  for (std::size_t i = 0; i < kFeatures.size(); ++i) {
    if (choice.features[i] && choice.features[i] != kOff) check(reader, kFeatures[i], choice);
  }
  return choice;
}

std::optional<Acceleration> resolve(const AccelerationChoice& job, const RuntimeProfile* profile) {
  // A profile cannot turn on a part of what the job has disabled as a whole.
  if (job.mode == AccelerationMode::kDisabled) return std::nullopt;
  const AccelerationChoice base = profile != nullptr ? profile->acceleration : AccelerationChoice{};
  const AccelerationMode mode = job.mode.value_or(base.mode.value_or(AccelerationMode::kAuto));
  Acceleration result;
  result.profile = profile != nullptr ? profile->name : "";
  result.numerics = job.numerics.value_or(base.numerics.value_or(contract::kDefaultNumerics));
  for (std::size_t i = 0; i < kFeatures.size(); ++i) {
    const FeatureRule& rule = kFeatures[i];
    const bool on = rule.by_mode && mode == AccelerationMode::kAuto;
    const std::string fallback(on ? kOn : rule.fallback);
    result.features[i] = job.features[i].value_or(base.features[i].value_or(fallback));
    if (rule.numerics == Numerics::kLossy && result.numerics != Numerics::kLossy)
      result.features[i] = kOff;
  }
  for (std::size_t i = 0; i < kFeatures.size(); ++i) {
    const std::optional<Feature> needed = kFeatures[i].needs;
    if (!needed || result.features[i] == kOff) continue;
    const bool carried = is_carried(*needed, job, job.features[i] ? job : base);
    if (!carried) result.features[i] = kOff;
    result.features[*needed] = carried ? kOn : kOff;
  }
  if (result.features == features_at_rest()) return std::nullopt;
  return result;
}

std::vector<std::pair<std::string_view, std::string>> variables_of(
    const Acceleration& acceleration) {
  std::vector<std::pair<std::string_view, std::string>> variables;
  variables.emplace_back(env::kNumerics.name, to_string(acceleration.numerics));
  for (std::size_t i = 0; i < kFeatures.size(); ++i) {
    if (acceleration.features[i] != kFeatures[i].fallback)
      variables.emplace_back(kFeatures[i].variable, acceleration.features[i]);
  }
  return variables;
}

Acceleration acceleration_of_status(const nlohmann::json& value) {
  Acceleration acceleration;
  acceleration.profile = text(value, "profile");
  const auto& classes = contract::kNumericsNames;
  const auto found = std::ranges::find(classes, text(value, "numerics"));
  if (found != classes.end())
    acceleration.numerics = static_cast<Numerics>(found - classes.begin());
  for (std::size_t i = 0; i < kFeatures.size(); ++i) {
    const std::string written = is_compression(kFeatures[i]) ? compression_in(value).value_or("")
                                                             : text(value, kFeatures[i].name);
    if (is_allowed(kFeatures[i], written)) acceleration.features[i] = written;
  }
  return acceleration;
}

nlohmann::json status_of(const Acceleration& acceleration) {
  nlohmann::json value = {{"numerics", to_string(acceleration.numerics)}};
  if (!acceleration.profile.empty()) value["profile"] = acceleration.profile;
  for (std::size_t i = 0; i < kFeatures.size(); ++i) {
    const std::string& set = acceleration.features[i];
    if (!kFeatures[i].by_mode && set == kFeatures[i].fallback) continue;
    nlohmann::json& field = value[std::string(kFeatures[i].name)];
    if (is_compression(kFeatures[i])) {
      field = compression_object(set);
    } else {
      field = set;
    }
  }
  return value;
}

}  // namespace paceline::api
