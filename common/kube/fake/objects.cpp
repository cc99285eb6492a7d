// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "common/base/timestamp.hpp"
#include "common/kube/api/kueue.hpp"
#include "common/kube/api/object_meta.hpp"
#include "common/kube/fake/model.hpp"

namespace paceline::kube {
namespace {

constexpr std::size_t kKeptHistory = 200000;

bool has_status_subresource(const Resource& resource) {
  return resource.plural == kPods.plural || resource.plural == kNodes.plural ||
         resource.plural == kTrainingJobs.plural || resource.plural == kNodeFabrics.plural ||
         resource.plural == kServices.plural || resource.plural == kResourceQuotas.plural ||
         resource.plural == kKueueWorkloads.plural || resource.plural == kRuntimeProfiles.plural;
}

bool has_finalizers(const Document& object) {
  const auto& meta = object["metadata"];
  return meta.contains("finalizers") && !meta["finalizers"].empty();
}

}  // namespace

std::string full_name(const Resource& resource, std::string_view name) {
  std::string text(resource.plural);
  if (!resource.group.empty()) text.append(".").append(resource.group);
  return text.append(" \"").append(name).append("\"");
}

FakeModel::Stored* FakeModel::find(const Resource& resource, std::string_view ns,
                                   std::string_view name) {
  auto& objects = collections[resource.plural];
  const auto found = objects.find(key_of(resource.namespaced ? ns : std::string_view(), name));
  return found == objects.end() ? nullptr : &found->second;
}

const FakeModel::Stored& FakeModel::commit(const Resource& resource, Document object) {
  auto& meta = object["metadata"];
  const std::string ns = meta.value("namespace", "");
  const std::string key = key_of(ns, meta.value("name", ""));
  auto& objects = collections[resource.plural];
  const auto found = objects.find(key);
  Text before;
  if (found != objects.end()) {
    meta["resourceVersion"] = found->second.object["metadata"]["resourceVersion"];
    if (object == found->second.object) return found->second;
    before = found->second.text;
  }
  meta["resourceVersion"] = std::to_string(++version);
  auto text = std::make_shared<const std::string>(object.dump());
  history.push_back({before ? WatchEventType::kModified : WatchEventType::kAdded, version,
                     resource.plural, ns, text, before});
  if (history.size() > kKeptHistory) {
    compacted = history.front().version;
    history.pop_front();
  }
  if (observer) {
    observer({resource, before ? WatchEventType::kModified : WatchEventType::kAdded, version,
              before ? &found->second.object : nullptr, object, text});
  }
  auto& stored = found != objects.end() ? found->second : objects[key];
  stored = {std::move(object), std::move(text)};
  changed.notify_all();
  return stored;
}

void FakeModel::erase(const Resource& resource, std::string_view ns, std::string_view name) {
  auto& objects = collections[resource.plural];
  const auto found = objects.find(key_of(resource.namespaced ? ns : std::string_view(), name));
  if (found == objects.end()) return;
  Document last = std::move(found->second.object);
  Text before = found->second.text;
  objects.erase(found);
  last["metadata"]["resourceVersion"] = std::to_string(++version);
  const auto text = std::make_shared<const std::string>(last.dump());
  if (observer) observer({resource, WatchEventType::kDeleted, version, &last, last, text});
  history.push_back({WatchEventType::kDeleted, version, resource.plural,
                     last["metadata"].value("namespace", ""), text, std::move(before)});
  changed.notify_all();
}

void FakeModel::set_defaults(const Resource& resource, Document& object) {
  auto& meta = object["metadata"];
  char uid[48];
  std::snprintf(uid, sizeof uid, "00000000-0000-4000-8000-%012llx",
                static_cast<unsigned long long>(next_uid++));
  meta["uid"] = uid;
  meta["creationTimestamp"] = format_time(clock.wall());
  meta["generation"] = 1;
  meta.erase("deletionTimestamp");
  if (has_status_subresource(resource) && resource.plural != kNodes.plural) object.erase("status");
  if (resource.plural == kPods.plural) {
    object["status"] = {{"phase", "Pending"}, {"qosClass", "BestEffort"}};
    if (!gates_of(object).empty()) {
      object["status"]["conditions"] = Document::array(
          {{{"type", "PodScheduled"}, {"status", "False"}, {"reason", "SchedulingGated"}}});
    }
  } else if (resource.plural == kServices.plural) {
    auto& spec = object["spec"];
    if (spec.value("type", "ClusterIP") == "ClusterIP" && spec.value("clusterIP", "").empty()) {
      spec["clusterIP"] = "10.96." + std::to_string(next_address / 250 % 250) + "." +
                          std::to_string(next_address % 250 + 1);
      ++next_address;
    }
  }
}

Outcome<std::string> FakeModel::create(const Resource& resource, std::string_view ns,
                                       Document object, bool strict, bool dry_run) {
  if (auto checked = check_new(resource, ns, object, strict); !checked)
    return std::unexpected(checked.error());
  const std::string name = object["metadata"]["name"];
  if (!object["metadata"].value("resourceVersion", "").empty()) {
    return refuse(400, "BadRequest", "resourceVersion should not be set on objects to be created");
  }
  if (admit) admit(resource, object);
  // Admission comes before storage, as on a real server: a full quota hides that the pod exists.
  if (resource.plural == kPods.plural) {
    if (auto room = check_quota(ns); !room) {
      return refuse(403, "Forbidden",
                    full_name(resource, name) + " is forbidden: " + room.error().message);
    }
  }
  if (const auto* existing = find(resource, ns, name)) {
    const bool going = existing->object["metadata"].contains("deletionTimestamp");
    return refuse(
        409, "AlreadyExists",
        (going ? "object is being deleted: " : "") + full_name(resource, name) + " already exists");
  }
  if (dry_run) {
    const auto uid = next_uid;
    const auto address = next_address;
    set_defaults(resource, object);
    next_uid = uid;
    next_address = address;
    return object.dump();
  }
  set_defaults(resource, object);
  ++counts.creates;
  return *commit(resource, std::move(object)).text;
}

Outcome<std::string> FakeModel::replace(const Resource& resource, std::string_view ns,
                                        std::string_view name, std::string_view subresource,
                                        Document object, bool strict, bool dry_run) {
  const Stored* existing = find(resource, ns, name);
  if (existing == nullptr) return refuse(404, "NotFound", full_name(resource, name) + " not found");
  if (auto checked = check_new(resource, ns, object, strict); !checked)
    return std::unexpected(checked.error());
  const Document& before = existing->object;
  auto& meta = object["metadata"];
  if (meta["name"] != name)
    return refuse(400, "BadRequest", "the name of the object does not match the name on the URL");
  const std::string wanted = meta.value("resourceVersion", "");
  if (!wanted.empty() && wanted != before["metadata"].value("resourceVersion", "")) {
    return refuse(409, "Conflict",
                  "Operation cannot be fulfilled on " + full_name(resource, name) +
                      ": the object has been modified; please apply your changes to the latest "
                      "version and try again");
  }
  if (const std::string uid = meta.value("uid", "");
      !uid.empty() && uid != before["metadata"].value("uid", "")) {
    return refuse(409, "Conflict",
                  "Operation cannot be fulfilled on " + full_name(resource, name) +
                      ": Precondition failed: UID in precondition: " + uid +
                      ", UID in object meta: " + before["metadata"]["uid"].get<std::string>());
  }
  if (subresource == "status") {
    const auto status = object.find("status");
    Document next = before;
    if (status != object.end())
      next["status"] = std::move(*status);
    else
      next.erase("status");
    object = std::move(next);
  } else {
    for (const char* kept : {"uid", "creationTimestamp", "deletionTimestamp",
                             "deletionGracePeriodSeconds", "generation"}) {
      if (before["metadata"].contains(kept))
        meta[kept] = before["metadata"][kept];
      else
        meta.erase(kept);
    }
    if (has_status_subresource(resource)) {
      if (before.contains("status"))
        object["status"] = before["status"];
      else
        object.erase("status");
    }
    if (resource.plural == kPods.plural) {
      if (auto fits = check_pod_update(before, object); !fits) return std::unexpected(fits.error());
    }
    static const Document kNone;
    const auto spec_of = [](const Document& whole) -> const Document& {
      const auto spec = whole.find("spec");
      return spec != whole.end() ? *spec : kNone;
    };
    if (spec_of(before) != spec_of(object))
      meta["generation"] = before["metadata"].value("generation", 1) + 1;
  }
  object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"];
  if (dry_run) return object.dump();
  ++counts.updates;
  std::string text = *commit(resource, std::move(object)).text;
  // The last finalizer was removed and the deletion waited only for it.
  const Document& after = find(resource, ns, name)->object;
  if (after["metadata"].contains("deletionTimestamp") && !has_finalizers(after) &&
      (resource.plural != kPods.plural ||
       after["metadata"].value("deletionGracePeriodSeconds", 0) == 0)) {
    erase(resource, ns, name);
  }
  return text;
}

Outcome<std::string> FakeModel::remove(const Resource& resource, std::string_view ns,
                                       std::string_view name, const Document& options,
                                       bool dry_run) {
  const Stored* existing = find(resource, ns, name);
  if (existing == nullptr) return refuse(404, "NotFound", full_name(resource, name) + " not found");
  Document object = existing->object;
  auto& meta = object["metadata"];
  if (options.contains("preconditions")) {
    const auto& preconditions = options["preconditions"];
    for (const auto& [field, shown] :
         {std::pair("uid", "UID"), std::pair("resourceVersion", "ResourceVersion")}) {
      const std::string wanted = preconditions.value(field, "");
      if (!wanted.empty() && wanted != meta.value(field, "")) {
        return refuse(409, "Conflict",
                      "Operation cannot be fulfilled on " + full_name(resource, name) +
                          ": Precondition failed: " + shown + " in precondition: " + wanted + ", " +
                          shown + " in object meta: " + meta[field].get<std::string>());
      }
    }
  }
  long grace = 0;
  if (resource.plural == kPods.plural) {
    const std::string phase = string_at(object, "status", "phase");
    const bool on_node =
        !string_at(object, "spec", "nodeName").empty() && phase != "Succeeded" && phase != "Failed";
    grace = on_node ? options.value("gracePeriodSeconds",
                                    object["spec"].value("terminationGracePeriodSeconds", 30L))
                    : 0;
  }
  if (dry_run) return object.dump();
  ++counts.deletes;
  if (grace > 0 || has_finalizers(object)) {
    if (!meta.contains("deletionTimestamp"))
      meta["deletionTimestamp"] = format_time(clock.wall() + std::chrono::seconds(grace));
    meta["deletionGracePeriodSeconds"] = grace;
    return *commit(resource, std::move(object)).text;
  }
  erase(resource, ns, name);
  if (resource.plural == kPods.plural) return object.dump();
  return Document{{"kind", "Status"},
                  {"apiVersion", "v1"},
                  {"metadata", Document::object()},
                  {"status", "Success"}}
      .dump();
}

}  // namespace paceline::kube
