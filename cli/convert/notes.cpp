// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/notes.hpp"

#include "operator/api/field_error.hpp"
#include "operator/api/object_reader.hpp"

namespace paceline::cli {

std::string Note::text() const {
  return (to_do ? "to do: " : "") +
         one_line(api::to_string(api::FieldError{path, value, reason, remedy}));
}

void Notes::add(std::string path, const Json* value, std::string reason, std::string remedy) {
  notes_.push_back({std::move(path), value == nullptr ? "" : brief(*value), std::move(reason),
                    std::move(remedy)});
}

void Notes::drop(std::string path, const Json* value, std::string_view reason, std::string remedy) {
  add(std::move(path), value, "is not carried over: " + std::string(reason), std::move(remedy));
}

void Notes::to_do(std::string path, const Json* value, std::string reason, std::string remedy) {
  add(std::move(path), value, std::move(reason), std::move(remedy));
  notes_.back().to_do = true;
}

std::string brief(const Json& value) { return api::shown(nlohmann::json(value)); }

std::string one_line(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace paceline::cli
