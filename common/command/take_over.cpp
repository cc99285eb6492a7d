// SPDX-License-Identifier: Apache-2.0
#include "common/command/take_over.hpp"

#include <utility>

#include "common/command/words.hpp"

namespace paceline::frameworks {
namespace {

/// What the job says about the amount that the option names.
struct Amount {
  int wanted = 0;  // 0: not known here
  std::string field;
};

Amount amount_of(Meaning meaning, const JobShape& job) {
  switch (meaning) {
    case Meaning::kNodes: return {job.replicas, "spec.roles[].replicas"};
    case Meaning::kProcesses:
      return {job.processes_per_replica, "spec.framework.processesPerReplica"};
    case Meaning::kWorld:
      return {job.ranks, "spec.roles[].replicas or spec.framework.processesPerReplica"};
    default: return {};
  }
}

Status check_option(const LauncherCommand& launcher, const ParsedLauncher::Option& option,
                    const JobShape& job) {
  const std::string shown = option.value.empty() ? option.name : option.name + "=" + option.value;
  if (option.meaning == Meaning::kHosts) {
    return contradiction(shown +
                         " chooses hosts, but Paceline starts this job's ranks in its own pods: "
                         "remove " +
                         option.name);
  }
  if (option.meaning == Meaning::kElastic) {
    return contradiction(
        shown + " asks for an elastic job, which this job is not: remove " + option.name +
        "; the number of replicas is the sum of spec.roles[].replicas, and after a "
        "failure all ranks start again");
  }
  if (option.meaning == Meaning::kMpi) {
    return contradiction(
        shown + " starts the ranks by MPI: remove " + option.name +
        " to connect them by Gloo, or set spec.framework.type: MPI and write mpirun as "
        "the command");
  }
  if (option.meaning == Meaning::kSettings) {
    return contradiction(shown +
                         " changes the training, and Paceline does not pass it on: write it in " +
                         std::string(launcher.settings_by) + ", and remove " + option.name + "; " +
                         std::string(kPassthroughRemedy));
  }
  const auto [wanted, field] = amount_of(option.meaning, job);
  // Launchers take -1 for "as many as there are".
  if (field.empty() || wanted == 0 || option.value == "-1") return {};
  if (whole_number(option.value) != wanted) {
    return contradiction(shown + " contradicts the job, which says " + std::to_string(wanted) +
                         ": remove " + option.name + ", or change " + field);
  }
  return {};
}

std::vector<std::string> started(const LauncherCommand& launcher, const ParsedLauncher& parsed,
                                 std::vector<std::string> interpreter, bool module, bool program) {
  const std::string& first = parsed.rest.front();
  const bool python = first == "python" || first == "python3" || first == "pytest";
  std::vector<std::string> argv;
  if (launcher.rest != Rest::kCommand && launcher.rest != Rest::kProgram && !program &&
      (launcher.rest != Rest::kScriptByEnding || first.ends_with(".py")) &&
      (launcher.rest != Rest::kScriptOrPython || !python)) {
    argv = std::move(interpreter);
    argv.emplace_back("-u");
    if (module) argv.emplace_back("-m");
  }
  argv.insert(argv.end(), parsed.rest.begin(), parsed.rest.end());
  return argv;
}

}  // namespace

Result<Command> take_over_launcher(const LauncherCommand& launcher,
                                   std::vector<std::string> interpreter,
                                   std::span<const std::string> arguments, const JobShape& job) {
  const std::string name(launcher.name);
  if (!is_among(launcher.frameworks, job.framework)) {
    const std::string fits(launcher.frameworks.substr(0, launcher.frameworks.find(' ')));
    return contradiction(name + " starts no program of " + job.framework +
                         ": set spec.framework.type: " + fits +
                         ", or start the script itself (python script.py)");
  }
  const auto parsed = parse_launcher(launcher, arguments);
  if (!parsed) return std::unexpected(parsed.error());
  Command command;
  command.taken_over = true;
  bool module = false;
  bool program = false;
  bool local_rank = launcher.passes_local_rank;
  std::string replaced;
  for (const ParsedLauncher::Option& option : parsed->options) {
    if (auto checked = check_option(launcher, option, job); !checked)
      return std::unexpected(checked.error());
    module = module || option.meaning == Meaning::kModule;
    program = program || option.meaning == Meaning::kProgram;
    local_rank = local_rank && option.meaning != Meaning::kNoLocalRank;
    if (option.meaning != Meaning::kModule && option.meaning != Meaning::kProgram &&
        option.meaning != Meaning::kNoLocalRank)
      replaced += (replaced.empty() ? "" : ", ") + option.name;
  }
  if (!replaced.empty())
    command.notes.push_back("taken over from " + name +
                            ", the job's fields decide instead: " + replaced);
  if (module && program)
    return contradiction("--no_python and --module exclude each other: remove one");
  if (launcher.rest == Rest::kCommand && !job.trains) {
    // bpslaunch starts this in the pods of servers and of the scheduler, whatever it is given.
    command.argv = {std::move(interpreter.front()), "-c", "import byteps.server"};
    return command;
  }
  if (parsed->rest.empty())
    return contradiction(name + " is given no program to run: write " + name +
                         " [options] SCRIPT [arguments]");
  command.argv = started(launcher, *parsed, std::move(interpreter), module, program);
  if (local_rank)
    command.local_rank_at = static_cast<int>(command.argv.size() - parsed->rest.size()) + 1;
  return command;
}

}  // namespace paceline::frameworks
