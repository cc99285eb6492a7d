// SPDX-License-Identifier: Apache-2.0
// Reads what rank 0's process says of each feature of spec.acceleration. The process says whether
// the feature acts, and how much it gains. paceline/_core/effects.py writes the file
// (PACELINE_EFFECTS_FILE), and the launcher of that rank reads it for each of its documents.
//
// The file comes from the user's process. So anything but a short regular file is ignored, only
// features of the contract are taken, and reasons are cut.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::summary {

struct Effect {
  std::string feature;         // a field of spec.acceleration
  bool kept = false;           // it acts
  std::optional<double> gain;  // time of a step without it, divided by that with it, less 1
  std::string reason;          // at most 256 bytes on one line
  bool operator==(const Effect&) const = default;
};
using Effects = std::vector<Effect>;

/// At most one of each feature, in the order of the text. nullopt if it is no document of
/// version 1.
std::optional<Effects> parse_effects(std::string_view text);

/// The file of rank 0's process; nullopt if there is none, or it cannot be trusted.
std::optional<std::string> read_rank_zero_file(const std::filesystem::path& file);
std::optional<Effects> read_effects(const std::filesystem::path& file);

/// Whether the text says that a change is being tried: steps are quicker or slower on purpose.
bool trial_in(std::string_view text);
/// The same of the file; false if it cannot be trusted.
bool trial_runs(const std::filesystem::path& file);

/// "compile +21.4 % (kept), optimizer kept, loader left", for people; empty if nothing is known.
std::string effects_line(const std::optional<Effects>& effects);

}  // namespace paceline::summary
