// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/json_forms.hpp"

#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

#include "common/contract/host_ports.hpp"
#include "launcher/rendezvous/table_columns.hpp"

namespace paceline::rendezvous {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLines = 64;
constexpr std::size_t kLongestLine = 4096;

constexpr std::int64_t kMostSteps = 1LL << 53;
constexpr std::int64_t kMostUserStep = std::numeric_limits<std::int64_t>::max();

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
void fields_of(Either<telemetry::AttemptUse> auto& use, Visit& visit) {
  visit("attempt", use.attempt, 0, kMostAttempts);
  visit("steps", use.steps, 0, kMostSteps);
  visit("lead", use.lead);
  visit("useful", use.useful);
  visit("checkpoint", use.checkpoint);
  visit("evaluation", use.evaluation);
  visit("unexplained", use.unexplained);
  visit("sinceCheckpoint", use.since_checkpoint);
  visit("checkpoints", use.checkpoints, 0, kMostSteps);
  visit("firstUserStep", use.first_user_step, -1, kMostUserStep);
  visit("lastUserStep", use.last_user_step, -1, kMostUserStep);
}

template <typename Visit>
void fields_of(Either<telemetry::RankSummary> auto& summary, Visit& visit) {
  visit("rank", summary.rank, 0, kMostRanks);
  visit("nodeRank", summary.node_rank, 0, kMostNodes);
  visit("step", summary.step, 0, kMostSteps);
  visit("steps", summary.steps, 0, kMostSteps);
  visit("samples", summary.samples, 0, kMostSteps);
  visit("tokens", summary.tokens, 0, kMostSteps);
  visit("p50", summary.p50);
  visit("p95", summary.p95);
  visit("samplesPerSecond", summary.samples_per_second);
  visit("tokensPerSecond", summary.tokens_per_second);
  visit("hostTimesOfGpu", summary.host_times_of_gpu, 0, 1);
  visit("settledSteps", summary.settled.steps, 0, kMostSteps);
  visit("settledSeconds", summary.settled.seconds);
  visit("window", summary.window);
  visit("total", summary.total);
  visit("use", summary.use);
}

template <typename Visit>
void fields_of(Either<telemetry::LiveState> auto& live, Visit& visit) {
  visit("phase", live.phase, 0, telemetry::kPhases - 1);
  visit("seconds", live.seconds);
  visit("step", live.step, 0, kMostSteps);
  visit("silent", live.silent);
  visit("collective", live.collective, 0, kMostSteps);
  visit("done", live.done, -1, kMostSteps);
  visit("group", live.group, 0, kMostSteps);
  visit("groupSize", live.group_size, 0, kMostRanks);
}

template <typename Visit>
void fields_of(Either<telemetry::LostProcessor> auto& lost, Visit& visit) {
  visit("waited", lost.waited);
  visit("throttled", lost.throttled);
  visit("stolen", lost.stolen);
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
  void operator()(const char* key, const auto& value) { object[key] = value; }
  // Within its limits, so that a number that a rank made up costs no connection: rank 0 refuses a
  // whole message for one field.
  template <std::integral Number>
  void operator()(const char* key, Number number, std::int64_t least, std::int64_t most) {
    if (std::cmp_less(number, least)) {
      object[key] = least;
    } else if (std::cmp_greater(number, most)) {
      object[key] = most;
    } else {
      object[key] = number;
    }
  }
  void operator()(const char* key, contract::RoleKind kind) {
    object[key] = contract::to_string(kind);
  }
  void operator()(const char* key, const telemetry::AttemptUse& use) {
    Writer nested;
    fields_of(use, nested);
    object[key] = std::move(nested.object);
  }
};

struct Reader {
  JsonFields fields;
  std::string& problem;
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
  void operator()(const char* key, telemetry::AttemptUse& use) {
    const json* nested = fields.find(key);
    if (nested == nullptr) return fields.note(key, "is missing");
    Reader reader{JsonFields(*nested, problem, key), problem};
    fields_of(use, reader);
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
  Reader reader{JsonFields(object, problem), problem};
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

json form(const Node& node) {
  json object = written(node);
  if (node.port_base != 0) object["portBase"] = node.port_base;
  return object;
}

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
  if (!culprit.rule.empty()) object["rule"] = culprit.rule;
  return object;
}

json form(const telemetry::RankSummary& summary) {
  json object = written(summary);
  if (telemetry::sum(summary.device_total) > 0) {
    object["deviceWindow"] = summary.device_window;
    object["deviceTotal"] = summary.device_total;
    object["deviceFollows"] = summary.device_follows;
  }
  if (summary.live) object["live"] = written(*summary.live);
  if (summary.lost_processor) object["lostProcessor"] = written(*summary.lost_processor);
  return object;
}

Node read_node(const json& object, std::string& problem) {
  auto node = read<Node>(object, problem);
  JsonFields fields(object, problem);
  node.port_base = static_cast<std::uint16_t>(
      fields.optional_integer("portBase", 0, contract::kLastPortBase).value_or(0));
  return node;
}

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
  JsonFields fields(object, problem);
  if (fields.find("rule") != nullptr) culprit.rule = fields.text("rule", 256);
  return culprit;
}

telemetry::RankSummary read_rank_summary(const json& object, std::string& problem) {
  auto summary = read<telemetry::RankSummary>(object, problem);
  JsonFields fields(object, problem);
  // Absent where no device is measured.
  if (fields.find("deviceTotal") != nullptr) {
    summary.device_window = read_phases(fields, "deviceWindow");
    summary.device_total = read_phases(fields, "deviceTotal");
    summary.device_follows = fields.number("deviceFollows");
  }
  if (const json* live = fields.find("live"))
    summary.live = read<telemetry::LiveState>(*live, problem);
  if (const json* lost = fields.find("lostProcessor"))
    summary.lost_processor = read<telemetry::LostProcessor>(*lost, problem);
  return summary;
}

std::string to_json(const RankTable& table) {
  return form(table).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace paceline::rendezvous
