// SPDX-License-Identifier: Apache-2.0
// What a conversion could not carry over, or changed: one note a field, with its path in the
// source, its value, the reason and what to do. Values; not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace paceline::cli {

/// Keys stay in the order of the source, so that a converted file still looks like its author's.
using Json = nlohmann::ordered_json;

struct Note {
  std::string path;    // "spec.elasticPolicy.minReplicas", in the source
  std::string value;   // as JSON, cut to 80 bytes; empty: not shown
  std::string reason;  // "is not carried over: …"
  std::string remedy;
  int line = 0;        // of the source; 0: unknown
  bool to_do = false;  // the job cannot run as intended before someone acts

  /// "spec.elasticPolicy.minReplicas: 1 is not carried over: …; …", in one line; "to do: " is in
  /// front of what has to be done.
  std::string text() const;
};

class Notes {
 public:
  /// `value`: null if it says nothing.
  void add(std::string path, const Json* value, std::string reason, std::string remedy);
  /// A field that has no equal in a TrainingJob. `reason` follows "is not carried over: ".
  void drop(std::string path, const Json* value, std::string_view reason, std::string remedy);
  /// What someone has to do before the job runs as intended.
  void to_do(std::string path, const Json* value, std::string reason, std::string remedy);

  std::vector<Note>& all() { return notes_; }

 private:
  std::vector<Note> notes_;
};

/// A value as compact JSON, at most 80 bytes.
std::string brief(const Json& value);

/// `text` without line breaks and control characters, which could break out of a comment or write
/// to a terminal.
std::string one_line(std::string text);

}  // namespace paceline::cli
