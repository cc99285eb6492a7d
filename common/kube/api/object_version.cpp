// SPDX-License-Identifier: Apache-2.0
#include "common/kube/api/object_version.hpp"

#include "common/kube/api/json_reader.hpp"

namespace paceline::kube {

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
