// SPDX-License-Identifier: Apache-2.0
// The metadata that every cached object keeps. Values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace paceline::kube {

struct ObjectMeta {
  std::string ns;
  std::string name;
  std::string uid;
  std::uint64_t resource_version = 0;  // 0: absent or not a number
};

/// "namespace/name", or "name" without a namespace: the key of stores and queues.
inline std::string key_of(std::string_view ns, std::string_view name) {
  std::string key;
  key.reserve(ns.size() + 1 + name.size());
  if (!ns.empty()) key.append(ns).push_back('/');
  return key.append(name);
}

struct Key {
  std::string ns;
  std::string name;
};
inline Key split_key(std::string_view key) {
  const auto slash = key.find('/');
  if (slash == std::string_view::npos) return {{}, std::string(key)};
  return {std::string(key.substr(0, slash)), std::string(key.substr(slash + 1))};
}

}  // namespace paceline::kube
