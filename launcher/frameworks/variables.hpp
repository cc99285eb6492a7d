// SPDX-License-Identifier: Apache-2.0
// Variables: the environment of a process while it is composed. Remembers which of the user's
// values and defaults were changed, for one log line. Not thread-safe; nothing fails.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paceline::frameworks {

using Environment = std::map<std::string, std::string>;

struct ComposedEnvironment {
  Environment variables;
  // list variables and defaults that were changed, for one log line
  std::vector<std::string> changes;
  // how NCCL reaches other hosts, and each of its settings with its reason: a log line each
  std::vector<std::string> network = {};
};

class Variables {
 public:
  explicit Variables(const Environment& base) : composed_{base, {}, {}} {}

  /// Replaces the user's value: the rank table decides.
  void set(std::string_view name, std::string value) {
    composed_.variables.insert_or_assign(std::string(name), std::move(value));
  }
  void set(std::string_view name, int value) { set(name, std::to_string(value)); }

  /// Keeps the user's value.
  void set_default(const std::string& name, const std::string& value) {
    if (composed_.variables.try_emplace(name, value).second) note(name + "=" + value);
  }

  void unset(const std::string& name) { composed_.variables.erase(name); }

  /// The value, or "".
  std::string get(const std::string& name) const {
    const auto found = composed_.variables.find(name);
    return found == composed_.variables.end() ? "" : found->second;
  }
  bool has(const std::string& name) const { return composed_.variables.contains(name); }

  void note(std::string change) { composed_.changes.push_back(std::move(change)); }

  void note_network(std::string line) { composed_.network.push_back(std::move(line)); }

  ComposedEnvironment take() { return std::move(composed_); }

 private:
  ComposedEnvironment composed_;
};

}  // namespace paceline::frameworks
