// SPDX-License-Identifier: Apache-2.0
#include "operator/api/field_error.hpp"

namespace paceline::api {

std::string to_string(const FieldError& error) {
  std::string text = error.path + ": ";
  if (!error.value.empty()) text += error.value + " ";
  text += error.problem;
  if (!error.remedy.empty()) text += "; " + error.remedy;
  return text;
}

Error to_error(const FieldErrors& errors) {
  constexpr std::size_t kSpelt = 20;
  std::string text;
  for (std::size_t i = 0; i < errors.size() && i < kSpelt; ++i) {
    if (i > 0) text += '\n';
    text += to_string(errors[i]);
  }
  if (errors.size() > kSpelt) text += "\n… and " + std::to_string(errors.size() - kSpelt) + " more";
  return Error{Code::kInvalid, Origin::kConfig, std::move(text), false};
}

}  // namespace paceline::api
