// SPDX-License-Identifier: Apache-2.0
// What all projections share: from an object's JSON to a view of it. Within operator/observe only.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "common/kube/api/json_reader.hpp"

namespace paceline::observe {

using kube::text;

inline std::string_view text(const kube::Json& value) {
  return kube::text(simdjson::simdjson_result<kube::Json>(kube::Json(value)));
}

/// At most so many bytes of the text, and no part of a character: JSON cannot hold that, so no
/// status that quotes it could be written.
inline std::string excerpt(std::string_view whole, std::size_t most = 512) {
  std::size_t end = std::min(whole.size(), most);
  while (end > 0 && end < whole.size() && (static_cast<unsigned char>(whole[end]) & 0xC0U) == 0x80U)
    --end;
  return std::string(whole.substr(0, end));
}

/// A view with the object's metadata; `fill(const Json&, T&)` reads the rest. Fails if the text is
/// no JSON.
template <typename T>
Result<T> with_json(std::string_view json, auto fill) {
  const auto parsed = kube::parse(json);
  if (!parsed) return std::unexpected(parsed.error());
  T view;
  view.meta = kube::read_meta(*parsed);
  fill(*parsed, view);
  return view;
}

}  // namespace paceline::observe
