// SPDX-License-Identifier: Apache-2.0
#include "agent/registration/registrations.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "agent/registration/attempt_json.hpp"
#include "common/base/timestamp.hpp"

namespace paceline::agent {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 11> kSteps{
    "devices",    "open",   "host-memory", "port",      "dmabuf-driver", "gpus",
    "gpu-memory", "dmabuf", "peer-memory", "link-load", "fabric-memory"};
constexpr std::array<std::string_view, 4> kOutcomes{"done", "refused", "hung", "not-tried"};
constexpr std::size_t kMaxText = 512;

template <typename Enum, std::size_t N>
std::optional<Enum> find_name(const std::array<std::string_view, N>& names, std::string_view text) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

std::unexpected<Error> wrong(const std::string& what) {
  return fail(Code::kInvalid, Origin::kProtocol,
              "this is no report of paceline-probe: " + what + "; run it again");
}

/// A text field, cut to the shown length; empty if absent.
std::string text_of(const json& object, const char* name) {
  const auto field = object.find(name);
  return field != object.end() && field->is_string() ? field->get<std::string>().substr(0, kMaxText)
                                                     : std::string{};
}

/// A list of texts; empty if absent.
Result<std::vector<std::string>> names_of(const json& report, const char* field, std::size_t most) {
  std::vector<std::string> found;
  const auto names = report.find(field);
  if (names == report.end()) return found;
  if (!names->is_array() || names->size() > most)
    return wrong(std::string(field) + " is not a list of at most " + std::to_string(most));
  for (const auto& name : *names) {
    if (!name.is_string()) return wrong(std::string("a name in ") + field + " is not a text");
    found.push_back(name.get<std::string>().substr(0, kMaxText));
  }
  return found;
}

}  // namespace

std::string_view to_string(Step step) { return kSteps.at(static_cast<std::size_t>(step)); }
std::string_view to_string(Outcome outcome) {
  return kOutcomes.at(static_cast<std::size_t>(outcome));
}
std::optional<Step> step_of(std::string_view text) { return find_name<Step>(kSteps, text); }
std::optional<Outcome> outcome_of(std::string_view text) {
  return find_name<Outcome>(kOutcomes, text);
}

bool any_failed(const Registrations& registrations) {
  const auto& all = registrations.attempts;
  return std::any_of(all.begin(), all.end(), [&](const Attempt& attempt) {
    if (attempt.outcome == Outcome::kHung) return true;
    if (attempt.outcome != Outcome::kRefused || only_tells(attempt.step)) return false;
    if (attempt.step != Step::kDmaBuf && attempt.step != Step::kPeerMemory) return true;
    const Step other = attempt.step == Step::kDmaBuf ? Step::kPeerMemory : Step::kDmaBuf;
    return std::none_of(all.begin(), all.end(), [&](const Attempt& way) {
      return way.step == other && way.nic == attempt.nic && way.gpu == attempt.gpu &&
             way.outcome == Outcome::kDone;
    });
  });
}

json attempt_json(const Attempt& attempt) {
  json entry{{"step", to_string(attempt.step)}, {"outcome", to_string(attempt.outcome)}};
  if (!attempt.nic.empty()) entry["nic"] = attempt.nic;
  if (!attempt.gpu.empty()) entry["gpu"] = attempt.gpu;
  if (attempt.error != 0) entry["errno"] = attempt.error;
  if (!attempt.why.empty()) entry["why"] = attempt.why;
  if (!attempt.saw.empty()) entry["saw"] = attempt.saw;
  if (attempt.taken) entry["taken"] = format_time(*attempt.taken);
  return entry;
}

Result<Attempt> read_attempt(const json& entry) {
  if (!entry.is_object()) return wrong("an attempt is not an object");
  const auto step = step_of(text_of(entry, "step"));
  if (!step) return wrong("step is \"" + text_of(entry, "step") + "\"");
  const auto outcome = outcome_of(text_of(entry, "outcome"));
  if (!outcome) return wrong("outcome is \"" + text_of(entry, "outcome") + "\"");
  Attempt attempt{*step, text_of(entry, "nic"), text_of(entry, "gpu"), *outcome,
                  0,     text_of(entry, "why"), text_of(entry, "saw")};
  if (const auto error = entry.find("errno"); error != entry.end() && error->is_number_integer())
    attempt.error = error->get<int>();
  if (entry.contains("taken")) {
    const auto time = parse_time(text_of(entry, "taken"));
    if (!time) return wrong("taken is " + entry["taken"].dump().substr(0, kMaxText));
    attempt.taken = *time;
  }
  return attempt;
}

std::string registrations_json(const Registrations& registrations) {
  json report{{"version", 1}, {"inPod", registrations.in_pod}, {"attempts", json::array()}};
  if (!registrations.problem.empty()) report["problem"] = registrations.problem;
  if (registrations.memlock_bytes) report["memlockBytes"] = *registrations.memlock_bytes;
  if (registrations.taken) report["taken"] = format_time(*registrations.taken);
  for (const auto& setting : registrations.nccl)
    report["nccl"].push_back(
        {{"name", setting.name}, {"value", setting.value}, {"source", setting.source}});
  for (const auto& name : registrations.netdevs) report["netdevs"].push_back(name);
  for (const auto& name : registrations.job_nics) report["jobNics"].push_back(name);
  if (!registrations.cpus.empty()) report["cpus"] = registrations.cpus;
  if (registrations.nccl_version) report["ncclVersion"] = *registrations.nccl_version;
  for (const auto& attempt : registrations.attempts)
    report["attempts"].push_back(attempt_json(attempt));
  return report.dump(2, ' ', true, json::error_handler_t::replace) + "\n";
}

Result<Registrations> read_registrations(std::string_view text) {
  const json report = json::parse(text, nullptr, false);
  if (!report.is_object()) return wrong("it is not a JSON object");
  if (report.value("version", json()) != 1) return wrong("version is not 1");
  const auto attempts = report.find("attempts");
  if (attempts == report.end() || !attempts->is_array() || attempts->size() > kMaxAttempts)
    return wrong("attempts is not a list of at most " + std::to_string(kMaxAttempts));
  Registrations found;
  found.problem = text_of(report, "problem");
  found.in_pod = report.value("inPod", json()) == true;
  if (const auto limit = report.find("memlockBytes"); limit != report.end()) {
    if (!limit->is_number_unsigned())
      return wrong("memlockBytes is " + limit->dump().substr(0, kMaxText));
    found.memlock_bytes = limit->get<std::uint64_t>();
  }
  if (const auto settings = report.find("nccl"); settings != report.end()) {
    if (!settings->is_array() || settings->size() > kMaxNcclSettings)
      return wrong("nccl is not a list of at most " + std::to_string(kMaxNcclSettings));
    for (const auto& entry : *settings) {
      if (!entry.is_object()) return wrong("a setting in nccl is not an object");
      found.nccl.push_back(
          {text_of(entry, "name"), text_of(entry, "value"), text_of(entry, "source")});
    }
  }
  if (auto names = names_of(report, "netdevs", kMaxNetdevs)) {
    found.netdevs = std::move(*names);
  } else {
    return std::unexpected(names.error());
  }
  if (auto names = names_of(report, "jobNics", kMaxJobNics)) {
    found.job_nics = std::move(*names);
  } else {
    return std::unexpected(names.error());
  }
  found.cpus = text_of(report, "cpus");
  if (const auto version = report.find("ncclVersion"); version != report.end()) {
    if (!version->is_number_integer())
      return wrong("ncclVersion is " + version->dump().substr(0, kMaxText));
    found.nccl_version = version->get<int>();
  }
  if (const auto taken = report.find("taken"); taken != report.end()) {
    const auto time = parse_time(text_of(report, "taken"));
    if (!time) return wrong("taken is " + taken->dump().substr(0, kMaxText));
    found.taken = *time;
  }
  for (const auto& entry : *attempts) {
    auto attempt = read_attempt(entry);
    if (!attempt) return std::unexpected(attempt.error());
    found.attempts.push_back(std::move(*attempt));
  }
  return found;
}

}  // namespace paceline::agent
