// SPDX-License-Identifier: Apache-2.0
#include "common/http/token_file.hpp"

#include <fstream>

namespace paceline::http {

Result<std::string> read_token(const std::string& file) {
  constexpr std::size_t kLongest = 16UL * 1024;
  std::ifstream stream(file);
  std::string token;
  std::getline(stream, token);
  if (token.empty() || token.size() > kLongest)
    return fail(Code::kInvalid, Origin::kConfig,
                "there is no token in " + (file.empty() ? "(no file)" : file));
  return token;
}

}  // namespace paceline::http
