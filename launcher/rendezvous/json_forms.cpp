// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/json_forms.hpp"

namespace paceline::rendezvous {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLines = 64;
constexpr std::size_t kLongestLine = 4096;

telemetry::PhaseSeconds read_phases(Fields& fields, std::string_view key) {
  telemetry::PhaseSeconds seconds{};
  const json& list = fields.array(key, telemetry::kPhases);
  for (std::size_t phase = 0; phase < list.size(); ++phase) {
    const double value = list[phase].is_number() ? list[phase].get<double>() : -1;
    if (!(value >= 0 && value < 1e12)) {
      fields.note(key, "holds something that is not a time");
      return {};
    }
    seconds[phase] = value;
  }
  return seconds;
}

void add_failure(json& object, const Failure& failure) {
  if (failure.exit_code) object["exitCode"] = *failure.exit_code;
  if (failure.signal) object["signal"] = *failure.signal;
  object["oom"] = failure.oom;
  object["class"] = failure.reason;
  object["lastLines"] = failure.last_lines;
}

}  // namespace

json form(const Node& node) {
  return {{"nodeRank", node.node_rank},      {"role", node.role},           {"replicaIndex", node.replica_index},
          {"incarnation", node.incarnation}, {"podName", node.pod_name},    {"address", node.address},
          {"nodeName", node.node_name},      {"processes", node.processes}, {"firstRank", node.first_rank}};
}

json form(const RankTable& table) {
  json nodes = json::array();
  for (const Node& node : table.nodes) nodes.push_back(form(node));
  return {{"version", 1},
          {"attempt", table.attempt},
          {"worldSize", table.world_size},
          {"masterAddress", table.master_address},
          {"masterPort", table.master_port},
          {"nodes", std::move(nodes)}};
}

json form(const Culprit& culprit) {
  json object{{"rank", culprit.rank},
              {"nodeRank", culprit.node_rank},
              {"podName", culprit.pod_name},
              {"attempt", culprit.attempt},
              {"localRank", culprit.failure.local_rank}};
  add_failure(object, culprit.failure);
  return object;
}

json form(const telemetry::RankSummary& summary) {
  return {{"rank", summary.rank},       {"nodeRank", summary.node_rank},
          {"step", summary.step},       {"steps", summary.steps},
          {"samples", summary.samples}, {"p50", summary.p50},
          {"p95", summary.p95},         {"samplesPerSecond", summary.samples_per_second},
          {"window", summary.window},   {"total", summary.total}};
}

Node read_node(const json& object, std::string& problem) {
  Fields fields(object, problem);
  Node node;
  node.node_rank = static_cast<int>(fields.integer("nodeRank", 0, kMostNodes));
  node.role = fields.text("role");
  node.replica_index = static_cast<int>(fields.integer("replicaIndex", 0, kMostNodes));
  node.incarnation = static_cast<int>(fields.integer("incarnation", 0, kMostAttempts));
  node.pod_name = fields.text("podName");
  node.address = fields.text("address");
  node.node_name = fields.text("nodeName");
  node.processes = static_cast<int>(fields.integer("processes", 1, kMostProcesses));
  node.first_rank = static_cast<int>(fields.integer("firstRank", 0, kMostRanks));
  return node;
}

RankTable read_rank_table(const json& object, std::string& problem) {
  Fields fields(object, problem);
  RankTable table;
  table.attempt = static_cast<int>(fields.integer("attempt", 0, kMostAttempts));
  table.world_size = static_cast<int>(fields.integer("worldSize", 1, kMostRanks));
  table.master_address = fields.text("masterAddress");
  table.master_port = static_cast<std::uint16_t>(fields.integer("masterPort", 0, 65535));
  for (const json& node : fields.array("nodes", kMostNodes)) table.nodes.push_back(read_node(node, problem));
  return table;
}

Failure read_failure(const json& object, std::string& problem) {
  Fields fields(object, problem);
  Failure failure;
  failure.local_rank = static_cast<int>(fields.integer("localRank", 0, kMostProcesses));
  failure.exit_code = fields.optional_integer("exitCode", 0, 255);
  failure.signal = fields.optional_integer("signal", 0, 128);
  failure.oom = fields.boolean("oom");
  failure.reason = fields.text("class", 64);
  for (const json& line : fields.array("lastLines", kMostLines)) {
    if (!line.is_string() || line.get_ref<const std::string&>().size() > kLongestLine) {
      fields.note("lastLines", "holds something that is not a short line");
      break;
    }
    failure.last_lines.push_back(line.get<std::string>());
  }
  return failure;
}

Culprit read_culprit(const json& object, std::string& problem) {
  Fields fields(object, problem);
  Culprit culprit;
  culprit.rank = static_cast<int>(fields.integer("rank", 0, kMostRanks));
  culprit.node_rank = static_cast<int>(fields.integer("nodeRank", 0, kMostNodes));
  culprit.pod_name = fields.text("podName");
  culprit.attempt = static_cast<int>(fields.integer("attempt", 0, kMostAttempts));
  culprit.failure = read_failure(object, problem);
  return culprit;
}

telemetry::RankSummary read_rank_summary(const json& object, std::string& problem) {
  Fields fields(object, problem);
  telemetry::RankSummary summary;
  constexpr std::int64_t kMostSteps = 1LL << 53;
  summary.rank = static_cast<int>(fields.integer("rank", 0, kMostRanks));
  summary.node_rank = static_cast<int>(fields.integer("nodeRank", 0, kMostNodes));
  summary.step = static_cast<std::uint64_t>(fields.integer("step", 0, kMostSteps));
  summary.steps = static_cast<std::uint64_t>(fields.integer("steps", 0, kMostSteps));
  summary.samples = static_cast<std::uint64_t>(fields.integer("samples", 0, kMostSteps));
  summary.p50 = fields.number("p50");
  summary.p95 = fields.number("p95");
  summary.samples_per_second = fields.number("samplesPerSecond");
  summary.window = read_phases(fields, "window");
  summary.total = read_phases(fields, "total");
  return summary;
}

}  // namespace paceline::rendezvous
