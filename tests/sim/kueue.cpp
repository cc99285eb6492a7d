// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/kueue.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "common/kube/api/kueue.hpp"
#include "tests/sim/facts.hpp"
#include "tests/sim/job.hpp"

namespace paceline::sim {
namespace {

using nlohmann::json;

bool holds(const json& workload, const char* type) {
  for (const json& condition : workload.value("/status/conditions"_json_pointer, json::array())) {
    if (condition["type"] == type) return condition["status"] == "True";
  }
  return false;
}

json with(const json& workload, const char* type, bool value, const char* reason) {
  json list = json::array();
  for (const json& condition : workload.value("/status/conditions"_json_pointer, json::array())) {
    if (condition["type"] != type) list.push_back(condition);
  }
  list.push_back({{"type", type},
                  {"status", value ? "True" : "False"},
                  {"reason", reason},
                  {"message", ""},
                  {"lastTransitionTime", "2026-01-01T00:00:00Z"}});
  return list;
}

/// The numbers of pods that are admitted to `room`; null if not even the fewest fit.
json admitted_to(const json& workload, int room) {
  json sets = pods_asked_for(workload);
  int excess = -room;
  for (const json& set : sets) excess += set["count"].get<int>();
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const int count = sets[i]["count"];
    const int least = workload["spec"]["podSets"][i].value("minCount", count);
    const int less = std::clamp(excess, 0, std::max(0, count - least));
    sets[i]["count"] = count - less;
    excess -= less;
  }
  return excess > 0 ? json() : sets;
}

}  // namespace

Kueue::Kueue(kube::FakeCluster& cluster, Chaos& chaos) : cluster_(cluster), chaos_(chaos) {}

void Kueue::start(kube::Api& api, int pods) {
  pods_ = quota_ = pods;
  const auto create = [&api](const kube::Resource& resource, const char* ns, json object) {
    object["apiVersion"] = resource.api_version();
    object["kind"] = resource.kind;
    if (!api.create(resource, ns, object.dump()))
      throw std::runtime_error("cannot create a " + std::string(resource.kind));
  };
  create(kube::kLocalQueues, "default",
         {{"metadata", {{"name", kKueueQueue}, {"namespace", "default"}}}});
  const json rack = {{"nodeLabel", kRackLabel}};
  create(kube::kTopologies, "",
         {{"metadata", {{"name", "racks"}}}, {"spec", {{"levels", json::array({rack})}}}});
  create(kube::kResourceFlavors, "",
         {{"metadata", {{"name", "all"}}}, {"spec", {{"topologyName", "racks"}}}});
}

void Kueue::write(const json& workload, json status) {
  cluster_.poke(kube::kKueueWorkloads, "default",
                workload["metadata"]["name"].get_ref<const std::string&>(),
                json{{"status", std::move(status)}}.dump());
}

/// An administrator changes the quota, or what the LocalQueue offers.
void Kueue::change() {
  const bool changes = chaos_.rates.kueue_change > 0;
  if (!changes) quota_ = pods_;
  if (!chaos_.chance(chaos_.rates.kueue_change)) return;
  if (chaos_.chance(0.5)) {
    quota_ = static_cast<int>(chaos_.pick(static_cast<std::size_t>(pods_) + 1));
    return;
  }
  offers_ = !offers_;
  const json flavors = offers_ ? json::array({{{"name", "all"}}}) : json(nullptr);
  cluster_.poke(kube::kLocalQueues, "default", kKueueQueue,
                json{{"status", {{"flavors", flavors}}}}.dump());
}

void Kueue::act() {
  if (pods_ == 0) return;
  int used = 0;
  std::vector<json> waiting;
  for (const std::string& text : cluster_.objects(kube::kKueueWorkloads)) {
    json workload = json::parse(text);
    if (chaos_.chance(chaos_.rates.kueue_change)) {  // by a person
      cluster_.erase(kube::kKueueWorkloads, "default",
                     workload["metadata"]["name"].get_ref<const std::string&>());
      continue;
    }
    if (holds(workload, "Finished")) continue;
    if (!holds(workload, "QuotaReserved")) {
      waiting.push_back(std::move(workload));
      continue;
    }
    used += pods_with_quota(workload);
    if (!holds(workload, "Evicted") && chaos_.chance(chaos_.rates.kueue_evict))
      write(workload, {{"conditions", with(workload, "Evicted", true, "Preempted")}});
  }
  change();
  for (json& workload : waiting) {
    const json sets = admitted_to(workload, quota_ - used);
    if (sets.is_null()) continue;
    for (const json& set : sets) used += set["count"].get<int>();
    for (const char* type : {"QuotaReserved", "Admitted"})
      workload["status"]["conditions"] = with(workload, type, true, "Admitted");
    write(workload, {{"admission", {{"clusterQueue", "all"}, {"podSetAssignments", sets}}},
                     {"conditions", with(workload, "Evicted", false, "QuotaReserved")}});
  }
}

}  // namespace paceline::sim
