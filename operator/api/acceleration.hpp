// SPDX-License-Identifier: Apache-2.0
// spec.acceleration: what a job and a RuntimeProfile ask for, what follows for one gang, and how
// its status and its pods say so. The features, their values and defaults are data of
// common/contract/acceleration.hpp, so that this code names none of them but compression, whose
// value is an object (features/compression.hpp).
//
// Values and pure functions; thread-safe. Reading reports every problem with its path.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/contract/acceleration.hpp"
#include "operator/api/object_reader.hpp"

namespace paceline::api {

using AccelerationMode = contract::Mode;
using contract::Feature;
using contract::Numerics;

std::string_view to_string(Numerics numerics);

/// One value for each feature.
template <class Value>
struct PerFeature : std::array<Value, contract::kFeatures.size()> {
  using Base = std::array<Value, contract::kFeatures.size()>;
  using Base::operator[];
  Value& operator[](Feature feature) { return Base::operator[](static_cast<std::size_t>(feature)); }
  const Value& operator[](Feature feature) const {
    return Base::operator[](static_cast<std::size_t>(feature));
  }
};

/// What a job, or a RuntimeProfile, asks for. `resolve` decides what both leave unset.
struct AccelerationChoice {
  std::optional<AccelerationMode> mode;
  std::optional<Numerics> numerics;
  PerFeature<std::optional<std::string>> features;
};

/// A RuntimeProfile as far as the operator uses it.
struct RuntimeProfile {
  std::string name;
  AccelerationChoice acceleration;
};
inline constexpr std::string_view kDefaultProfile = "default";

/// Each feature at the value that leaves the program as it was written.
PerFeature<std::string> features_at_rest();

/// What may change inside the training process of one gang.
struct Acceleration {
  std::string profile;  // the RuntimeProfile that was used; empty: none
  Numerics numerics = contract::kDefaultNumerics;
  PerFeature<std::string> features = features_at_rest();
  bool operator==(const Acceleration&) const = default;
};

/// Whether `value` may be written for the feature.
bool is_allowed(const contract::FeatureRule& rule, std::string_view value);

/// Takes mode, numerics and every feature out of spec.acceleration.
AccelerationChoice read_acceleration(ObjectReader& reader);

/// The job's choice first, then the profile's, then the defaults: mode Auto within Reordered.
/// nullopt if no feature changes anything: then the job runs as it was written. A feature of class
/// Lossy is never a default, and never on in another class. One that needs another feature turns
/// that one on, unless the document that asks for it, or the job, disables it.
std::optional<Acceleration> resolve(const AccelerationChoice& job, const RuntimeProfile* profile);

/// The variables of the training process, as (name, value): the class, and each feature that is not
/// at rest.
std::vector<std::pair<std::string_view, std::string>> variables_of(
    const Acceleration& acceleration);

/// status.acceleration. Reading takes a value that is not allowed as absent.
Acceleration acceleration_of_status(const nlohmann::json& value);
nlohmann::json status_of(const Acceleration& acceleration);

}  // namespace paceline::api
