// SPDX-License-Identifier: Apache-2.0
#include "common/kube/api/json_reader.hpp"

#include <charconv>
#include <memory>

#include "common/base/excerpt.hpp"

namespace paceline::kube {
namespace {

// A parser grows to its largest document and stays that large. Replace it, so that a thread that
// once read a page of a list does not hold that memory for ever.
constexpr std::size_t kKeepCapacity = 4 * 1024 * 1024;

// simdjson cannot make an empty array or object: these two stand for "absent".
const simdjson::dom::array& no_items() {
  thread_local simdjson::dom::parser parser;
  thread_local const simdjson::dom::array none =
      parser.parse(std::string_view("[]")).get_array().value();
  return none;
}
const simdjson::dom::object& no_fields() {
  thread_local simdjson::dom::parser parser;
  thread_local const simdjson::dom::object none =
      parser.parse(std::string_view("{}")).get_object().value();
  return none;
}

}  // namespace

Result<Json> parse(std::string_view bytes) {
  thread_local auto parser = std::make_unique<simdjson::dom::parser>();
  if (parser->capacity() > kKeepCapacity && bytes.size() <= kKeepCapacity)
    parser = std::make_unique<simdjson::dom::parser>();
  Json element;
  if (const auto error = parser->parse(bytes.data(), bytes.size()).get(element);
      error != simdjson::SUCCESS) {
    return fail(
        Code::kInvalid, Origin::kProtocol,
        std::string("not JSON (") + simdjson::error_message(error) + "): " + excerpt(bytes, 128));
  }
  return element;
}

std::string_view text(const simdjson::simdjson_result<Json>& element) {
  std::string_view value;
  return element.get(value) == simdjson::SUCCESS ? value : std::string_view();
}

std::int64_t number(const simdjson::simdjson_result<Json>& element, std::int64_t otherwise) {
  std::int64_t value = 0;
  return element.get(value) == simdjson::SUCCESS ? value : otherwise;
}

bool boolean(const simdjson::simdjson_result<Json>& element, bool otherwise) {
  bool value = false;
  return element.get(value) == simdjson::SUCCESS ? value : otherwise;
}

simdjson::dom::array items(const simdjson::simdjson_result<Json>& element) {
  simdjson::dom::array value;
  return element.get(value) == simdjson::SUCCESS ? value : no_items();
}

simdjson::dom::object fields(const simdjson::simdjson_result<Json>& element) {
  simdjson::dom::object value;
  return element.get(value) == simdjson::SUCCESS ? value : no_fields();
}

std::uint64_t version_number(std::string_view text) {
  std::uint64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  return error == std::errc() && end == text.data() + text.size() ? version : 0;
}

ObjectMeta read_meta(Json object) {
  const auto meta = at(object, "metadata");
  return {std::string(text(at(meta, "namespace"))), std::string(text(at(meta, "name"))),
          std::string(text(at(meta, "uid"))), version_number(text(at(meta, "resourceVersion")))};
}

}  // namespace paceline::kube
