// SPDX-License-Identifier: Apache-2.0
// Compares a token that a peer shows with the job's. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace paceline::rendezvous {

/// Takes the same time wherever the texts differ, so that the time tells nothing about the token.
inline bool same_secret(std::string_view shown, std::string_view secret) {
  unsigned difference = shown.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    difference |= static_cast<unsigned char>(shown[i]) ^
                  static_cast<unsigned char>(secret.empty() ? '\1' : secret[i % secret.size()]);
  }
  return difference == 0;
}

}  // namespace paceline::rendezvous
