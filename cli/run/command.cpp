// SPDX-License-Identifier: Apache-2.0
#include "cli/run/command.hpp"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <expected>
#include <filesystem>
#include <iostream>
#include <set>
#include <system_error>

#include "cli/report/write.hpp"
#include "cli/run/compare.hpp"
#include "cli/run/job_file.hpp"
#include "cli/run/local_plan.hpp"
#include "cli/run/local_run.hpp"
#include "cli/watch/document.hpp"
#include "cli/watch/local_runs.hpp"
#include "common/base/timestamp.hpp"
#include "common/contract/env.hpp"
#include "common/net/address.hpp"
#include "common/net/ports.hpp"
#include "operator/api/failure_policy.hpp"
#include "operator/api/parse.hpp"
#include "operator/api/validate.hpp"

extern char** environ;

namespace paceline::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kExitInput = 2;
constexpr int kExitMachine = 1;

int wrong_input(const std::string& text) {
  std::cerr << text << (text.ends_with('\n') ? "" : "\n");
  return kExitInput;
}

std::string random_hex() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr) continue;
    const std::string name(*entry, static_cast<std::size_t>(equals - *entry));
    // Drop the variables that a surrounding Paceline set (if this run was started from a run). Keep
    // those that users may set.
    if (name.starts_with("PACELINE_") && !env::is_users(name)) continue;
    environment.emplace(name, equals + 1);
  }
  return environment;
}

/// The number of CPUs that this process may run on.
int allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

bool is_runtime(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "python/paceline", error);
}

/// The runtime is <dir>/runtime beside bin/ in a build, and <dir> itself in an installation.
std::string find_runtime(const fs::path& program_dir) {
  for (const fs::path& candidate :
       {program_dir.parent_path() / "runtime", program_dir.parent_path()}) {
    if (is_runtime(candidate)) return candidate.string();
  }
  return "";
}

/// Top-level folders in the commands that do not exist on this machine: folders of the image
/// without a --map.
std::set<std::string> unknown_folders(const LocalPlan& plan) {
  std::set<std::string> unknown;
  std::error_code error;
  for (const LocalReplica& replica : plan.replicas) {
    for (const std::string& word : replica.argv) {
      const std::string top = word.substr(0, word.find('/', 1));
      if (top.starts_with('/') && !fs::exists(top, error)) unknown.insert(top);
    }
  }
  return unknown;
}

/// A directory that is removed with this object.
class StateDirectory {
 public:
  explicit StateDirectory(const std::string& base) : path_(base + "/paceline-XXXXXX") {
    good_ = ::mkdtemp(path_.data()) != nullptr;
  }
  ~StateDirectory() {
    std::error_code ignored;
    if (good_) fs::remove_all(path_, ignored);
  }
  StateDirectory(const StateDirectory&) = delete;
  StateDirectory& operator=(const StateDirectory&) = delete;
  bool good() const { return good_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool good_ = false;
};

Result<std::vector<PathMapping>> read_mappings(const std::vector<std::string>& texts) {
  std::vector<PathMapping> mappings;
  for (const std::string& text : texts) {
    auto mapping = parse_mapping(text, fs::current_path().string());
    if (!mapping) return std::unexpected(mapping.error());
    std::error_code error;
    if (!fs::exists(mapping->local, error)) {
      return fail(Code::kNotFound, Origin::kConfig,
                  "--map " + text + ": " + mapping->local +
                      " does not exist here; name a directory or file of this machine");
    }
    mapping->local = fs::canonical(mapping->local, error).string();
    mappings.push_back(*std::move(mapping));
  }
  return mappings;
}

/// What is wrong with the choice of a file or a script, or of options; "" if nothing.
std::string contradiction_of(const RunOptions& options) {
  const std::vector<std::string>& command = options.script.command;
  if (!options.report.empty()) {
    if (const auto known = check_report_name(options.report); !known)
      return "--report: " + known.error().message;
  }
  if (command.empty())
    return options.file.empty() ? "name a script (paceline run train.py), or a job file with -f"
                                : "";
  // Options behind the first word are the script's, also -f.
  if (command.front().starts_with('-'))
    return "there is no option " + command.front() + "; `paceline run --help` lists them";
  if (!options.file.empty())
    return "-f " + options.file + " has a command of its own: remove it, or remove " +
           command.front();
  return "";
}

/// A job that passed all checks, and the values of other flags.
struct Inputs {
  std::vector<PathMapping> mappings;
  net::Address metrics;
  api::TrainingJob job;
};

/// The exit code, after the problem was printed, if an input is wrong.
std::expected<Inputs, int> read_inputs(const RunOptions& options) {
  const auto refuse = [](const std::string& text) { return std::unexpected(wrong_input(text)); };
  Inputs inputs;
  auto mappings = read_mappings(options.maps);
  if (!mappings) return refuse(mappings.error().message);
  inputs.mappings = *std::move(mappings);
  if (!options.metrics_listen.empty()) {
    const auto address = net::parse_address(options.metrics_listen);
    if (!address) return refuse("--metrics-listen: " + address.error().message);
    inputs.metrics = *address;
  }
  if (!options.runtime_dir.empty() && !is_runtime(options.runtime_dir))
    return refuse("--runtime " + options.runtime_dir +
                  ": not a runtime (python/paceline is missing); name a folder with its lib/ and "
                  "python/");
  const auto file = options.file.empty() ? Result<JobFile>(job_of_script(options.script))
                                         : read_job(options.file);
  if (!file) return refuse(file.error().message);
  auto job = api::parse_training_job(file->document);
  if (!job) return refuse(describe(*file, job.error()));
  auto errors = api::validate_program(*job);
  const auto refused = refuse_locally(*job, inputs.mappings);
  errors.insert(errors.end(), refused.begin(), refused.end());
  if (!errors.empty()) return refuse(describe(*file, errors));
  inputs.job = *std::move(job);
  if (inputs.job.spec.failure_policy.spares > 0) {
    std::cerr << "[paceline] ignored, as a local run does not use it: failurePolicy.spares\n";
    api::remove_spares(inputs.job.spec);
  }
  if (inputs.job.metadata.uid.empty()) inputs.job.metadata.uid = random_hex();
  return inputs;
}

/// Everything of the machine but its state directory and ports; the exit code if the launcher is
/// missing.
std::expected<Machine, int> describe_machine(const RunOptions& options,
                                             std::vector<PathMapping> mappings) {
  std::error_code error;
  const fs::path program_dir = fs::read_symlink("/proc/self/exe", error).parent_path();
  Machine machine;
  machine.environment = own_environment();
  // A run that is measured and ended early leaves no checkpoint behind.
  if (options.last_step != 0)
    machine.environment.try_emplace(std::string(env::kCheckpointGrace.name), "Disabled");
  machine.mappings = std::move(mappings);
  machine.launcher = (program_dir / "paceline-launcher").string();
  machine.runtime_dir =
      options.runtime_dir.empty() ? find_runtime(program_dir) : options.runtime_dir;
  if (::access(machine.launcher.c_str(), X_OK) != 0) {
    std::cerr << "paceline: " << machine.launcher
              << " is missing; build or install paceline-launcher beside paceline\n";
    return std::unexpected(kExitMachine);
  }
  if (machine.runtime_dir.empty())
    std::cerr << "[paceline] no runtime found beside " << program_dir.string()
              << ": no step-time breakdown (--runtime DIR names one)\n";
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  machine.host_name = host.data();
  machine.token = random_hex();
  machine.cpus = allowed_cpus();
  return machine;
}

void warn_about(const LocalPlan& plan) {
  if (!plan.ignored.empty()) {
    std::string names;
    for (const std::string& field : plan.ignored) names += (names.empty() ? "" : ", ") + field;
    std::cerr << "[paceline] ignored, as a local run does not use them: " << names << "\n";
  }
  for (const std::string& folder : unknown_folders(plan))
    std::cerr << "[paceline] the command names " << folder
              << ", which does not exist on this machine; --map " << folder
              << "=FOLDER says where it is\n";
}

/// Runs a job once; the exit code if it could not be started.
std::expected<RunEnd, int> run_once(const RunOptions& options, const Inputs& inputs,
                                    Machine machine, bool first) {
  const api::TrainingJob& job = inputs.job;
  const StateDirectory state(state_base());
  if (!state.good()) {
    std::cerr << "paceline: cannot make a state directory " << state.path() << ": "
              << std::strerror(errno) << "; set TMPDIR to a writable directory\n";
    return std::unexpected(kExitMachine);
  }
  machine.state_dir = state.path();
  // Held to the end: launchers listen later, and listen again when one is restarted.
  std::vector<net::HeldPort> ports;
  for (int i = 0; i < api::replica_count(job.spec) + 1; ++i) {
    if (ports.emplace_back("127.0.0.1").port() != 0) continue;
    std::cerr << "paceline: no TCP port of 127.0.0.1 is free\n";
    return std::unexpected(kExitMachine);
  }
  machine.rendezvous_port = ports.front().port();
  for (std::size_t i = 1; i < ports.size(); ++i) machine.http_ports.push_back(ports[i].port());

  LocalPlan plan = plan_locally(job, machine);
  if (first) warn_about(plan);
  const SystemClock clock;
  Screen screen(job.metadata.name, ::isatty(STDOUT_FILENO) == 1, clock);
  const auto acceleration = api::resolve(job.spec.acceleration, nullptr);
  const nlohmann::json document = run_document(job.metadata.name, ranks_of(job.spec), clock.wall(),
                                               acceleration ? &*acceleration : nullptr);
  // Without it the run goes on, and other commands do not find it.
  if (const auto noted = write_note(state.path(), {::getpid(), machine.http_ports, machine.token,
                                                   machine.launcher, document});
      !noted)
    std::cerr << "[paceline] `paceline top --local` will not show this run: "
              << noted.error().message << "\n";
  LocalRunConfig config{job.metadata.name,
                        machine.token,
                        machine.http_ports,
                        job.spec.failure_policy.grace_period,
                        job.spec.active_deadline,
                        inputs.metrics.host,
                        inputs.metrics.port,
                        options.last_step,
                        document};
  LocalRun run(std::move(config), std::move(plan), screen, clock);
  auto end = run.run();
  if (!end) {
    std::cerr << "paceline: " << end.error().message << "\n";
    return std::unexpected(kExitMachine);
  }
  end->document["completionTime"] = format_time(clock.wall());
  return *std::move(end);
}

/// Keeps what is known of a run for `paceline explain` and `report`, and writes the report that was
/// asked for. Neither changes how the run ended.
void remember(const RunOptions& options, const nlohmann::json& document) {
  if (const auto kept = keep_run(kept_folder(), document); !kept)
    std::cerr << "[paceline] `paceline explain` will not know this run: " << kept.error().message
              << "\n";
  if (options.report.empty()) return;
  const auto written = write_report(options.report, document, SystemClock().wall());
  std::cerr << "[paceline] "
            << (written ? "report: " + options.report : "no report: " + written.error().message)
            << "\n";
}

/// Runs the job with acceleration and without, in turn. Ends at the first run that fails, or that
/// has too few steps to measure; the exit code tells.
int compare(const RunOptions& options, Inputs inputs, const Machine& machine) {
  const api::AccelerationChoice acceleration = inputs.job.spec.acceleration;
  api::AccelerationChoice none;
  none.mode = api::AccelerationMode::kDisabled;
  const std::vector<bool> order = order_of_runs(options.pairs);
  std::vector<PacePair> pairs(static_cast<std::size_t>(options.pairs));
  for (std::size_t i = 0; i < order.size(); ++i) {
    inputs.job.spec.acceleration = order[i] ? acceleration : none;
    const std::string name = "[paceline] run " + std::to_string(i + 1) + " of " +
                             std::to_string(order.size()) +
                             (order[i] ? ", with acceleration" : ", without");
    std::cerr << name << "\n";
    const auto end = run_once(options, inputs, machine, i == 0);
    if (!end) return end.error();
    if (end->code != 0) {
      std::cout << final_table(inputs.job.metadata.name, end->view, end->seconds) << std::flush;
      std::cerr << name << ": it failed, so nothing is compared\n";
      return end->code;
    }
    const auto pace = seconds_a_step(end->view);
    if (!pace) {
      std::cerr << "paceline run --compare: " << end->view.steps
                << " training steps were seen, and " << telemetry::kWarmSteps + kFewestSteps
                << " are needed; have the script train for longer\n";
      return kExitMachine;
    }
    (order[i] ? pairs[i / 2].with : pairs[i / 2].without) = *pace;
  }
  std::cout << comparison_text(pairs) << std::flush;
  return 0;
}

}  // namespace

int run_command(const RunOptions& options) {
  if (const std::string wrong = contradiction_of(options); !wrong.empty())
    return wrong_input("paceline run: " + wrong);
  auto inputs = read_inputs(options);
  if (!inputs) return inputs.error();
  auto machine = describe_machine(options, inputs->mappings);
  if (!machine) return machine.error();
  if (options.compare) return compare(options, *std::move(inputs), *machine);
  const auto end = run_once(options, *inputs, *std::move(machine), true);
  if (!end) return end.error();
  std::cout << final_table(inputs->job.metadata.name, end->view, end->seconds);
  if (!end->last_words.empty()) std::cout << end->last_words << "\n";
  std::cout.flush();
  remember(options, end->document);
  return end->code;
}

}  // namespace paceline::cli
