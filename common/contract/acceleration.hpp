// SPDX-License-Identifier: Apache-2.0
// The fields of spec.acceleration, as data: what may be written, the defaults, and which variable
// tells the training process. Made by scripts/contract from common/contract/contract.yaml: edit
// that file.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace paceline::contract {

enum class Mode { kAuto, kManual, kDisabled };
inline constexpr std::array<std::string_view, 3> kModeNames{"Auto", "Manual", "Disabled"};
enum class Numerics { kBitwise, kReordered, kLossy };
inline constexpr std::array<std::string_view, 3> kNumericsNames{"Bitwise", "Reordered", "Lossy"};

inline constexpr Numerics kDefaultNumerics = Numerics::kReordered;
/// What turns a feature off, whatever else it may be set to.
inline constexpr std::string_view kOff = "Disabled";
/// What turns on a feature that has no other settings.
inline constexpr std::string_view kOn = "Auto";

enum class Feature : std::size_t {
  kLoader,
  kOptimizer,
  kCommunication,
  kCompression,
  kPrecision,
  kCudaGraph,
  kLoaderWorkers,
  kCompile,
  kOperators
};

struct FeatureRule {
  std::string_view name;      // of the field of spec.acceleration
  std::string_view variable;  // by which the training process learns of it
  /// What may be written. Empty: what `pattern` matches.
  std::span<const std::string_view> values;
  std::string_view pattern;  // ECMAScript
  std::string_view problem;  // what is wrong with a value that `pattern` does not match
  std::string_view remedy;   // and what to write
  /// What holds where neither the job nor the profile names the field; with `by_mode` only
  /// unless mode is Auto.
  std::string_view fallback;
  bool by_mode;
  Numerics numerics;  // its class
  std::optional<Feature> needs;
};

inline constexpr std::array<std::string_view, 2> kLoaderValues{"Auto", "Disabled"};
inline constexpr std::array<std::string_view, 2> kOptimizerValues{"Auto", "Disabled"};
inline constexpr std::array<std::string_view, 2> kCommunicationValues{"Auto", "Disabled"};
inline constexpr std::array<std::string_view, 4> kPrecisionValues{"Disabled", "TF32", "O1", "O2"};
inline constexpr std::array<std::string_view, 2> kCudaGraphValues{"Auto", "Disabled"};
inline constexpr std::array<std::string_view, 2> kCompileValues{"Auto", "Disabled"};
inline constexpr std::array<std::string_view, 2> kOperatorsValues{"Auto", "Disabled"};
/// In the order of Feature.
inline constexpr std::array<FeatureRule, 9> kFeatures{{
    FeatureRule{
        .name = "loader",
        .variable = "PACELINE_LOADER",
        .values = kLoaderValues,
        .pattern = "",
        .problem = "",
        .remedy = "",
        .fallback = "Disabled",
        .by_mode = true,
        .numerics = Numerics::kBitwise,
        .needs = std::nullopt,
    },
    FeatureRule{
        .name = "optimizer",
        .variable = "PACELINE_OPTIMIZER",
        .values = kOptimizerValues,
        .pattern = "",
        .problem = "",
        .remedy = "",
        .fallback = "Disabled",
        .by_mode = true,
        .numerics = Numerics::kReordered,
        .needs = std::nullopt,
    },
    FeatureRule{
        .name = "communication",
        .variable = "PACELINE_COMMUNICATION",
        .values = kCommunicationValues,
        .pattern = "",
        .problem = "",
        .remedy = "",
        .fallback = "Disabled",
        .by_mode = true,
        .numerics = Numerics::kReordered,
        .needs = std::nullopt,
    },
    FeatureRule{
        .name = "compression",
        .variable = "PACELINE_COMMUNICATION_COMPRESSION",
        .values = {},
        .pattern =
            "^(Disabled|(FP16|BF16|Int8)(:start=([2-9]|[1-9][0-9]{1,8}))?|TopK(:(ratio=0\\.[0-9]{0,"
            "5}[1-9]|(ratio=0\\.[0-9]{0,5}[1-9],)?start=([2-9]|[1-9][0-9]{1,8})))?|PowerSGD(:(rank="
            "[1-9][0-9]{0,8}|(rank=[1-9][0-9]{0,8},)?start=([2-9]|[1-9][0-9]{1,8})))?)$",
        .problem = "is no way to compress",
        .remedy = "write Disabled, FP16, BF16, Int8, TopK:ratio=0.01 or PowerSGD:rank=1,start=1000",
        .fallback = "Disabled",
        .by_mode = false,
        .numerics = Numerics::kLossy,
        .needs = Feature::kCommunication,
    },
    FeatureRule{
        .name = "precision",
        .variable = "PACELINE_PRECISION",
        .values = kPrecisionValues,
        .pattern = "",
        .problem = "",
        .remedy = "",
        .fallback = "Disabled",
        .by_mode = false,
        .numerics = Numerics::kLossy,
        .needs = std::nullopt,
    },
    FeatureRule{
        .name = "cudaGraph",
        .variable = "PACELINE_CUDA_GRAPH",
        .values = kCudaGraphValues,
        .pattern = "",
        .problem = "",
        .remedy = "",
        .fallback = "Auto",
        .by_mode = false,
        .numerics = Numerics::kBitwise,
        .needs = std::nullopt,
    },
    FeatureRule{
        .name = "loaderWorkers",
        .variable = "PACELINE_LOADER_WORKERS",
        .values = {},
        .pattern = "^(Disabled|Auto|[1-9][0-9]{0,1})$",
        .problem = "is no number of workers",
        .remedy = "write Auto, Disabled, or a number from 1 to 99 in quotes",
        .fallback = "Disabled",
        .by_mode = true,
        .numerics = Numerics::kReordered,
        .needs = Feature::kLoader,
    },
    FeatureRule{
        .name = "compile",
        .variable = "PACELINE_COMPILE",
        .values = kCompileValues,
        .pattern = "",
        .problem = "",
        .remedy = "",
        .fallback = "Disabled",
        .by_mode = true,
        .numerics = Numerics::kReordered,
        .needs = std::nullopt,
    },
    FeatureRule{
        .name = "operators",
        .variable = "PACELINE_OPERATORS",
        .values = kOperatorsValues,
        .pattern = "",
        .problem = "",
        .remedy = "",
        .fallback = "Disabled",
        .by_mode = true,
        .numerics = Numerics::kReordered,
        .needs = std::nullopt,
    },
}};

}  // namespace paceline::contract
