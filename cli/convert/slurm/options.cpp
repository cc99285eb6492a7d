// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/slurm/options.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace paceline::cli {
namespace {

struct Short {
  char letter;
  std::string_view name;
};
/// Letters of options with a value.
constexpr std::array kShort{
    Short{'N', "nodes"},      Short{'n', "ntasks"},       Short{'c', "cpus-per-task"},
    Short{'t', "time"},       Short{'J', "job-name"},     Short{'p', "partition"},
    Short{'G', "gpus"},       Short{'o', "output"},       Short{'e', "error"},
    Short{'A', "account"},    Short{'q', "qos"},          Short{'D', "chdir"},
    Short{'C', "constraint"}, Short{'w', "nodelist"},     Short{'x', "exclude"},
    Short{'a', "array"},      Short{'d', "dependency"},   Short{'b', "begin"},
    Short{'i', "input"},      Short{'m', "distribution"}, Short{'L', "licenses"},
    Short{'M', "clusters"},   Short{'S', "core-spec"},    Short{'B', "extra-node-info"},
    Short{'F', "nodefile"},   Short{'r', "relative"},     Short{'T', "threads"},
    Short{'P', "dependency"}, Short{'W', "wait"}};

/// Options that need a value, of Slurm 24 and of the container plugin Pyxis. An option with an
/// optional value has it behind "=".
constexpr std::string_view kWithValue =
    " account acctg-freq accel-bind array batch bb bbf bcast-exclude begin chdir "
    "cluster-constraint "
    "clusters comment constraint container container-env container-id container-image "
    "container-mounts container-name container-save container-workdir core-spec cores-per-socket "
    "cpu-bind cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution "
    "epilog error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus "
    "gpus-per-node gpus-per-socket gpus-per-task gres gres-flags het-group hint input job-name "
    "jobid licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincores "
    "mincpus minsockets minthreads mpi network nodefile nodelist nodes ntasks ntasks-per-core "
    "ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output partition power prefer "
    "priority profile prolog qos relative reservation segment signal slurmd-debug sockets-per-node "
    "switches task-epilog task-prolog tasks-per-node thread-spec threads threads-per-core time "
    "time-min tmp tree-width tres-bind tres-per-task uid wait wait-all-nodes wckey wrap ";

bool needs_value(std::string_view name) {
  return kWithValue.contains(" " + std::string(name) + " ");
}

}  // namespace

std::vector<SlurmOption> read_slurm_options(const std::vector<std::string>& words,
                                            std::size_t& at) {
  std::vector<SlurmOption> options;
  while (at < words.size() && words[at].size() > 1 && words[at].front() == '-') {
    const std::string& word = words[at++];
    if (word == "--") break;
    SlurmOption option;
    bool takes_next = false;
    if (word.starts_with("--")) {
      const std::size_t equals = std::min(word.find('='), word.size());
      option.name = word.substr(2, equals - 2);
      if (equals < word.size()) option.value = word.substr(equals + 1);
      takes_next = equals == word.size() && needs_value(option.name);
    } else {
      const auto* const known = std::ranges::find(kShort, word[1], &Short::letter);
      option.name = known == kShort.end() ? word.substr(1, 1) : std::string(known->name);
      option.value = word.substr(2);
      takes_next = option.value.empty() && known != kShort.end();
    }
    if (takes_next && at < words.size()) option.value = words[at++];
    if (option.name == "tasks-per-node") option.name = "ntasks-per-node";
    options.push_back(std::move(option));
  }
  return options;
}

}  // namespace paceline::cli
