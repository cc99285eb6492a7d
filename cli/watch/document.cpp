// SPDX-License-Identifier: Apache-2.0
#include "cli/watch/document.hpp"

#include <algorithm>
#include <utility>

#include "cli/watch/lenient.hpp"
#include "common/base/duration.hpp"
#include "common/base/timestamp.hpp"
#include "operator/api/parse.hpp"
#include "operator/api/status.hpp"
#include "operator/api/template/containers.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

void put(json& document, const char* key, const std::string& value) {
  if (!value.empty()) document[key] = value;
}

void put(json& document, const char* key, const std::optional<WallTime>& time) {
  if (time) document[key] = format_time(*time);
}

const json* present(const json& object, const char* key) {
  const json& value = lenient::member(object, key);
  return value.is_null() ? nullptr : &value;
}

/// Status has shares in thousandths, since its schema has no fractions.
json fraction(const json& thousandths) {
  return thousandths.is_number() ? json(thousandths.get<double>() / 1000) : json();
}

json fractions(const json& object) {
  json result = json::object();
  if (!object.is_object()) return result;
  for (const auto& [name, value] : object.items()) result[name] = fraction(value);
  return result;
}

json training_of_status(const json& status) {
  if (!status.is_object()) return {};
  json training = json::object();
  for (const char* key :
       {"step", "samplesPerSecond", "tokensPerSecond", "bottleneck", "slowestRank"}) {
    if (const json* value = present(status, key)) training[key] = *value;
  }
  if (const json* times = present(status, "stepTime"); times != nullptr && times->is_object()) {
    for (const auto& [quantile, value] : times->items()) {
      const auto time = parse_duration(value.is_string() ? value.get<std::string>() : "");
      if (time) training["stepSeconds"][quantile] = std::chrono::duration<double>(*time).count();
    }
  }
  if (const json* shares = present(status, "breakdown")) training["breakdown"] = fractions(*shares);
  if (const json* mfu = present(status, "mfu")) training["mfu"] = fraction(*mfu);
  if (const json* device = present(status, "device")) {
    training["device"]["breakdown"] = fractions(lenient::member(*device, "breakdown"));
    if (const json* idle = present(*device, "idle")) training["device"]["idle"] = fraction(*idle);
  }
  return training;
}

json goodput_of_status(const json& goodput) {
  json result = goodput;
  if (const json* ratio = present(goodput, "ratio")) result["ratio"] = fraction(*ratio);
  return result;
}

json findings_of_status(const json& findings) {
  json list = json::array();
  if (!findings.is_array()) return list;
  for (const json& entry : findings) {
    json& finding = list.emplace_back(entry);
    const json& gain = lenient::member(entry, "gain");
    if (gain.is_array() && gain.size() == 2)
      finding["gain"] = {fraction(gain[0]), fraction(gain[1])};
  }
  return list;
}

json effects_of_status(const json& effects) {
  json list = json::array();
  if (!effects.is_array()) return list;
  for (const json& entry : effects) {
    json& effect = list.emplace_back(entry);
    if (const json* gain = present(entry, "gain")) effect["gain"] = fraction(*gain);
  }
  return list;
}

json settings_of(const api::Acceleration& acceleration) {
  json settings{
      {"numerics", contract::kNumericsNames[static_cast<std::size_t>(acceleration.numerics)]}};
  if (!acceleration.profile.empty()) settings["profile"] = acceleration.profile;
  const auto rest = api::features_at_rest();
  for (std::size_t i = 0; i < contract::kFeatures.size(); ++i) {
    const std::string& value = acceleration.features[i];
    // A feature that the program turns on itself is neither on nor off.
    if (value == contract::kOff || value != rest[i])
      settings[std::string(contract::kFeatures[i].name)] = value;
  }
  return settings;
}

json conditions_of(const api::JobStatus& status) {
  json list = json::array();
  for (const api::Condition& condition : status.conditions)
    list.push_back({{"type", condition.type},
                    {"status", condition.status},
                    {"reason", condition.reason},
                    {"message", condition.message},
                    {"lastTransitionTime", format_time(condition.since)}});
  return list;
}

void put_counts(json& document, const json& training_job, const api::JobStatus& status) {
  int replicas = 0;
  for (const api::RoleStatus& role : status.roles) replicas += role.replicas;
  document["replicas"] = replicas;
  if (const auto job = api::parse_training_job(training_job, api::UnknownFields::kIgnore)) {
    document["replicas"] = api::replica_count(job->spec);
    document["ranks"] = ranks_of(job->spec);
  }
  if (status.pod_counts) document["ready"] = status.pod_counts->ready;
}

}  // namespace

json job_document(const json& training_job) {
  const api::JobStatus status = api::read_status(training_job);
  json document{{"version", 1}, {"attempt", status.attempt}, {"restarts", status.restarts}};
  if (const json* metadata = present(training_job, "metadata")) {
    for (const char* key : {"namespace", "name"}) {
      if (const json* value = present(*metadata, key)) document[key] = *value;
    }
  }
  // The operator has not seen the job yet.
  document["phase"] = status.phase.empty() ? "Queued" : status.phase;
  put(document, "reason", status.reason);
  put(document, "message", status.message);
  put(document, "startTime", status.start_time);
  put(document, "completionTime", status.completion_time);
  put_counts(document, training_job, status);
  document["conditions"] = conditions_of(status);
  if (const auto nodes = status.nodes(); !nodes.empty()) document["nodes"] = nodes;
  for (const api::ExcludedNode& node : status.excluded_nodes)
    document["excludedNodes"].push_back({{"name", node.name}, {"message", node.message}});
  if (status.acceleration) document["acceleration"] = settings_of(*status.acceleration);
  if (!status.effects.is_null()) document["effects"] = effects_of_status(status.effects);
  if (json training = training_of_status(status.training); !training.is_null())
    document["training"] = std::move(training);
  if (!status.culprit.is_null()) document["culprit"] = status.culprit;
  const json& raw = lenient::member(training_job, "status");
  if (const json* goodput = present(raw, "goodput"))
    document["goodput"] = goodput_of_status(*goodput);
  if (const json* findings = present(raw, "findings"))
    document["findings"] = findings_of_status(*findings);
  return document;
}

int ranks_of(const api::Spec& spec) {
  int ranks = 0;
  for (const api::Role& role : spec.roles) {
    if (contract::trains(role.kind))
      ranks += (role.replicas - role.spares) * api::processes_of(spec, role);
  }
  return ranks;
}

json run_document(const std::string& name, int ranks, WallTime started,
                  const api::Acceleration* acceleration) {
  json document{{"version", 1},
                {"name", name},
                {"phase", "Starting"},
                {"ranks", ranks},
                {"attempt", 0},
                {"restarts", 0},
                {"startTime", format_time(started)}};
  if (acceleration != nullptr) document["acceleration"] = settings_of(*acceleration);
  return document;
}

void add_summary(json& document, const json& summary) {
  if (!summary.is_object()) return;
  for (const char* key : {"attempt", "restarts", "missing", "culprit", "training", "effects",
                          "findings", "goodput"}) {
    const json* value = present(summary, key);
    if (value == nullptr) continue;
    // What a document has gathered over time is not in a summary.
    if (std::string_view(key) == "training" && value->is_object() && document.contains(key)) {
      document[key].update(*value);
    } else {
      document[key] = *value;
    }
  }
  if (document.contains("namespace")) return;
  for (const char* key : {"phase", "verdict"}) {
    if (const json* phase = present(summary, key)) document["phase"] = *phase;
  }
  if (const json* message = present(summary, "message")) document["message"] = *message;
}

std::string dump(const json& document) {
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace paceline::cli
