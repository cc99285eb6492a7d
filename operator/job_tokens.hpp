// SPDX-License-Identifier: Apache-2.0
// JobTokens: the token of each job, derived from its UID and a key. The operator keeps the key in a
// Secret of its own namespace, so it knows all tokens without the right to read a job's Secret, and
// still knows them after a restart or an upgrade.
//
// The Api must outlive it. Thread-safe. The key is read with the first token, and created if there
// is none. Failure: the API's Error, or kInvalid if the Secret holds no usable key.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "common/kube/api/api.hpp"

namespace paceline {

inline constexpr const char* kTokenKeySecret = "paceline-operator-key";

class JobTokens {
 public:
  /// `random` returns 16 random bytes.
  JobTokens(kube::Api& api, std::string ns, std::function<std::string()> random);

  /// 128 bits in hexadecimal digits; the same for the same UID and key.
  Result<std::string> of(const std::string& job_uid);

 private:
  Result<std::string> key();
  Result<std::string> load_key();

  kube::Api& api_;
  const std::string ns_;
  const std::function<std::string()> random_;
  std::mutex mutex_;
  std::string key_;  // empty: not read yet
};

}  // namespace paceline
