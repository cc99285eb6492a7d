// SPDX-License-Identifier: Apache-2.0
// Reads API objects without keeping them: simdjson over the raw bytes, with short accessors that
// treat absent fields as empty. Include common/base/log.hpp before this header if you need both.
// Elements are valid until the next `parse` on the same thread.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "common/kube/api/object_meta.hpp"

namespace paceline::kube {

using Json = simdjson::dom::element;

/// Parses one document with a parser of this thread. Invalid JSON is kProtocol kInvalid.
Result<Json> parse(std::string_view bytes);

/// The element at a path of keys, or an error element: `at(pod, "spec", "nodeName")`.
template <typename... Keys>
simdjson::simdjson_result<Json> at(simdjson::simdjson_result<Json> element, Keys... keys) {
  ((element = element[std::string_view(keys)]), ...);
  return element;
}
template <typename... Keys>
simdjson::simdjson_result<Json> at(Json element, Keys... keys) {
  return at(simdjson::simdjson_result<Json>(std::move(element)), keys...);
}

std::string_view text(const simdjson::simdjson_result<Json>& element);
std::int64_t number(const simdjson::simdjson_result<Json>& element, std::int64_t otherwise = 0);
bool boolean(const simdjson::simdjson_result<Json>& element, bool otherwise = false);
/// The items of an array; empty if it is absent.
simdjson::dom::array items(const simdjson::simdjson_result<Json>& element);
simdjson::dom::object fields(const simdjson::simdjson_result<Json>& element);

/// A resourceVersion as a number; 0 if the text is not a number.
std::uint64_t version_number(std::string_view text);
ObjectMeta read_meta(Json object);

}  // namespace paceline::kube
