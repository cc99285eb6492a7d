// SPDX-License-Identifier: Apache-2.0
// Routes an HTTP request to a verb of the fake cluster. Internal to this folder. Called with the
// cluster's mutex held.
#pragma once

#include <map>
#include <string>

#include "common/kube/fake/model.hpp"

namespace paceline::kube {

struct Route {
  Resource resource;
  std::string ns;
  std::string name;
  std::string subresource;
  std::map<std::string, std::string, std::less<>> query;

  std::string parameter(std::string_view name) const;
};

Outcome<Route> route_of(const std::string& target);
http::Response serve(FakeModel& cluster, const http::Request& request);

}  // namespace paceline::kube
