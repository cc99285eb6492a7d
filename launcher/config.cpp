// SPDX-License-Identifier: Apache-2.0
#include "launcher/config.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <limits>

#include "common/base/duration.hpp"
#include "common/contract/env.hpp"

namespace paceline::launcher {
namespace {

class Reader {
 public:
  explicit Reader(const frameworks::Environment& environment) : environment_(environment) {}

  std::string text(const env::Variable& variable, bool required = false) {
    const auto found = environment_.find(std::string(variable.name));
    if (found != environment_.end() && !found->second.empty()) return found->second;
    if (required) note(variable, "", "is missing: " + std::string(variable.meaning));
    return "";
  }

  int integer(const env::Variable& variable, int least, int most, int otherwise,
              bool required = false) {
    const std::string value = text(variable, required);
    if (value.empty()) return otherwise;
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < least ||
        number > most) {
      note(variable, value,
           "is not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
      return otherwise;
    }
    return number;
  }

  std::chrono::nanoseconds duration(const env::Variable& variable,
                                    std::chrono::nanoseconds otherwise) {
    const std::string value = text(variable);
    if (value.empty()) return otherwise;
    const auto parsed = parse_duration(value);
    if (!parsed) note(variable, value, parsed.error().message);
    return parsed.value_or(otherwise);
  }

  Address address(const env::Variable& variable, bool required) {
    const std::string value = text(variable, required);
    if (value.empty()) return {};
    const auto parsed = net::parse_address(value);
    if (!parsed) note(variable, value, parsed.error().message);
    return parsed.value_or(Address{});
  }

  bool choice(const env::Variable& variable, std::string_view no, std::string_view yes) {
    const std::string value = text(variable);
    if (!value.empty() && value != no && value != yes)
      note(variable, value, "is neither " + std::string(no) + " nor " + std::string(yes));
    return value == yes;
  }

  std::string one_of(const env::Variable& variable, std::initializer_list<std::string_view> words) {
    std::string value = text(variable);
    if (value.empty() || std::find(words.begin(), words.end(), value) != words.end()) return value;
    std::string list;
    for (const auto word : words) list += (list.empty() ? "" : ", ") + std::string(word);
    note(variable, value, "is none of " + list);
    return "";
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

Result<Config> read_config(const frameworks::Environment& environment) {
  constexpr int kMost = std::numeric_limits<int>::max();
  Reader reader(environment);
  Config config;
  config.job_name = reader.text(env::kJobName);
  config.job_namespace = reader.text(env::kJobNamespace);
  config.job_uid = reader.text(env::kJobUid, true);
  config.role = reader.text(env::kRole);
  config.replica_index = reader.integer(env::kReplicaIndex, 0, 100000, 0);
  config.node_count = reader.integer(env::kNodeCount, 1, 100000, 1, true);
  config.node_rank = reader.integer(env::kNodeRank, 0, config.node_count - 1, 0, true);
  config.incarnation = reader.integer(env::kIncarnation, 0, kMost, 0);
  config.pod_name = reader.text(env::kPodName);
  config.pod_ip = reader.text(env::kPodIp, true);
  config.node_name = reader.text(env::kNodeName);
  config.framework = reader.text(env::kFramework);
  if (config.framework.empty()) config.framework = "PyTorch";
  config.passthrough = reader.choice(env::kFrameworkLauncher, "Paceline", "Passthrough");
  config.processes = reader.integer(env::kProcessesPerReplica, 1, 64, 1);
  config.cpu_limit = reader.integer(env::kCpuLimit, 1, 100000, 0);
  config.gpu_direct = reader.one_of(env::kGpuDirect, {"Required", "Preferred", "Disabled"});
  config.master_port = reader.integer(env::kMasterPort, 0, 65535, -1);
  config.rendezvous = reader.address(env::kRendezvousAddress, true);
  config.listen = reader.address(env::kRendezvousListen, config.node_rank == 0);
  config.token = reader.text(env::kToken, true);
  config.startup_timeout = reader.duration(env::kStartupTimeout, config.startup_timeout);
  config.attempt = reader.integer(env::kAttempt, 0, kMost / 2, 0);
  config.restarts = reader.integer(env::kRestarts, 0, kMost / 2, 0);
  config.max_restarts = reader.integer(env::kMaxRestarts, 0, kMost / 2, 0);
  config.backoff = reader.duration(env::kBackoff, config.backoff);
  config.grace = reader.duration(env::kGracePeriod, config.grace);
  config.rank_zero_decides = reader.choice(env::kSuccessPolicy, "AllRanks", "RankZero");
  config.runtime_dir = reader.text(env::kRuntimeDir);
  config.state_dir = reader.text(env::kStateDir, true);
  config.slot_dir = reader.text(env::kSlotDir);
  config.termination_log = reader.text(env::kTerminationLog);
  config.http = reader.address(env::kHttpListen, false);
  if (config.pod_name.empty())
    config.pod_name = config.role + "-" + std::to_string(config.replica_index);
  if (!reader.problem().empty()) return fail(Code::kInvalid, Origin::kConfig, reader.problem());
  return config;
}

}  // namespace paceline::launcher
