// SPDX-License-Identifier: Apache-2.0
// What all projections share: from an object's JSON to a view of it. Within operator/observe only.
#pragma once

#include <string>
#include <string_view>

#include "common/base/excerpt.hpp"
#include "common/kube/api/json_reader.hpp"

namespace paceline::observe {

using kube::text;

inline std::string_view text(const kube::Json& value) {
  return kube::text(simdjson::simdjson_result<kube::Json>(kube::Json(value)));
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
