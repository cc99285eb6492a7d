// SPDX-License-Identifier: Apache-2.0
#include "common/kube/api/object_meta.hpp"

#include <charconv>

#include "common/kube/api/json_reader.hpp"

namespace paceline::kube {
namespace {

std::uint64_t version_number(std::string_view text) {
  std::uint64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  return error == std::errc() && end == text.data() + text.size() ? version : 0;
}

}  // namespace

ObjectMeta read_meta(Json object) {
  const auto meta = at(object, "metadata");
  return {std::string(text(at(meta, "namespace"))), std::string(text(at(meta, "name"))),
          std::string(text(at(meta, "uid"))), version_number(text(at(meta, "resourceVersion")))};
}

std::uint64_t version_of(std::string_view object) {
  const auto parsed = parse(object);
  return parsed ? version_number(text(at(*parsed, "metadata", "resourceVersion"))) : 0;
}

bool ends_initial_events(std::string_view bookmark) {
  const auto parsed = parse(bookmark);
  return parsed &&
         text(at(*parsed, "metadata", "annotations", "k8s.io/initial-events-end")) == "true";
}

}  // namespace paceline::kube
