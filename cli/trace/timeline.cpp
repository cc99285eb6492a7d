// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/timeline.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "common/telemetry/stats/phases.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

// Numbers of the processes of rank r: from (r + 1) * 1000.
constexpr int kProcessesOfRank = 1000;
constexpr int kHostTrack = 1;
constexpr int kDeviceTrack = 2;
constexpr int kFirstNamedThread = 1'000'000'000;
constexpr std::string_view kProfilerStep = "ProfilerStep#";
// Phases of kinds of events that connect others by an id.
constexpr std::string_view kConnecting = "stfbne";

double rounded(double microseconds) { return std::round(microseconds * 1000) / 1000; }

double microseconds_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() / 1000 : 0;
}

std::string text_in(const json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

json metadata(const char* name, int process, int thread, json arguments) {
  return {{"ph", "M"},     {"name", name}, {"pid", process},
          {"tid", thread}, {"ts", 0},      {"args", std::move(arguments)}};
}

int first_process(const RankPlace& place) { return (place.rank + 1) * kProcessesOfRank; }

/// The phases of one partition, one after the other, none beyond the end of the step.
void add_phases(std::vector<json>& events, const json& step, const char* partition, double from,
                double end, json event) {
  const auto phases = step.find(partition);
  if (phases == step.end() || !phases->is_object()) return;
  for (std::size_t phase = 0; phase < telemetry::kPhases && from < end; ++phase) {
    const std::string name(telemetry::phase_name(phase));
    const double length = std::min(microseconds_of(*phases, name.c_str()), end - from);
    if (length <= 0) continue;
    event["name"] = name;
    event["ts"] = rounded(from);
    event["dur"] = rounded(length);
    events.push_back(event);
    from += length;
  }
}

void add_step(std::vector<json>& events, const RankPlace& place, const json& step, int process) {
  const auto start = step.find("startUnixNs");
  if (start == step.end() || !start->is_number_integer()) return;
  const double from = static_cast<double>(start->get<std::int64_t>() - place.zero_unix_ns) / 1000;
  const double wall = microseconds_of(step, "wallNs");
  json facts = json::object();
  for (const auto& [name, value] : step.items()) {
    if (value.is_number()) facts[name] = value;
  }
  json event{{"ph", "X"}, {"cat", "step"}, {"pid", process}, {"tid", kHostTrack}};
  event["name"] = "step " + (facts.contains("step") ? facts["step"].dump() : "");
  event["ts"] = rounded(from);
  event["dur"] = rounded(wall);
  event["args"] = std::move(facts);
  events.push_back(event);
  event["cat"] = "phase";
  event["args"] = json{{"clock", "host"}};
  add_phases(events, step, "hostNs", from, from + wall, event);
  event["args"] = json{{"clock", "device"}};
  event["tid"] = kDeviceTrack;
  const double window = microseconds_of(step, "deviceWindowNs");
  add_phases(events, step, "deviceNs", from, from + (window > 0 ? window : wall), event);
}

}  // namespace

std::string name_of(const RankPlace& place) {
  return "rank " + std::to_string(place.rank) + (place.node.empty() ? "" : " on " + place.node);
}

std::vector<json> step_events(const RankPlace& place, const json& steps,
                              const std::string& problem) {
  const int process = first_process(place);
  std::vector<json> events;
  events.push_back(metadata("process_name", process, 0, {{"name", name_of(place) + ": steps"}}));
  events.push_back(metadata("process_sort_index", process, 0, {{"sort_index", process}}));
  if (!problem.empty())
    events.push_back(
        metadata("process_labels", process, 0, {{"labels", "not recorded: " + problem}}));
  events.push_back(metadata("thread_name", process, kHostTrack, {{"name", "host phases, in sum"}}));
  bool device = false;
  for (const json& step : steps) device = device || (step.is_object() && step.contains("deviceNs"));
  if (device)
    events.push_back(
        metadata("thread_name", process, kDeviceTrack, {{"name", "device phases, in sum"}}));
  for (const json& step : steps) {
    if (step.is_object()) add_step(events, place, step, process);
  }
  return events;
}

ProfilerEvents::ProfilerEvents(RankPlace place, std::int64_t base_ns)
    : place_(std::move(place)),
      shift_us_(static_cast<double>(base_ns - place_.zero_unix_ns - place_.clock_offset_ns) /
                1000) {}

ProfilerEvents::Process& ProfilerEvents::process_of(const json& pid) {
  const auto [found, made] = processes_.try_emplace(pid.dump());
  if (made) {
    found->second.number =
        first_process(place_) + std::min(static_cast<int>(processes_.size()), kProcessesOfRank - 1);
    found->second.name = pid.is_string() ? pid.get<std::string>() : "process " + pid.dump();
  }
  return found->second;
}

Status ProfilerEvents::show(Process& process, const EventSink& sink) {
  process.shown = true;
  bool named = false;
  for (json& event : process.metadata) {
    if (text_in(event, "name") == "process_name") {
      named = true;
      event["args"] = {{"name", name_of(place_) + ": " + text_in(event["args"], "name")}};
    }
    if (auto sent = sink(event); !sent) return sent;
  }
  process.metadata.clear();
  if (!named) {
    const json name{{"name", name_of(place_) + ": " + process.name}};
    if (auto sent = sink(metadata("process_name", process.number, 0, name)); !sent) return sent;
  }
  return sink(metadata("process_sort_index", process.number, 0, {{"sort_index", process.number}}));
}

Status ProfilerEvents::number_thread(Process& process, json& event, const EventSink& sink) {
  const auto thread = event.find("tid");
  if (thread == event.end() || !thread->is_string()) return {};
  const auto name = thread->get<std::string>();
  const auto [found, made] = process.threads.try_emplace(
      name, kFirstNamedThread + static_cast<int>(process.threads.size()));
  *thread = found->second;
  if (!made) return {};
  return sink(metadata("thread_name", process.number, found->second, {{"name", name}}));
}

void ProfilerEvents::move(json& event) const {
  const auto time = event.find("ts");
  if (time != event.end() && time->is_number()) *time = rounded(time->get<double>() + shift_us_);
  const std::string kind = text_in(event, "ph");
  // A mark across the whole trace would be drawn once for each rank.
  if (kind == "i" && text_in(event, "s") == "g") event["s"] = "p";
  const auto id = event.find("id");
  if (id != event.end() && kind.size() == 1 && kConnecting.contains(kind[0]))
    *id = std::to_string(place_.rank) + ":" + id->dump();
  const std::string name = text_in(event, "name");
  if (!name.starts_with(kProfilerStep)) return;
  std::int64_t number = 0;
  const char* const digits = name.data() + kProfilerStep.size();
  if (std::from_chars(digits, name.data() + name.size(), number).ec == std::errc())
    event["name"] = std::string(kProfilerStep) + std::to_string(number + place_.profiler_step_zero);
}

Status ProfilerEvents::add(json event, const EventSink& sink) {
  if (!event.is_object() || !event.contains("pid") || !event.contains("ph")) return {};
  Process& process = process_of(event["pid"]);
  event["pid"] = process.number;
  if (text_in(event, "ph") == "M") {
    if (text_in(event, "name") == "process_sort_index") return {};
    event["ts"] = 0;
    if (event.contains("tid") && event["tid"].is_string()) event["tid"] = 0;
    if (process.shown) return sink(event);
    process.metadata.push_back(std::move(event));
    return {};
  }
  if (!process.shown) {
    if (auto shown = show(process, sink); !shown) return shown;
  }
  if (auto numbered = number_thread(process, event, sink); !numbered) return numbered;
  move(event);
  return sink(event);
}

}  // namespace paceline::cli
