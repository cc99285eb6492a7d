// SPDX-License-Identifier: Apache-2.0
#include "launcher/config.hpp"

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "common/base/duration.hpp"
#include "common/contract/env.hpp"
#include "common/contract/pod_defaults.hpp"

namespace paceline::launcher {
namespace {

class Reader {
 public:
  explicit Reader(const frameworks::Environment& environment) : environment_(environment) {}

  /// The variable's fallback, where it is not set.
  std::string text(const env::Variable& variable, bool required = false) {
    const auto found = environment_.find(std::string(variable.name));
    if (found != environment_.end() && !found->second.empty()) return found->second;
    if (required) note(variable, "", "is missing: " + std::string(variable.meaning));
    return std::string(variable.fallback);
  }

  /// A whole number within the variable's bounds.
  int integer(const env::Variable& variable, bool required = false, int otherwise = 0) {
    return integer(variable, variable.most, required, otherwise);
  }

  int integer(const env::Variable& variable, int most, bool required, int otherwise) {
    const std::string value = text(variable, required);
    if (value.empty()) return otherwise;
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < variable.least ||
        number > most) {
      note(variable, value,
           "is not a whole number from " + std::to_string(variable.least) + " to " +
               std::to_string(most));
      return variable.least;
    }
    return number;
  }

  std::chrono::nanoseconds duration(const env::Variable& variable) {
    const std::string value = text(variable);
    const auto parsed = parse_duration(value);
    if (!parsed) note(variable, value, parsed.error().message);
    return parsed.value_or(std::chrono::nanoseconds(0));
  }

  Address address(const env::Variable& variable, bool required) {
    const std::string value = text(variable, required);
    if (value.empty()) return {};
    const auto parsed = net::parse_address(value);
    if (!parsed) note(variable, value, parsed.error().message);
    return parsed.value_or(Address{});
  }

  /// One of the variable's values.
  std::string one_of(const env::Variable& variable) {
    std::string value = text(variable);
    if (value.empty() || std::ranges::find(variable.values, value) != variable.values.end())
      return value;
    std::string list;
    for (const auto word : variable.values) {
      if (!word.empty()) list += (list.empty() ? "" : ", ") + std::string(word);
    }
    note(variable, value, "is none of " + list);
    return "";
  }

  std::vector<failure::Rule> failure_rules(const env::Variable& variable) {
    const std::string value = text(variable);
    if (value.empty()) return {};
    auto rules = failure::parse_rules(value);
    if (!rules) note(variable, value, rules.error().message);
    return rules.value_or(std::vector<failure::Rule>{});
  }

  contract::RoleKind role_kind(const env::Variable& variable) {
    const std::string value = text(variable);
    const auto kind = contract::role_kind(value);
    if (!kind) note(variable, value, "is no kind of a role");
    return kind.value_or(contract::RoleKind::kWorker);
  }

  void note(const env::Variable& variable, const std::string& value, const std::string& what) {
    if (!problem_.empty()) problem_ += "\n";
    problem_ += std::string(variable.name) + (value.empty() ? " " : "=" + value + ": ") + what;
  }

  const std::string& problem() const { return problem_; }

 private:
  const frameworks::Environment& environment_;
  std::string problem_;
};

}  // namespace

Result<frameworks::Environment> with_settings(frameworks::Environment environment) {
  const auto found = environment.find(std::string(env::kSettings.name));
  if (found == environment.end()) return environment;
  const auto settings = nlohmann::json::parse(found->second, nullptr, false);
  environment.erase(found);
  const auto is_setting = [](const auto& entry) {
    return entry.second.is_string() && !entry.first.empty() &&
           std::ranges::all_of(entry.first,
                               [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; });
  };
  if (!settings.is_object() ||
      !std::ranges::all_of(settings.get_ref<const nlohmann::json::object_t&>(), is_setting)) {
    return fail(Code::kInvalid, Origin::kConfig,
                std::string(env::kSettings.name) +
                    " is not a JSON object of texts; the operator writes it, so remove it from the "
                    "pod template and from the image");
  }
  for (const contract::PodDefault& known : contract::kPodDefaults)
    environment.insert_or_assign("PACELINE_" + std::string(known.name), std::string(known.value));
  for (const auto& [name, value] : settings.items())
    environment.insert_or_assign("PACELINE_" + name, value.get<std::string>());
  return environment;
}

Config at_place(Config config, int node_rank) {
  config.node_rank = node_rank;
  return config;
}

Result<Config> read_config(const frameworks::Environment& environment) {
  Reader reader(environment);
  Config config;
  config.job_name = reader.text(env::kJobName);
  config.job_namespace = reader.text(env::kJobNamespace);
  config.job_uid = reader.text(env::kJobUid, true);
  config.role = reader.text(env::kRole);
  config.kind = reader.role_kind(env::kRoleKind);
  config.start_stage = reader.integer(env::kStartStage);
  config.replica_index = reader.integer(env::kReplicaIndex);
  config.node_count = reader.integer(env::kNodeCount, true);
  config.spares = reader.integer(env::kSpares);
  config.node_rank = reader.integer(env::kNodeRank, config.node_count + config.spares - 1, true, 0);
  config.incarnation = reader.integer(env::kIncarnation);
  config.pod_name = reader.text(env::kPodName);
  config.pod_ip = reader.text(env::kPodIp, true);
  config.node_name = reader.text(env::kNodeName);
  config.subdomain = reader.text(env::kSubdomain);
  config.framework = reader.text(env::kFramework);
  config.passthrough = reader.one_of(env::kFrameworkLauncher) == "Passthrough";
  config.processes = reader.integer(env::kProcessesPerReplica);
  config.tf_config = reader.one_of(env::kTfConfig);
  config.cpu_limit = reader.integer(env::kCpuLimit);
  config.gpu_direct = reader.one_of(env::kGpuDirect);
  config.master_port = reader.integer(env::kMasterPort, false, -1);
  config.port_base = static_cast<std::uint16_t>(reader.integer(env::kPortBase));
  config.rendezvous = reader.address(env::kRendezvousAddress, true);
  config.listen = reader.address(env::kRendezvousListen, config.node_rank == 0);
  config.token = reader.text(env::kToken, true);
  config.startup_timeout = reader.duration(env::kStartupTimeout);
  config.attempt = reader.integer(env::kAttempt);
  config.restarts = reader.integer(env::kRestarts);
  config.goodput = reader.text(env::kGoodput);
  config.job_created = reader.text(env::kJobCreated);
  config.job_placed = reader.text(env::kJobPlaced);
  config.max_restarts = reader.integer(env::kMaxRestarts);
  config.backoff = reader.duration(env::kBackoff);
  config.failure_rules = reader.failure_rules(env::kFailureRules);
  config.grace = reader.duration(env::kGracePeriod);
  config.rank_zero_decides = reader.one_of(env::kSuccessPolicy) == "RankZero";
  config.hang_after = reader.duration(env::kHangAfter);
  config.restarts_on_hang = reader.one_of(env::kOnHang) == "Restart";
  config.diagnosis_window = reader.duration(env::kDiagnosisWindow);
  config.has_standbys = reader.one_of(env::kStandby) != "Disabled";
  config.saves_before_end = reader.one_of(env::kCheckpointGrace) != "Disabled";
  config.runtime_dir = reader.text(env::kRuntimeDir);
  config.state_dir = reader.text(env::kStateDir, true);
  config.slot_dir = reader.text(env::kSlotDir);
  config.termination_log = reader.text(env::kTerminationLog);
  config.device_root = reader.text(env::kDeviceRoot);
  config.http = reader.address(env::kHttpListen, false);
  if (config.pod_name.empty())
    config.pod_name = config.role + "-" + std::to_string(config.replica_index);
  if (!reader.problem().empty()) return fail(Code::kInvalid, Origin::kConfig, reader.problem());
  return config;
}

}  // namespace paceline::launcher
