// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/slurm/sbatch.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "cli/convert/environment.hpp"
#include "cli/convert/kinds/kubeflow_job.hpp"
#include "cli/convert/kinds/mpi_job.hpp"
#include "cli/convert/pod_template.hpp"
#include "cli/convert/slurm/shell_words.hpp"
#include "cli/convert/slurm/values.hpp"
#include "cli/convert/started_by.hpp"

namespace paceline::cli {
namespace {

using contract::RoleKind;

struct Short {
  char letter;
  std::string_view name;
};
constexpr std::array kShort{
    Short{'N', "nodes"},      Short{'n', "ntasks"},    Short{'c', "cpus-per-task"},
    Short{'t', "time"},       Short{'J', "job-name"},  Short{'p', "partition"},
    Short{'G', "gpus"},       Short{'o', "output"},    Short{'e', "error"},
    Short{'A', "account"},    Short{'q', "qos"},       Short{'D', "chdir"},
    Short{'C', "constraint"}, Short{'w', "nodelist"},  Short{'x', "exclude"},
    Short{'a', "array"},      Short{'d', "dependency"}};
/// Options of srun and sbatch without a value.
constexpr std::array<std::string_view, 12> kSwitches{"exclusive",     "requeue",
                                                     "no-requeue",    "label",
                                                     "unbuffered",    "overlap",
                                                     "verbose",       "quiet",
                                                     "oversubscribe", "kill-on-invalid-dep",
                                                     "pty",           "no-container-mount-home"};

class Script {
 public:
  Script(NewJob& job, Notes& notes) : job_(job), notes_(notes) {}

  Status read(const std::string& text) {
    std::vector<ScriptLine> lines = script_lines(text);
    std::erase_if(lines, [](const ScriptLine& line) { return line.text.starts_with("#!"); });
    std::size_t program = lines.size();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].text.starts_with("#SBATCH")) {
        std::vector<std::string> words = shell_words(lines[i].text.substr(7));
        read_options(words, 0, lines[i].number);
      } else if (starts_program(lines[i].text)) {
        program = i;
      }
    }
    if (program == lines.size())
      return fail(Code::kInvalid, Origin::kConfig,
                  "no line starts srun, torchrun, mpirun or python; add the command that trains");
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i != program && !lines[i].text.starts_with("#SBATCH")) read_line(lines[i]);
    }
    take_program(lines[program]);
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

  static bool starts_program(const std::string& line) {
    const std::vector<std::string> words = shell_words(line);
    if (words.empty()) return false;
    const std::string name = base_name(words.front());
    return name == "srun" || name.starts_with("python") || name == "torchrun" ||
           !started_by(words).launcher.empty();
  }

  /// Reads options until the first word that is none; returns its place.
  std::size_t read_options(const std::vector<std::string>& words, std::size_t at, int line) {
    while (at < words.size() && words[at].size() > 1 && words[at].front() == '-') {
      std::string name;
      std::string value;
      const std::string& word = words[at++];
      if (word == "--") break;
      if (word.starts_with("--")) {
        const std::size_t equals = word.find('=');
        name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
        const bool has_value = equals != std::string::npos;
        const bool is_switch = std::ranges::find(kSwitches, name) != kSwitches.end();
        if (has_value) {
          value = word.substr(equals + 1);
        } else if (!is_switch && at < words.size()) {
          value = words[at++];
        }
      } else {
        const auto* const known = std::ranges::find(kShort, word[1], &Short::letter);
        name = known == kShort.end() ? word.substr(1, 1) : std::string(known->name);
        if (word.size() > 2) {
          value = word.substr(2);
        } else if (known != kShort.end() && at < words.size()) {
          value = words[at++];
        }
      }
      read_option(name, value, line);
    }
    return at;
  }

  void read_option(const std::string& name, const std::string& value, int line) {
    const std::string path = "--" + name;
    // An option of srun that only repeats one of the script.
    if (value.find('$') != std::string::npos) {
      note(line, path, value, "it depends on variables of Slurm", "write the value itself");
      return;
    }
    constexpr std::array<std::string_view, 7> kCounts{"nodes",         "ntasks", "ntasks-per-node",
                                                      "cpus-per-task", "gpus",   "gpus-per-node",
                                                      "gpus-per-task"};
    if (std::ranges::find(kCounts, name) != kCounts.end() || name == "gres") {
      const bool gpu = name != "gres" || value.starts_with("gpu");
      const std::string first = name == "nodes" ? value.substr(0, value.find('-')) : value;
      const auto number = gpu ? last_number(first) : std::nullopt;
      if (!number || *number < 1) {
        note(line, path, value, "it is no number of GPUs, nodes or tasks",
             "write replicas, processes or limits");
        return;
      }
      counts_[name == "gres" ? "gpus-per-node" : name] = *number;
      if (first != value)
        note(line, path, value, "the number of replicas is fixed: " + first,
             "change replicas if another number is better");
    } else if (name == "time") {
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
    } else if (name == "chdir") {
      folder_ = value;
    } else if (name == "container-image") {
      image_ = value;
      std::ranges::replace(image_, '#', '/');
    } else if (name != "requeue") {
      drop_option(name, value, line);
    }
  }

  void drop_option(const std::string& name, const std::string& value, int line) {
    const std::string path = "--" + name;
    if (name == "output" || name == "error" || name == "label" || name == "l")
      note(line, path, value, "the log is the pod's", "read it by kubectl logs");
    else if (name == "exclusive")
      note(line, path, value, "pods share nodes by what they ask for",
           "ask for all CPUs or GPUs of a node, or write scheduling.exclusiveNodes: true");
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

  /// A line that is not the one that trains.
  void read_line(const ScriptLine& line) {
    const std::vector<std::string> words = shell_words(line.text);
    const bool exported = !words.empty() && words.front() == "export";
    if (exported && words.size() > 1) {
      for (std::size_t i = 1; i < words.size(); ++i) read_variable(words[i], line.number);
      return;
    }
    const bool assigned = words.size() == 1 && words[0].find('=') != std::string::npos;
    if (words.size() == 2 && words.front() == "cd" && !needs_shell(line.text)) {
      folder_ = words[1];
    } else if (assigned || words.front() == "set" || words.front() == "echo") {
      note(line.number, words.front() == "echo" || words.front() == "set" ? words.front() : "line",
           line.text, "only the command that trains runs", "no action is needed");
    } else {
      note(line.number, "line", line.text, "only the command that trains runs",
           "put what it prepares into the image, or into an init container");
    }
  }

  void read_variable(const std::string& word, int line) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return;
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (value.find_first_of("$`") == std::string::npos) {
      environment_.push_back({{"name", name}, {"value", value}});
      lines_[name] = line;
      return;
    }
    const bool place = name.starts_with("MASTER_") || name == "WORLD_SIZE" || name == "RANK" ||
                       name == "LOCAL_RANK";
    note(line, "export " + name, value,
         place ? "the launcher sets it for each rank" : "a shell computes it",
         place ? "no action is needed" : "write its value in env of the trainer");
  }

  static bool is_place_flag(const std::string& word) {
    constexpr std::array<std::string_view, 9> kFlags{
        "--nnodes",      "--node_rank",   "--node-rank", "--master_addr", "--master-addr",
        "--master_port", "--master-port", "--rdzv",      "--max_restarts"};
    return std::ranges::any_of(kFlags,
                               [&](std::string_view flag) { return word.starts_with(flag); });
  }

  /// The command without srun, and without flags that repeat the job.
  void take_program(const ScriptLine& line) {
    std::vector<std::string> words = shell_words(line.text);
    std::size_t at = 0;
    if (base_name(words.front()) == "srun") at = read_options(words, 1, line.number);
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at));
    const StartedBy found = started_by(words);
    if (found.framework == "PyTorch" && !found.shell) drop_place_flags(words, line.number);
    if (words.empty()) return;
    const bool shell = std::ranges::any_of(words, [](const std::string& word) {
      return word.find_first_of("$`|;&<>") != std::string::npos;
    });
    command_ = words;
    if (!shell || found.shell) return;
    std::string script = "exec";
    for (const std::string& word : words)
      script += word.find(' ') == std::string::npos ? " " + word : " \"" + word + "\"";
    command_ = {"bash", "-c", script};
  }

  void drop_place_flags(std::vector<std::string>& words, int line) {
    std::string dropped;
    for (std::size_t i = 1; i < words.size();) {
      const bool own = words[i].starts_with('-');
      if (!own) break;  // the script's own arguments begin
      const bool joined = words[i].find('=') != std::string::npos;
      const std::size_t count = joined || i + 1 == words.size() || words[i] == "-m" ? 1 : 2;
      if (!is_place_flag(words[i])) {
        if (words[i] == "-m") break;
        i += count;
        continue;
      }
      for (std::size_t k = 0; k < count; ++k)
        dropped += (dropped.empty() ? "" : " ") + words[i + k];
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i),
                  words.begin() + static_cast<std::ptrdiff_t>(i + count));
    }
    if (!dropped.empty())
      note(line, words.front(), dropped, "the job's own fields and launcher say it",
           "no action is needed");
  }

  std::optional<std::int64_t> count(const std::string& name) const {
    const auto found = counts_.find(name);
    return found == counts_.end() ? std::nullopt : std::optional(found->second);
  }

  std::int64_t tasks_per_node(std::int64_t nodes) const {
    if (const auto tasks = count("ntasks-per-node")) return *tasks;
    if (const auto tasks = count("ntasks")) return std::max<std::int64_t>(1, *tasks / nodes);
    return 1;
  }

  Json resources(std::int64_t nodes, std::int64_t tasks) const {
    Json result = Json::object();
    if (const auto cpus = count("cpus-per-task")) result["requests"]["cpu"] = *cpus * tasks;
    if (!memory_.empty()) result["requests"]["memory"] = memory_;
    std::optional<std::int64_t> gpus = count("gpus-per-node");
    if (!gpus && count("gpus-per-task")) gpus = *count("gpus-per-task") * tasks;
    if (!gpus && count("gpus")) gpus = std::max<std::int64_t>(1, *count("gpus") / nodes);
    if (gpus) result["limits"]["nvidia.com/gpu"] = *gpus;
    return result;
  }

  void finish() {
    const Json metadata = {{"name", name_.empty() ? "sbatch" : name_}};
    read_metadata(&metadata, job_, notes_);
    const std::int64_t tasks = tasks_per_node(1);
    const std::int64_t nodes =
        count("nodes").value_or(count("ntasks") && count("ntasks-per-node")
                                    ? std::max<std::int64_t>(1, *count("ntasks") / tasks)
                                    : 1);
    Json container = {{"name", "trainer"}};
    if (image_.empty()) {
      notes_.add("--container-image", nullptr, "is missing: pods need an image",
                 "write image: beside the name of the container trainer");
    } else {
      container["image"] = image_;
    }
    container["command"] = command_;
    if (!folder_.empty()) container["workingDir"] = folder_;
    if (!environment_.empty()) container["env"] = environment_;
    const Json wanted = resources(nodes, tasks_per_node(nodes));
    if (!wanted.empty()) container["resources"] = wanted;
    carry_environment(container, "script", notes_);
    add_roles(container, nodes);
  }

  void add_roles(const Json& container, std::int64_t nodes) {
    const StartedBy found = started_by(command_);
    job_.framework = found.framework;
    const std::int64_t tasks = tasks_per_node(nodes);
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
      job_.processes = tasks;
    } else if (tasks > 1 || found.launcher.empty()) {
      job_.processes = tasks;
    }
    add("worker", RoleKind::kWorker, nodes);
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
  std::map<std::string, std::int64_t> counts_;
  std::map<std::string, int> lines_;
  std::string name_;
  std::string memory_;
  std::string folder_;
  std::string image_;
  std::vector<std::string> command_;
  Json environment_ = Json::array();
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
