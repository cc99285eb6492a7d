// SPDX-License-Identifier: Apache-2.0
// Base64 as kubeconfigs and Secrets use it. Pure. Decoding ignores line breaks and spaces; any
// other character outside the alphabet is kInvalid.
#pragma once

#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace paceline {

Result<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace paceline
