// SPDX-License-Identifier: Apache-2.0
#include "common/command/command.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <span>
#include <sstream>

#include "common/command/mpirun_flags.hpp"
#include "common/command/script.hpp"
#include "common/command/take_over.hpp"
#include "common/command/torchrun_flags.hpp"
#include "common/command/words.hpp"

namespace paceline::frameworks {
namespace {

bool is_python(const std::string& program) {
  const std::string name = base_name(program);
  return name.starts_with("python") && std::all_of(name.begin() + 6, name.end(), [](char c) {
           return (c >= '0' && c <= '9') || c == '.';
         });
}

bool is_shell(const std::string& program) {
  const std::string name = base_name(program);
  return name == "sh" || name == "bash" || name == "dash" || name == "ash" || name == "zsh";
}

// The position of `-m MODULE` among the interpreter's own options; npos if the interpreter runs a
// file.
std::size_t module_at(const std::vector<std::string>& argv) {
  for (std::size_t at = 1; at < argv.size(); ++at) {
    if (argv[at] == "-m") return at + 1 < argv.size() ? at : std::string::npos;
    if (argv[at] == "-W" || argv[at] == "-X") {
      ++at;
    } else if (!argv[at].starts_with("-") || argv[at] == "-c" || argv[at] == "-") {
      return std::string::npos;
    }
  }
  return std::string::npos;
}

// Checks each flag against the job: an error if they contradict each other, a note if the job's own
// field replaces the flag.
Status check_flags(const TorchrunCommand& torchrun, const JobShape& job,
                   std::vector<std::string>& notes) {
  if (torchrun.has("standalone")) {
    return contradiction("--standalone makes every replica a job of its own, but this job's " +
                         std::to_string(job.replicas) +
                         " replicas train together: remove --standalone");
  }
  if (const auto nodes = torchrun.value("nnodes")) {
    if (nodes->find(':') != std::string::npos) {
      return contradiction("--nnodes=" + *nodes +
                           " asks for an elastic job, which this job is not: remove --nnodes; the "
                           "number of replicas is "
                           "the sum of spec.roles[].replicas");
    }
    if (whole_number(*nodes) != job.replicas) {
      return contradiction("--nnodes=" + *nodes + " contradicts the job, which has " +
                           std::to_string(job.replicas) +
                           " replicas: remove --nnodes, or change spec.roles[].replicas");
    }
  }
  if (const auto processes = torchrun.value("nproc-per-node")) {
    const auto number = whole_number(*processes);
    if (number && *number != job.processes_per_replica) {
      return contradiction(
          "--nproc-per-node=" + *processes +
          " contradicts spec.framework.processesPerReplica, which is " +
          std::to_string(job.processes_per_replica) +
          ": remove --nproc-per-node, or set spec.framework.processesPerReplica: " + *processes);
    }
    if (!number && *processes != "auto" && *processes != "gpu" && *processes != "cpu" &&
        *processes != "xpu") {
      return contradiction("--nproc-per-node=" + *processes +
                           " is neither a number nor auto, gpu, cpu, xpu: remove it");
    }
  }
  std::string replaced;
  for (const auto& [name, value] : torchrun.options) {
    if (name == "module" || name == "no-python" || name == "run-path") continue;
    replaced += (replaced.empty() ? "--" : ", --") + name;
  }
  if (!replaced.empty())
    notes.push_back("taken over from torchrun, the job's fields decide instead: " + replaced);
  return {};
}

Result<Command> take_over(std::vector<std::string> interpreter,
                          std::span<const std::string> arguments, const JobShape& job) {
  auto torchrun = parse_torchrun(arguments);
  if (!torchrun) return std::unexpected(torchrun.error());
  Command command;
  command.taken_over = true;
  if (auto checked = check_flags(*torchrun, job, command.notes); !checked)
    return std::unexpected(checked.error());
  if (torchrun->rest.empty())
    return contradiction(
        "torchrun is given no script to run: write torchrun [options] SCRIPT [arguments]");
  if (torchrun->has("no-python")) {
    if (torchrun->has("module"))
      return contradiction("--no-python and --module exclude each other: remove one");
    command.argv = torchrun->rest;
    return command;
  }
  command.argv = std::move(interpreter);
  command.argv.push_back("-u");
  if (torchrun->has("module")) command.argv.push_back("-m");
  command.argv.insert(command.argv.end(), torchrun->rest.begin(), torchrun->rest.end());
  return command;
}

/// What a launcher that is kept must not do.
Status check_kept(const std::vector<std::string>& argv, const JobShape& job) {
  // Paceline restarts the whole gang and counts its restarts. The kept launcher must not restart
  // anything itself.
  for (std::size_t at = 0; at < argv.size(); ++at) {
    for (const std::string_view flag : {"--max-restarts", "--max_restarts"}) {
      std::string value;
      if (argv[at] == flag && at + 1 < argv.size()) value = argv[at + 1];
      if (argv[at].starts_with(flag) && argv[at].size() > flag.size() &&
          argv[at][flag.size()] == '=')
        value = argv[at].substr(flag.size() + 1);
      if (!value.empty() && value != "0") {
        return contradiction(std::string(flag) + "=" + value +
                             " restarts behind Paceline's back: remove it, and set "
                             "spec.failurePolicy.maxRestarts: " +
                             value);
      }
    }
  }
  const std::string program = argv.empty() ? "" : base_name(argv.front());
  const bool deepspeed = program == "deepspeed" || program == "ds";
  if (deepspeed && job.replicas > 1 && std::ranges::find(argv, "--no_ssh") == argv.end()) {
    return contradiction(program +
                         " reads its hosts from a file that is not there, and would train each "
                         "replica for itself: remove spec.framework.launcher: Passthrough, or give "
                         "--no_ssh, --node_rank, --num_nodes and --master_addr");
  }
  return {};
}

Result<Command> keep(const std::vector<std::string>& argv, const JobShape& job) {
  if (job.passthrough) {
    if (auto checked = check_kept(argv, job); !checked) return std::unexpected(checked.error());
  }
  Command command;
  command.argv = argv;
  return command;
}

/// What torchrun and its modules need to be of use.
Status check_torch(const std::string& launcher, const JobShape& job) {
  if (job.framework == "PyTorch" || job.framework == "DeepSpeed") return {};
  return contradiction(launcher + " starts no program of " + job.framework +
                       ": set spec.framework.type: PyTorch, or start the script itself (python "
                       "script.py)");
}

/// `python -m MODULE …`; nullopt if the module is no launcher.
std::optional<Result<Command>> take_over_module(const std::vector<std::string>& argv,
                                                std::size_t at, const JobShape& job) {
  const std::string& module = argv[at + 1];
  std::vector<std::string> interpreter(argv.begin(),
                                       argv.begin() + static_cast<std::ptrdiff_t>(at));
  const auto arguments = std::span(argv).subspan(at + 2);
  if (const LauncherCommand* launcher = launcher_of_module(module))
    return take_over_launcher(*launcher, std::move(interpreter), arguments, job);
  if (module != "torch.distributed.run" && module != "torch.distributed.launch")
    return std::nullopt;
  if (const auto fits = check_torch(module, job); !fits) return std::unexpected(fits.error());
  if (module == "torch.distributed.launch" &&
      std::none_of(arguments.begin(), arguments.end(), [](const std::string& word) {
        return word == "--use-env" || word == "--use_env";
      })) {
    return contradiction(
        "python -m torch.distributed.launch passes --local-rank to the script, which differs "
        "between PyTorch versions: write torchrun (the script then reads LOCAL_RANK), add "
        "--use-env, " +
        std::string(kPassthroughRemedy));
  }
  return take_over(std::move(interpreter), arguments, job);
}

/// A console script of a launcher; nullopt if the program is none.
std::optional<Result<Command>> take_over_program(const std::vector<std::string>& argv,
                                                 const JobShape& job,
                                                 const InterpreterOf& interpreter_of) {
  const std::string program = base_name(argv.front());
  const bool torchrun = program == "torchrun" || program == "torch-distributed-run";
  const LauncherCommand* launcher = launcher_of_program(program);
  if (!torchrun && launcher == nullptr) return std::nullopt;
  std::string interpreter = interpreter_of(argv.front());
  if (interpreter.empty()) interpreter = "python3";
  std::size_t used = 1;
  if (torchrun) {
    if (const auto fits = check_torch(program, job); !fits) return std::unexpected(fits.error());
    return take_over({std::move(interpreter)}, std::span(argv).subspan(used), job);
  }
  if (!launcher->first.empty()) {
    if (argv.size() < 2 || argv[1] != launcher->first) return std::nullopt;
    ++used;
  }
  return take_over_launcher(*launcher, {std::move(interpreter)}, std::span(argv).subspan(used),
                            job);
}

Status check_shell(const std::vector<std::string>& argv) {
  for (std::size_t at = 1; at + 1 < argv.size(); ++at) {
    if (!argv[at].starts_with("-") || argv[at].find('c') == std::string::npos) continue;
    const std::string launcher = launcher_in(argv[at + 1]);
    if (launcher.empty()) return {};
    return contradiction("the shell script in `command` starts " + launcher +
                         ", which Paceline cannot take over there: make it the command itself ([" +
                         launcher + ", …]), start the script itself (python script.py), " +
                         std::string(kPassthroughRemedy));
  }
  return {};
}

}  // namespace

Result<Command> resolve_command(const std::vector<std::string>& argv, const JobShape& job,
                                const InterpreterOf& interpreter_of) {
  if (job.framework == "MPI" && !job.passthrough) {
    // Only one replica runs its command, which only the rank table tells. The others need none.
    if (auto checked = check_mpirun_flags(argv); !checked) return std::unexpected(checked.error());
    return keep(argv, job);
  }
  if (argv.empty() || argv.front().empty())
    return contradiction(
        "the trainer container has no command: write it in `command` (the image's own entry point "
        "is not known to "
        "Paceline)");
  if (job.passthrough || job.framework == "Custom") return keep(argv, job);
  if (const std::size_t at = is_python(argv.front()) ? module_at(argv) : std::string::npos;
      at != std::string::npos) {
    if (auto taken = take_over_module(argv, at, job)) return *std::move(taken);
  }
  if (auto taken = take_over_program(argv, job, interpreter_of)) return *std::move(taken);
  const std::string program = base_name(argv.front());
  if (job.framework == "Horovod" && is_mpirun(program)) {
    return contradiction(program +
                         " would start all ranks once for each rank: set spec.framework.type: MPI, "
                         "or start the script itself (python script.py), and the ranks connect by "
                         "Gloo");
  }
  if (is_mpirun(program)) {
    return contradiction(program + " starts processes of its own, and Paceline already starts " +
                         std::to_string(job.processes_per_replica) +
                         " per replica: start the script itself (python script.py), " +
                         std::string(kPassthroughRemedy));
  }
  if (is_shell(argv.front())) {
    if (const auto checked = check_shell(argv); !checked) return std::unexpected(checked.error());
  }
  return keep(argv, job);
}

std::string interpreter_of_script(const std::string& script, const std::string& path) {
  std::vector<std::string> candidates;
  if (script.find('/') != std::string::npos) {
    candidates.push_back(script);
  } else {
    std::stringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');)
      candidates.push_back((folder.empty() ? "." : folder) + "/" + script);
  }
  for (const std::string& candidate : candidates) {
    if (::access(candidate.c_str(), X_OK) != 0) continue;
    std::ifstream file(candidate, std::ios::binary);
    std::string first(256, '\0');
    file.read(first.data(), static_cast<std::streamsize>(first.size()));
    first.resize(static_cast<std::size_t>(file.gcount()));
    first = first.substr(0, first.find('\n'));
    if (!first.starts_with("#!")) return "";
    std::stringstream words(first.substr(2));
    std::string program;
    words >> program;
    if (base_name(program) == "env") {
      program.clear();
      words >> program;
    }
    return is_python(program) ? program : "";
  }
  return "";
}

}  // namespace paceline::frameworks
