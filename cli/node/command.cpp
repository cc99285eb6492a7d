// SPDX-License-Identifier: Apache-2.0
#include "cli/node/command.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "cli/doctor/view.hpp"
#include "cli/error_text.hpp"
#include "common/base/printable.hpp"

namespace paceline::cli {
namespace {

using nlohmann::json;

constexpr int kExitInput = 2;

/// Reads a status that the schema has checked; values of other types are left out.
std::string text_of(const json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  if (!object.is_object() || found == object.end()) return {};
  return found->is_string()           ? printable(found->get<std::string>())
         : found->is_number_integer() ? found->dump()
                                      : std::string();
}

json list_of(const json& object, const char* field) {
  const auto found = object.is_object() ? object.find(field) : object.end();
  return object.is_object() && found != object.end() && found->is_array() ? *found : json::array();
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() + 2 ? width - text.size() : 2, ' ');
}

std::string dumped(const json& value) {
  return value.dump(2, ' ', true, json::error_handler_t::replace) + "\n";
}

int could_not(const char* command, const std::string& why, std::ostream& err) {
  err << "paceline " << command << ": " << why << "\n";
  return kExitInput;
}

std::string condition_text(const json& condition, const std::string& word) {
  const std::string reason = text_of(condition, "reason");
  const std::string message = text_of(condition, "message");
  std::string text = padded(word, 6) + padded(text_of(condition, "type"), 16) + reason;
  if (!message.empty()) text += ": " + message;
  if (const std::string since = text_of(condition, "lastTransitionTime"); !since.empty())
    text += " (since " + since + ")";
  text += "\n";
  // If a check failed, the reason is the check's id.
  const auto* const check = word == "FAIL" ? agent::find_check(reason) : nullptr;
  if (check != nullptr && !check->remedy.empty())
    text += std::string(6, ' ') + "remedy: " + std::string(check->remedy) + "\n";
  return text;
}

void device_table(const json& status, std::ostream& out) {
  for (const json& gpu : list_of(status, "gpus")) {
    out << padded("GPU" + text_of(gpu, "index"), 10) << padded(text_of(gpu, "model"), 28)
        << padded(text_of(gpu, "pciAddress"), 16) << "NUMA " << text_of(gpu, "numaNode") << "\n";
  }
  for (const json& nic : list_of(status, "rdmaDevices")) {
    const bool up = nic.is_object() && nic.contains("up") && nic["up"] == json(true);
    out << padded(text_of(nic, "name"), 10)
        << padded(text_of(nic, "linkLayer") + (up ? ", up" : ", down"), 28)
        << padded(text_of(nic, "pciAddress"), 16) << "NUMA " << text_of(nic, "numaNode") << "\n";
  }
}

/// The rows as `paceline fabric` prints them, with as many words as there are devices.
void distance_table(const json& distance, std::ostream& out) {
  constexpr std::size_t kWidth = 8;
  const json rows = list_of(distance, "rows");
  if (rows.empty()) return;
  std::string head = padded("", kWidth);
  for (const json& row : rows) head += padded(text_of(row, "gpu"), kWidth);
  for (const json& nic : list_of(distance, "nics"))
    head += padded(nic.is_string() ? printable(nic.get<std::string>()) : "", kWidth);
  out << "\n" << head.substr(0, head.find_last_not_of(' ') + 1) << "\n";
  for (const json& row : rows) {
    std::string line = padded(text_of(row, "gpu"), kWidth);
    for (const char* field : {"gpus", "nics"}) {
      std::istringstream words(text_of(row, field));
      for (std::string word; words >> word;) line += padded(word, kWidth);
    }
    out << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
  }
}

}  // namespace

int node_doctor(kube::Api& api, const NodeOptions& options, const Clock& clock, bool as_json,
                std::ostream& out, std::ostream& err) {
  const std::string& node = options.name;
  const auto status = node_status(api, node);
  if (!status) return could_not("doctor", error_text(status.error()), err);
  const json conditions = list_of(*status, "conditions");
  if (conditions.empty()) {
    return could_not(
        "doctor", "the NodeFabric " + node + " has no conditions; see the log of its agent", err);
  }
  const AgentLife agent = agent_life(api, options, clock.wall());
  if (!agent.says.empty()) err << "paceline doctor: " << agent.says << "\n";
  std::map<std::string, std::string> texts;  // by status
  std::map<std::string, int> count;
  for (const json& condition : conditions) {
    std::string state = text_of(condition, "status");
    if (state != "True" && state != "False") state = "Unknown";
    ++count[state];
    texts[state] += condition_text(condition, state == "False"  ? "FAIL"
                                              : state == "True" ? "ok"
                                                                : "?");
  }
  if (as_json) {
    json view{
        {"version", 1}, {"node", node}, {"failed", count["False"]}, {"conditions", conditions}};
    view["agentAlive"] = agent.alive ? json(*agent.alive) : json();
    out << dumped(view);
  } else {
    out << texts["False"] << texts["Unknown"] << texts["True"] << "\n"
        << conditions.size() << " conditions of " << node << ": " << count["False"] << " fail, "
        << count["True"] << " good, " << count["Unknown"] << " could not be told; last change "
        << text_of(*status, "observedTime") << "\n";
  }
  if (agent.alive == false) return kExitInput;
  return count["False"] > 0 ? 1 : 0;
}

int agent_doctor(kube::Api& agent, bool as_json, std::ostream& out, std::ostream& err) {
  const auto text = agent.get_raw("/v1/checks");
  if (!text) return could_not("doctor", text.error().message, err);
  const auto findings = read_findings(*text);
  if (!findings) return could_not("doctor", findings.error().message, err);
  if (as_json) {
    out << *text;
  } else {
    out << doctor_text(*findings);
  }
  return agent::exit_code(*findings);
}

int node_fabric(kube::Api& api, const NodeOptions& options, const Clock& clock, bool as_json,
                std::ostream& out, std::ostream& err) {
  const std::string& node = options.name;
  const auto status = node_status(api, node);
  if (!status) return could_not("fabric", error_text(status.error()), err);
  const AgentLife agent = agent_life(api, options, clock.wall());
  if (!agent.says.empty()) err << "paceline fabric: " << agent.says << "\n";
  const int code = agent.alive == false ? kExitInput : 0;
  if (as_json) {
    out << dumped(*status);
    return code;
  }
  device_table(*status, out);
  distance_table(status->value("distance", json::object()), out);
  if (list_of(*status, "gpus").empty() && list_of(*status, "rdmaDevices").empty())
    out << "the agent of " << node << " found neither GPUs nor RDMA devices\n";
  return code;
}

}  // namespace paceline::cli
