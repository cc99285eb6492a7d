// SPDX-License-Identifier: Apache-2.0
// spec.acceleration.compression and its status: an object with exactly one member, which names the
// way and holds its settings. The training process gets the same as a text, whose grammar is that
// of common/contract: {powerSGD: {rank: 2}} is PowerSGD:rank=2.
//
// Pure functions; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "operator/api/object_reader.hpp"

namespace paceline::api {

/// Takes `compression` out of spec.acceleration, as the text. nullopt if it is absent or wrong.
std::optional<std::string> read_compression(ObjectReader& acceleration);

/// The text of `compression` in status.acceleration; nullopt if it is absent or no way to compress.
std::optional<std::string> compression_in(const nlohmann::json& acceleration);

/// The object of a text that the contract allows.
nlohmann::json compression_object(std::string_view text);

}  // namespace paceline::api
