// SPDX-License-Identifier: Apache-2.0
// Whose an object is that has the name of one of a job's objects. Pure; thread-safe.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "common/kube/api/resource.hpp"

namespace paceline::apply {

/// The UID of the controlling owner; empty: it has none.
inline std::string owner_of(const nlohmann::json& object) {
  if (!object.is_object()) return "";
  for (const auto& owner :
       object.value("/metadata/ownerReferences"_json_pointer, nlohmann::json::array())) {
    if (owner.value("controller", false)) return owner.value("uid", "");
  }
  return "";
}

inline std::string owner_of(const std::string& object) {
  return owner_of(nlohmann::json::parse(object, nullptr, false));
}

/// What people are told of an object that has a job's name and is not the job's.
inline std::string not_of_this_job(std::string_view kind, const std::string& name) {
  return std::string(kind) + " " + name +
         " exists and does not belong to this job; delete it, or rename the job";
}

}  // namespace paceline::apply
