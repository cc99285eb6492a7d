// SPDX-License-Identifier: Apache-2.0
// Fields: reads one object of a source document and remembers which fields were read. finish()
// notes every other field, so that nothing is dropped in silence. The object and the notes must
// outlive it. Not thread-safe. A field of a wrong type is noted and reads as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "cli/convert/notes.hpp"

namespace paceline::cli {

class Fields {
 public:
  /// `value` may be null, which reads as an empty object.
  Fields(const Json* value, std::string path, Notes& notes);

  /// The field, or null if it is absent or null.
  const Json* take(std::string_view key);
  const Json* object(std::string_view key);
  const Json* list(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key);  // not negative
  std::optional<bool> boolean(std::string_view key);
  /// Seconds as a duration of a TrainingJob: 3600 → "1h"; empty if absent.
  std::string seconds(std::string_view key);

  /// Marks a field as read and notes it, if it is there.
  void drop(std::string_view key, std::string_view reason, std::string remedy);
  /// Marks a field as read that means nothing to a TrainingJob and needs no note.
  void skip(std::string_view key) { take(key); }
  /// Notes each field that was not read.
  void finish();

  std::string path(std::string_view key) const {
    return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
  }
  Notes& notes() { return notes_; }

 private:
  const Json* wrong(std::string_view key, const Json& value, const char* expected);

  const Json* value_ = nullptr;
  std::string path_;
  Notes& notes_;
  std::set<std::string, std::less<>> read_;
};

/// A member of an object, or null if there is none.
const Json* member(const Json* object, std::string_view key);
/// The string, or "" if it is none.
std::string text_of(const Json* value);
/// The strings of a list; others are left out.
std::vector<std::string> texts_of(const Json* list);

/// 3600 → "1h", 90 → "90s".
std::string duration_text(std::int64_t seconds);

}  // namespace paceline::cli
