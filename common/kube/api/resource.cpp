// SPDX-License-Identifier: Apache-2.0
#include "common/kube/api/resource.hpp"

#include "common/http/transport.hpp"

namespace paceline::kube {

std::string Resource::api_version() const {
  return group.empty() ? std::string(version) : std::string(group) + "/" + std::string(version);
}

std::string path_of(const Resource& resource, std::string_view ns, std::string_view name,
                    std::string_view subresource) {
  std::string path =
      resource.group.empty() ? "/api/" : "/apis/" + std::string(resource.group) + "/";
  path += resource.version;
  if (resource.namespaced && !ns.empty()) path += "/namespaces/" + http::escape(ns);
  path += "/";
  path += resource.plural;
  if (!name.empty()) path += "/" + http::escape(name);
  if (!subresource.empty()) path += "/" + http::escape(subresource);
  return path;
}

}  // namespace paceline::kube
