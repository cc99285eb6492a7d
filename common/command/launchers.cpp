// SPDX-License-Identifier: Apache-2.0
#include "common/command/launchers.hpp"

#include <algorithm>
#include <array>

namespace paceline::frameworks {
namespace {

using enum Meaning;

constexpr bool kSwitch = false;

constexpr std::array kDeepSpeed{
    LauncherOption{"num_nodes", kNodes},
    LauncherOption{"num_gpus num_accelerators", kProcesses},
    LauncherOption{"H hostfile i include e exclude", kHosts},
    LauncherOption{"master_port master_addr node_rank launcher launcher_args log_level "
                   "enable_each_rank_log bind_core_list"},
    LauncherOption{"no_ssh no_ssh_check force_multi save_pid bind_cores_to_rank q quiet", kReplaced,
                   kSwitch},
    LauncherOption{"autotuning venv_script", kSettings},
    LauncherOption{"module", kModule, kSwitch},
    LauncherOption{"no_python", kProgram, kSwitch},
    LauncherOption{"no_local_rank", kNoLocalRank, kSwitch},
};

constexpr std::array kPaddle{
    LauncherOption{"nnodes", kNodes},
    LauncherOption{"nproc_per_node", kProcesses},
    LauncherOption{"ips servers trainers", kHosts},
    LauncherOption{"master rank log_level log_overwrite sort_ip enable_gpu_log log_dir run_mode "
                   "job_id devices gpus npus xpus host start_port trainer_num server_num gloo_port "
                   "with_gloo max_restart elastic_level elastic_timeout legacy"},
    LauncherOption{"auto_parallel_config auto_cluster_config auto_tuner_json", kSettings},
};

constexpr std::array kMsrun{
    LauncherOption{"worker_num", kWorld},
    LauncherOption{"local_worker_num", kProcesses},
    LauncherOption{"master_addr master_port node_rank log_dir join cluster_time_out bind_core "
                   "tail_worker_log worker_log_name"},
    LauncherOption{"sim_level sim_rank_id rank_table_file", kSettings},
};

constexpr std::array kAccelerate{
    LauncherOption{"num_machines", kNodes},
    LauncherOption{"num_processes", kWorld},
    LauncherOption{"machine_rank main_process_ip main_process_port gpu_ids t tee log_dir role "
                   "rdzv_backend rdzv_conf max_restarts monitor_interval "
                   "num_cpu_threads_per_process main_training_function"},
    LauncherOption{"q quiet multi_gpu same_network enable_cpu_affinity", kReplaced, kSwitch},
    LauncherOption{"cpu tpu use_deepspeed use_fsdp use_parallelism_config use_megatron_lm "
                   "dynamo_use_fullgraph dynamo_use_dynamic dynamo_use_regional_compilation "
                   "downcast_bf16 fp8_use_autocast_during_eval tpu_cluster tpu_use_sudo debug",
                   kSettings, kSwitch},
    LauncherOption{"mixed_precision zero_stage config_file vm env", kSettings},
    LauncherOption{"m module", kModule, kSwitch},
    LauncherOption{"no_python", kProgram, kSwitch},
};

constexpr std::array kLaunchers{
    LauncherCommand{"deepspeed", "deepspeed ds", "deepspeed deepspeed.launcher.runner", "",
                    "DeepSpeed PyTorch", kDeepSpeed, "", Rest::kScript, true},
    LauncherCommand{"paddle.distributed.launch", "fleetrun", "paddle.distributed.launch", "",
                    "PaddlePaddle", kPaddle, "", Rest::kScriptByEnding},
    LauncherCommand{"msrun", "msrun", "mindspore.parallel.cluster.run", "", "MindSpore", kMsrun, "",
                    Rest::kScriptOrPython},
    LauncherCommand{
        "accelerate launch", "accelerate", "", "launch", "PyTorch DeepSpeed", kAccelerate,
        "deepspeed_ fsdp_ megatron_lm_ fp8_ parallelism_config_ dynamo_ offload_ zero3_ "
        "gradient_ aws_ mpirun_"},
    LauncherCommand{
        "accelerate launch", "accelerate-launch", "accelerate.commands.launch", "",
        "PyTorch DeepSpeed", kAccelerate,
        "deepspeed_ fsdp_ megatron_lm_ fp8_ parallelism_config_ dynamo_ offload_ zero3_ "
        "gradient_ aws_ mpirun_"},
    LauncherCommand{"bpslaunch", "bpslaunch", "", "", "BytePS", {}, "", Rest::kCommand},
};

template <typename Matches>
bool any_word(std::string_view list, const Matches& matches) {
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(' '));
    if (matches(word)) return true;
    list.remove_prefix(std::min(list.size(), word.size() + 1));
  }
  return false;
}

/// The option of that name; null if there is none.
const LauncherOption* option_of(const LauncherCommand& launcher, std::string_view name) {
  static constexpr LauncherOption kPrefixed{"", kSettings};
  for (const LauncherOption& option : launcher.options) {
    if (is_among(option.names, name)) return &option;
  }
  const bool prefixed = any_word(launcher.settings_prefixes,
                                 [&](std::string_view prefix) { return name.starts_with(prefix); });
  return prefixed ? &kPrefixed : nullptr;
}

}  // namespace

bool is_among(std::string_view list, std::string_view word) {
  return any_word(list, [&](std::string_view other) { return other == word; });
}

const LauncherCommand* launcher_of_program(std::string_view program) {
  const auto* const found = std::ranges::find_if(kLaunchers, [&](const LauncherCommand& launcher) {
    return is_among(launcher.programs, program);
  });
  return found == kLaunchers.end() ? nullptr : found;
}

const LauncherCommand* launcher_of_module(std::string_view module) {
  const auto* const found = std::ranges::find_if(kLaunchers, [&](const LauncherCommand& launcher) {
    return is_among(launcher.modules, module);
  });
  return found == kLaunchers.end() ? nullptr : found;
}

Result<ParsedLauncher> parse_launcher(const LauncherCommand& launcher,
                                      std::span<const std::string> arguments) {
  ParsedLauncher parsed;
  std::size_t at = 0;
  for (; launcher.rest != Rest::kCommand && at < arguments.size(); ++at) {
    const std::string& argument = arguments[at];
    if (argument == "--") {
      ++at;
      break;
    }
    if (argument.size() < 2 || argument.front() != '-') break;
    const std::size_t dashes = argument.starts_with("--") ? 2 : 1;
    const std::size_t equals = argument.find('=');
    const std::string written = argument.substr(0, equals);
    std::string name = written.substr(dashes);
    std::ranges::replace(name, '-', '_');
    const LauncherOption* option = option_of(launcher, name);
    const std::string of = std::string(launcher.name) + " option " + written;
    if (option == nullptr) {
      return fail(Code::kInvalid, Origin::kConfig,
                  of + " is not known to Paceline; remove it, start the script itself (python "
                       "script.py), or set spec.framework.launcher: Passthrough");
    }
    ParsedLauncher::Option found{written, "", option->meaning};
    if (equals != std::string::npos) {
      found.value = argument.substr(equals + 1);
    } else if (option->value) {
      if (++at == arguments.size())
        return fail(Code::kInvalid, Origin::kConfig, of + " has no value");
      found.value = arguments[at];
    }
    parsed.options.push_back(std::move(found));
  }
  parsed.rest.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  return parsed;
}

}  // namespace paceline::frameworks
