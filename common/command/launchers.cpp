// SPDX-License-Identifier: Apache-2.0
#include "common/command/launchers.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "common/command/options.hpp"

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

constexpr std::string_view kAccelerateSettings =
    "deepspeed_ fsdp_ megatron_lm_ fp8_ parallelism_config_ dynamo_ offload_ zero3_ gradient_ aws_ "
    "mpirun_";

constexpr std::array kHorovodrun{
    LauncherOption{"np num_proc", kWorld},
    LauncherOption{"H hosts hostfile", kHosts},
    LauncherOption{"p ssh_port i ssh_identity_file start_timeout network_interfaces "
                   "network_interface output_filename"},
    LauncherOption{"gloo disable_cache verbose", kReplaced, kSwitch},
    LauncherOption{"mpi mpi_threads_disable no_mpi_threads_disable tcp jsrun", kMpi, kSwitch},
    LauncherOption{"mpi_args binding_args", kMpi},
    LauncherOption{"host_discovery_script min_np min_num_proc max_np max_num_proc slots_per_host "
                   "slots elastic_timeout reset_limit blacklist_cooldown_range",
                   kElastic},
    LauncherOption{"hierarchical_allreduce no_hierarchical_allreduce hierarchical_allgather "
                   "no_hierarchical_allgather autotune no_autotune timeline_mark_cycles "
                   "no_timeline_mark_cycles stall_check no_stall_check log_with_timestamp "
                   "log_without_timestamp log_hide_timestamp no_log_hide_timestamp "
                   "prefix_output_with_timestamp",
                   kSettings, kSwitch},
    LauncherOption{"config_file fusion_threshold_mb cycle_time_ms cache_capacity timeline_filename "
                   "num_nccl_streams thread_affinity gloo_timeout_seconds log_level",
                   kSettings},
};

constexpr std::array kLaunchers{
    LauncherCommand{"deepspeed", "deepspeed ds", "deepspeed deepspeed.launcher.runner", "",
                    "DeepSpeed PyTorch", kDeepSpeed, "", Rest::kScript, true},
    LauncherCommand{"paddle.distributed.launch", "fleetrun",
                    "paddle.distributed.launch paddle.distributed.fleet.launch", "", "PaddlePaddle",
                    kPaddle, "", Rest::kScriptByEnding},
    LauncherCommand{"msrun", "msrun", "mindspore.parallel.cluster.run", "", "MindSpore", kMsrun, "",
                    Rest::kScriptOrPython},
    LauncherCommand{"accelerate launch", "accelerate", "", "launch", "PyTorch DeepSpeed",
                    kAccelerate, kAccelerateSettings},
    LauncherCommand{"accelerate launch", "accelerate-launch", "accelerate.commands.launch", "",
                    "PyTorch DeepSpeed", kAccelerate, kAccelerateSettings},
    LauncherCommand{"horovodrun", "horovodrun", "horovod.runner.launch", "", "Horovod", kHorovodrun,
                    "autotune_ stall_check_", Rest::kProgram, false,
                    "variables of the container (HOROVOD_…)"},
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
  if (launcher.rest == Rest::kCommand) {
    parsed.rest.assign(arguments.begin(), arguments.end());
    return parsed;
  }
  auto split = split_arguments(launcher.name, arguments,
                               [&](const std::string& name) -> std::optional<bool> {
                                 const LauncherOption* option = option_of(launcher, name);
                                 return option ? std::optional(option->value) : std::nullopt;
                               });
  if (!split) return std::unexpected(split.error());
  for (WrittenOption& option : split->options) {
    const Meaning meaning = option_of(launcher, option.name)->meaning;
    parsed.options.push_back({std::move(option.written), std::move(option.value), meaning});
  }
  parsed.rest = std::move(split->rest);
  return parsed;
}

}  // namespace paceline::frameworks
