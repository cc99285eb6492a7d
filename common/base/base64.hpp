// SPDX-License-Identifier: Apache-2.0
// Base64 as kubeconfigs and Secrets use it. Pure; other characters than the alphabet, padding and
// line breaks are kInvalid.
#pragma once

#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace paceline {

Result<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace paceline
