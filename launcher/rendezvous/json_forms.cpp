// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/json_forms.hpp"

#include <concepts>
#include <type_traits>
#include <utility>

#include "launcher/rendezvous/table_columns.hpp"

namespace paceline::rendezvous {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLines = 64;
constexpr std::size_t kLongestLine = 4096;

constexpr std::int64_t kMostSteps = 1LL << 53;

// Each value lists its fields and their limits once. Writer puts the fields into an object, Reader
// reads and checks them.
template <typename Value, typename Of>
concept Either = std::same_as<std::remove_const_t<Value>, Of>;

template <typename Visit>
void fields_of(Either<Node> auto& node, Visit& visit) {
  visit("nodeRank", node.node_rank, 0, kMostNodes);
  visit("role", node.role);
  visit("kind", node.kind);
  visit("replicaIndex", node.replica_index, 0, kMostNodes);
  visit("incarnation", node.incarnation, 0, kMostAttempts);
  visit("podName", node.pod_name);
  visit("address", node.address);
  visit("nodeName", node.node_name);
  visit("processes", node.processes, 1, kMostProcesses);
  visit("firstRank", node.first_rank, 0, kMostRanks);
  visit("execPort", node.exec_port, 0, 65535);
}

template <typename Visit>
void fields_of(Either<RankTable> auto& table, Visit& visit) {
  visit("attempt", table.attempt, 0, kMostAttempts);
  visit("worldSize", table.world_size, 1, kMostRanks);
  visit("masterAddress", table.master_address);
  visit("masterPort", table.master_port, 0, 65535);
  visit("portBase", table.port_base, 0, 65535);
}

template <typename Visit>
void fields_of(Either<Culprit> auto& culprit, Visit& visit) {
  visit("rank", culprit.rank, 0, kMostRanks);
  visit("nodeRank", culprit.node_rank, 0, kMostNodes);
  visit("podName", culprit.pod_name);
  visit("attempt", culprit.attempt, 0, kMostAttempts);
}

template <typename Visit>
void fields_of(Either<telemetry::RankSummary> auto& summary, Visit& visit) {
  visit("rank", summary.rank, 0, kMostRanks);
  visit("nodeRank", summary.node_rank, 0, kMostNodes);
  visit("step", summary.step, 0, kMostSteps);
  visit("steps", summary.steps, 0, kMostSteps);
  visit("samples", summary.samples, 0, kMostSteps);
  visit("p50", summary.p50);
  visit("p95", summary.p95);
  visit("samplesPerSecond", summary.samples_per_second);
  visit("hostTimesOfGpu", summary.host_times_of_gpu, 0, 1);
  visit("settledSteps", summary.settled.steps, 0, kMostSteps);
  visit("settledSeconds", summary.settled.seconds);
  visit("window", summary.window);
  visit("total", summary.total);
}

telemetry::PhaseSeconds read_phases(JsonFields& fields, std::string_view key) {
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

struct Writer {
  json object = json::object();
  void operator()(const char* key, const auto& value, std::int64_t = 0, std::int64_t = 0) {
    object[key] = value;
  }
  void operator()(const char* key, contract::RoleKind kind) {
    object[key] = contract::to_string(kind);
  }
};

struct Reader {
  JsonFields fields;
  template <std::integral Number>
  void operator()(const char* key, Number& number, std::int64_t least, std::int64_t most) {
    number = static_cast<Number>(fields.integer(key, least, most));
  }
  void operator()(const char* key, std::string& text) { text = fields.text(key); }
  void operator()(const char* key, contract::RoleKind& kind) {
    const auto named = contract::role_kind(fields.text(key, 32));
    if (!named) fields.note(key, "is no kind of a role");
    kind = named.value_or(contract::RoleKind::kWorker);
  }
  void operator()(const char* key, double& number) { number = fields.number(key); }
  void operator()(const char* key, telemetry::PhaseSeconds& seconds) {
    seconds = read_phases(fields, key);
  }
};

template <typename Value>
json written(const Value& value) {
  Writer writer;
  fields_of(value, writer);
  return std::move(writer.object);
}

template <typename Value>
Value read(const json& object, std::string& problem) {
  Value value;
  Reader reader{JsonFields(object, problem)};
  fields_of(value, reader);
  return value;
}

void add_failure(json& object, const Failure& failure) {
  if (failure.exit_code) object["exitCode"] = *failure.exit_code;
  if (failure.signal) object["signal"] = *failure.signal;
  object["oom"] = failure.oom;
  object["class"] = failure.reason;
  object["lastLines"] = failure.last_lines;
}

}  // namespace

json form(const Node& node) { return written(node); }

json form(const RankTable& table) {
  json object = written(table);
  object["version"] = 1;
  json& nodes = object["nodes"] = json::array();
  for (const Node& node : table.nodes) {
    nodes.push_back(form(node));
    nodes.back()["host"] = node.host;
  }
  return object;
}

json columns_form(const RankTable& table) {
  json object = written(table);
  object["nodes"] = to_columns(table.nodes);
  return object;
}

json form(const Culprit& culprit) {
  json object = written(culprit);
  object["localRank"] = culprit.failure.local_rank;
  add_failure(object, culprit.failure);
  return object;
}

json form(const telemetry::RankSummary& summary) { return written(summary); }

Node read_node(const json& object, std::string& problem) { return read<Node>(object, problem); }

RankTable read_columns_form(const json& object, std::string& problem) {
  auto table = read<RankTable>(object, problem);
  JsonFields fields(object, problem);
  if (const json* nodes = fields.find("nodes")) {
    table.nodes = read_columns(*nodes, problem);
  } else {
    fields.note("nodes", "is missing");
  }
  return table;
}

Failure read_failure(const json& object, std::string& problem) {
  JsonFields fields(object, problem);
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
  auto culprit = read<Culprit>(object, problem);
  culprit.failure = read_failure(object, problem);
  return culprit;
}

telemetry::RankSummary read_rank_summary(const json& object, std::string& problem) {
  return read<telemetry::RankSummary>(object, problem);
}

std::string to_json(const RankTable& table) {
  return form(table).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace paceline::rendezvous
