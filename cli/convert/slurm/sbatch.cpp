// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/slurm/sbatch.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "cli/convert/environment.hpp"
#include "cli/convert/kinds/kubeflow_job.hpp"
#include "cli/convert/kinds/mpi_job.hpp"
#include "cli/convert/pod_template.hpp"
#include "cli/convert/slurm/commands.hpp"
#include "cli/convert/slurm/node_shape.hpp"
#include "cli/convert/slurm/options.hpp"
#include "cli/convert/slurm/place_flags.hpp"
#include "cli/convert/slurm/shell_words.hpp"
#include "cli/convert/slurm/values.hpp"
#include "cli/convert/started_by.hpp"

namespace paceline::cli {
namespace {

using contract::RoleKind;

/// A variable that the script sets.
struct Variable {
  std::string name;
  std::string value;
  int line = 1;
  bool computed = false;  // by a shell, so its value is not known here
};

class Script {
 public:
  Script(NewJob& job, Notes& notes) : job_(job), notes_(notes) {}

  Status read(const std::string& text) {
    const std::vector<ScriptCommand> commands = script_commands(text);
    const std::optional<Choice> choice = choose_program(commands);
    if (!choice)
      return fail(Code::kInvalid, Origin::kConfig,
                  "no line starts srun, torchrun, mpirun or python; add the command that trains");
    for (std::size_t i = 0; i < commands.size(); ++i) {
      if (commands[i].is_option) {
        std::size_t at = 0;
        read_options(shell_words(commands[i].text.substr(7)), at, commands[i].line);
      } else if (i != choice->command) {
        read_command(commands[i], i < choice->command);
      }
    }
    const ScriptCommand& program = commands[choice->command];
    note_choice(program, *choice);
    take_program(program);
    finish();
    return {};
  }

 private:
  void note(int line, const std::string& path, const std::string& value, std::string reason,
            std::string remedy) {
    const Json shown = value;
    notes_.drop(path, value.empty() ? nullptr : &shown, reason, std::move(remedy));
    notes_.all().back().line = line;
  }

  void to_do(int line, const std::string& path, const std::string& value, std::string reason,
             std::string remedy) {
    const Json shown = value;
    notes_.to_do(path, &shown, std::move(reason), std::move(remedy));
    notes_.all().back().line = line;
  }

  void note_choice(const ScriptCommand& program, const Choice& choice) {
    if (choice.others > 0)
      to_do(program.line, "command", program.text,
            "is taken for the one command that trains, of " + std::to_string(choice.others + 1) +
                " that may",
            "keep that one command in the script, and make one TrainingJob for each other that "
            "trains");
    if (!program.block.empty())
      to_do(
          program.line, "command", program.text,
          "stands in a loop, a condition or a function, and the job runs it once: " + program.block,
          "keep the command alone in the script, and make one TrainingJob for each turn");
  }

  void read_options(const std::vector<std::string>& words, std::size_t& at, int line) {
    for (const SlurmOption& option : read_slurm_options(words, at))
      read_option(option.name, option.value, line);
  }

  void read_option(const std::string& name, const std::string& value, int line) {
    const std::string path = "--" + name;
    if (value.find('$') != std::string::npos) {
      note(line, path, value, "it depends on variables of Slurm", "write the value itself");
      return;
    }
    if (read_count(name, value, line)) return;
    if (name == "time") {
      if (const auto seconds = time_limit(value); seconds && *seconds > 0)
        job_.active_deadline = duration_text(*seconds);
      else
        note(line, path, value, "it is no time limit", "write spec.activeDeadline");
    } else if (name == "job-name") {
      name_ = value;
    } else if (name == "partition") {
      job_.queue = value;
      const Json shown = value;
      notes_.add(path, &shown, "becomes spec.scheduling.queue",
                 "write nodeSelector if it stands for a kind of node");
      notes_.all().back().line = line;
    } else if (name == "mem" && !memory(value).empty()) {
      memory_ = memory(value);
    } else if (name == "chdir" || name == "container-workdir") {
      folder_ = value;
    } else if (name == "container-image") {
      image_ = value;
      std::ranges::replace(image_, '#', '/');
    } else if (name != "requeue") {
      drop_option(name, value, line);
    }
  }

  /// Numbers of nodes, tasks, CPUs and GPUs. Returns false for another option.
  bool read_count(const std::string& name, const std::string& value, int line) {
    constexpr std::array<std::string_view, 4> kCounts{"nodes", "ntasks", "ntasks-per-node",
                                                      "cpus-per-task"};
    constexpr std::array<std::string_view, 4> kGpus{"gpus", "gpus-per-node", "gpus-per-task",
                                                    "gres"};
    const std::string path = "--" + name;
    if (std::ranges::find(kGpus, name) != kGpus.end()) {
      const bool gres = name == "gres";
      const auto gpus = gpu_count(value, gres);
      if (!gpus || gpus->number < 1) {
        note(line, path, value, "it is no number of GPUs", "write limits of the container");
        return true;
      }
      counts_[gres ? "gpus-per-node" : name] = {gpus->number, line};
      if (!gpus->others.empty())
        note(line, path, gpus->others, "only GPUs are known", "write limits of the container");
      return true;
    }
    if (std::ranges::find(kCounts, name) == kCounts.end()) return false;
    const std::string first = name == "nodes" ? value.substr(0, value.find('-')) : value;
    const auto number = count_of(first);
    if (!number) {
      note(line, path, value, "it is no number of nodes, tasks or CPUs",
           "write replicas, processes or requests");
      return true;
    }
    counts_[name] = {*number, line};
    if (first != value)
      note(line, path, value, "the number of replicas is fixed: " + first,
           "change replicas if another number is better");
    return true;
  }

  void drop_option(const std::string& name, const std::string& value, int line) {
    const std::string path = "--" + name;
    if (name == "output" || name == "error" || name == "label" || name == "l")
      note(line, path, value, "the log is the pod's", "read it by kubectl logs");
    else if (name == "exclusive")
      note(line, path, value, "pods share nodes by what they ask for",
           "ask for all CPUs or GPUs of a node, or write scheduling.podsPerNode: 1");
    else if (name == "mem")
      note(line, path, value, "it is no amount; 0 means all memory of a node",
           "write requests.memory of the container");
    else if (name == "constraint" || name == "nodelist" || name == "exclude")
      note(line, path, value, "it names nodes of Slurm", "write nodeSelector or affinity");
    else if (name == "array")
      note(line, path, value, "a TrainingJob runs once", "make one TrainingJob for each index");
    else if (name == "container-mounts")
      note(line, path, value, "it names folders of Slurm's nodes",
           "write volumes and volumeMounts");
    else
      note(line, path, value, "a TrainingJob has no field like it",
           "look for its like in the API reference");
  }

  /// A command that is not the one that trains. What it sets counts for commands behind it.
  void read_command(const ScriptCommand& command, bool before) {
    const std::vector<std::string> words = shell_words(command.text);
    if (words.empty()) return;
    constexpr std::array<std::string_view, 6> kExport{"export",   "declare", "typeset",
                                                      "readonly", "local",   "setenv"};
    constexpr std::array<std::string_view, 7> kBlockEnds{"then", "do",   "else", "fi",
                                                         "done", "esac", "}"};
    const auto is_in = [&](const auto& list) {
      return std::ranges::find(list, words.front()) != list.end();
    };
    if (words.size() == 1 && is_in(kBlockEnds)) return;  // the block's first line is noted
    const bool sets = is_in(kExport) || std::ranges::all_of(words, is_assignment);
    if (before && sets) {
      for (const std::string& word : words) {
        if (is_assignment(word)) read_variable(word, command.line, !command.block.empty());
      }
      return;
    }
    if (before && words.front() == "for" && words.size() > 1) {
      add_variable({words[1], command.text, command.line, true});
      return;
    }
    if (before && command.block.empty() && words.size() == 2 && words.front() == "cd" &&
        !needs_shell(command.text)) {
      folder_ = words[1];
      return;
    }
    const bool harmless = words.front() == "set" || words.front() == "echo";
    note(command.line, harmless ? words.front() : "line", command.text,
         "only the command that trains runs",
         harmless ? "no action is needed"
         : words.front() == "wait"
             ? "the job waits for its ranks"
             : "put what it prepares into the image, or into an init container");
  }

  /// `guarded`: whether a loop or a condition decides.
  void read_variable(const std::string& word, int line, bool guarded) {
    const std::size_t equals = word.find('=');
    Variable variable{word.substr(0, equals), word.substr(equals + 1), line, guarded};
    const std::string& value = variable.value;
    variable.computed = guarded || value.find_first_of("$`") != std::string::npos ||
                        value.starts_with('~') || value.starts_with('(');
    add_variable(std::move(variable));
  }

  /// The last assignment decides.
  void add_variable(Variable variable) {
    const auto [old, added] = last_.try_emplace(variable.name, variables_.size());
    if (!added) variables_[old->second].name.clear();
    old->second = variables_.size();
    variables_.push_back(std::move(variable));
  }

  /// The command without srun, and without flags that repeat the job.
  void take_program(const ScriptCommand& command) {
    std::string raw = command.text;
    std::vector<ShellWord> words = placed_words(raw);
    std::vector<std::string> texts = shell_words(raw);
    std::size_t at = program_in(texts);
    for (std::size_t i = 0; i < at; ++i) {
      if (is_assignment(texts[i])) read_variable(texts[i], command.line, false);
    }
    if (base_name(texts[at]) == "srun") read_options(texts, ++at, command.line);
    if (at == words.size()) return;
    raw.erase(0, words[at].begin);
    if (started_by(shell_words(raw)).framework == "PyTorch") drop_place_flags(raw, command.line);
    texts = shell_words(raw);
    if (!needs_shell(raw)) {
      command_ = texts;
      return;
    }
    // A pipe fails if one of its commands does.
    std::string script = has_pipe(raw) ? "set -o pipefail; " : "";
    if (!has_several_commands(raw)) script += "exec ";
    script += raw;
    if (!command.body.empty()) script += "\n" + command.body;
    command_ = {"bash", "-c", script};
  }

  /// Removes flags of torchrun from its command.
  void drop_place_flags(std::string& raw, int line) {
    const std::string dropped = take_place_flags(raw);
    if (dropped.empty()) return;
    note(line, base_name(shell_words(raw).front()), dropped,
         "the job's own fields and launcher say it", "no action is needed");
  }

  /// The variables with known values. The others are noted.
  Json environment(const std::string& framework) {
    Json list = Json::array();
    std::set<std::string> used;
    for (const std::string& word : command_) {
      for (std::string& name : variables_in(word)) used.insert(std::move(name));
    }
    for (const Variable& variable : variables_) {
      const std::string& name = variable.name;
      if (name.empty()) continue;
      if (launcher_sets(name, framework)) {
        note(variable.line, name, variable.value, "the launcher sets it for each rank",
             "no action is needed");
      } else if (!variable.computed) {
        list.push_back({{"name", name}, {"value", variable.value}});
      } else if (used.contains(name)) {
        to_do(variable.line, name, variable.value,
              "is computed by the script, and the command that trains uses $" + name,
              "write its value in env of the trainer");
      } else {
        note(variable.line, name, variable.value, "a shell computes it",
             "write its value in env of the trainer, if the program reads it");
      }
    }
    return list;
  }

  Json resources(const NodeShape& shape) const {
    Json result = Json::object();
    if (const auto cpus = counts_.find("cpus-per-task"); cpus != counts_.end())
      result["requests"]["cpu"] = cpus->second.number * shape.tasks;
    if (!memory_.empty()) result["requests"]["memory"] = memory_;
    if (shape.gpus) result["limits"]["nvidia.com/gpu"] = *shape.gpus;
    return result;
  }

  void finish() {
    const Json metadata = {{"name", name_.empty() ? "sbatch" : name_}};
    read_metadata(&metadata, job_, notes_);
    const NodeShape shape = node_shape(counts_, notes_);
    const StartedBy found = started_by(command_);
    Json container = {{"name", "trainer"}};
    if (image_.empty()) {
      notes_.add("--container-image", nullptr, "is missing: pods need an image",
                 "write image: beside the name of the container trainer");
    } else {
      container["image"] = image_;
    }
    container["command"] = command_;
    if (!folder_.empty()) container["workingDir"] = folder_;
    const Json variables = environment(found.framework.empty() ? "PyTorch" : found.framework);
    if (!variables.empty()) container["env"] = variables;
    const Json wanted = resources(shape);
    if (!wanted.empty()) container["resources"] = wanted;
    adapt_foreign(container, "script", notes_);
    add_roles(container, shape, found);
  }

  void add_roles(const Json& container, const NodeShape& shape, const StartedBy& found) {
    job_.framework = found.framework;
    const auto add = [&](const char* name, RoleKind kind, std::int64_t replicas) {
      NewRole& role = add_role(job_, name, "script", notes_);
      role.kind = kind;
      role.replicas = replicas;
      role.pod_template["spec"]["containers"] = Json::array({container});
    };
    if (found.framework == "MPI") {
      add("launcher", RoleKind::kLauncher, 1);
      Json& launcher = *trainer_in(job_.roles.front().pod_template);
      launcher.erase("resources");
      job_.processes = shape.tasks;
    } else if (shape.tasks > 1 || found.launcher.empty()) {
      job_.processes = shape.tasks;
    }
    add("worker", RoleKind::kWorker, shape.nodes);
    if (job_.framework.empty()) {
      job_.framework = "PyTorch";
      const Json shown = job_.framework;
      notes_.add("srun", &shown,
                 "is taken for spec.framework.type, because nothing else names a framework",
                 "write MPI, Custom or another framework if that is wrong");
    }
    if (!job_.max_restarts) job_.max_restarts = 0;  // a failed task ends a job of Slurm
    job_.roles.back().trainer_path = "script";
    read_launcher(job_, job_.roles.back(), notes_);
  }

  NewJob& job_;
  Notes& notes_;
  SlurmCounts counts_;
  std::string name_;
  std::string memory_;
  std::string folder_;
  std::string image_;
  std::vector<std::string> command_;
  // In the order of their assignments. One that is assigned anew has no name.
  std::vector<Variable> variables_;
  std::map<std::string, std::size_t> last_;  // of each name, its place in `variables_`
};

}  // namespace

bool is_sbatch(const std::string& text) {
  return text.starts_with("#!") &&
         (text.find("\n#SBATCH") != std::string::npos || text.starts_with("#SBATCH"));
}

Result<NewJob> convert_sbatch(const std::string& text, Notes& notes) {
  NewJob job;
  if (const Status read = Script(job, notes).read(text); !read)
    return std::unexpected(read.error());
  return job;
}

}  // namespace paceline::cli
