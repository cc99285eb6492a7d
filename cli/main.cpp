// SPDX-License-Identifier: Apache-2.0
// paceline: runs a job on this machine, shows jobs, and describes machines and nodes. This file
// only wires parts together.
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "agent/client/measure.hpp"
#include "cli/convert/command.hpp"
#include "cli/doctor/command.hpp"
#include "cli/explain/command.hpp"
#include "cli/fabric/command.hpp"
#include "cli/job_arguments.hpp"
#include "cli/node/command.hpp"
#include "cli/node/measure.hpp"
#include "cli/report/command.hpp"
#include "cli/run/command.hpp"
#include "cli/top/command.hpp"
#include "cli/trace/command.hpp"
#include "cli/watch/way.hpp"
#include "common/http/beast/transport.hpp"
#include "common/http/token_file.hpp"
#include "common/kube/connect/connect.hpp"

namespace {

/// Connects to the API server, or to the agent if the options name it. Prints the error to stderr.
std::shared_ptr<paceline::kube::Api> connect(const char* command,
                                             const paceline::cli::NodeOptions& node,
                                             const paceline::Clock& clock) {
  paceline::kube::ConnectOptions options;
  options.max_connections = 1;
  options.prefer_cpprest = false;
  options.client.user_agent = "paceline/" PACELINE_VERSION;
  auto api = node.agent.empty() ? paceline::kube::connect(node.kubeconfig, clock, options)
                                : paceline::cli::connect_agent(node, clock);
  if (api) return *api;
  std::cerr << "paceline " << command << ": " << api.error().message << "\n";
  return nullptr;
}

/// Becomes `kubectl exec`; returns only if that is impossible.
int become(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  constexpr int kExitInput = 2;
  std::cerr << "paceline measure: kubectl could not be started (" << std::strerror(errno)
            << "): install it, or give --agent-token\n";
  return kExitInput;
}

/// Asks the agent to measure. If the options do not name the agent, its NodeFabric does.
int measure(paceline::cli::MeasureOptions options) {
  constexpr int kExitInput = 2;
  const auto refuse = [](const paceline::Error& error) {
    std::cerr << "paceline measure: " << error.message << "\n";
    return kExitInput;
  };
  const paceline::SystemClock clock;
  if (options.node.agent.empty()) {
    const auto api = connect("measure", options.node, clock);
    if (!api) return kExitInput;
    if (options.node.agent_token.empty()) {
      const auto words = paceline::cli::exec_in_agent(*api, options);
      return words ? become(*words) : refuse(words.error());
    }
    auto address = paceline::cli::published_agent(*api, options.node.name);
    if (!address) return refuse(address.error());
    options.node.agent = std::move(*address);
  }
  const auto url = paceline::cli::agent_url(options.node);
  if (!url) return refuse(url.error());
  const auto token = paceline::http::read_token(options.node.agent_token);
  if (!token) return refuse(token.error());
  const auto agent = paceline::http::make_beast_transport(url->endpoint);
  return paceline::agent::ask_to_measure(
      *agent, *token, {options.node.name, options.peer, options.json}, std::cout, std::cerr);
}

struct Options {
  paceline::cli::RunOptions run;
  paceline::cli::ConvertOptions convert;
  paceline::cli::FabricOptions fabric;
  paceline::cli::DoctorOptions doctor;
  paceline::cli::NodeOptions node;  // of fabric and doctor
  paceline::cli::MeasureOptions measure;
  paceline::cli::TopOptions top;
  paceline::cli::ExplainOptions explain;
  paceline::cli::ReportOptions report;
  paceline::cli::TraceOptions trace;
};

CLI::App* add_run(CLI::App& app, paceline::cli::RunOptions& options) {
  CLI::App* run = app.add_subcommand(
      "run", "Run a script or a TrainingJob on this machine, without Kubernetes");
  run->footer("paceline run [OPTIONS] SCRIPT.py [ARGUMENTS]\npaceline run [OPTIONS] -f FILE");
  // What follows the first word that is no option belongs to the script.
  run->prefix_command();
  run->add_option("-f,--file", options.file, "job file (YAML)");
  constexpr int kMostProcesses = 1024;
  run->add_option("-n,--processes", options.script.processes,
                  "processes of the script, one per accelerator; default: 1")
      ->check(CLI::Range(1, kMostProcesses));
  run->add_option("--numerics", options.script.numerics,
                  "how results may differ from those without Paceline: Bitwise, Reordered, Lossy")
      ->check(CLI::IsMember({"Bitwise", "Reordered", "Lossy"}));
  run->add_option("--map", options.maps,
                  "CONTAINER_PATH=LOCAL_PATH: the local path of a path in the image; may be given "
                  "several times")
      ->allow_extra_args(false);
  run->add_option("--metrics-listen", options.metrics_listen,
                  "ip:port that serves the metrics of all ranks to Prometheus while the job runs");
  run->add_option("--runtime", options.runtime_dir,
                  "directory of the runtime (lib/, python/), if it is not beside this program");
  CLI::Option* report =
      run->add_option("--report", options.report,
                      "file for a report of the run: a page (.html) or a document (.json)");
  CLI::Option* compare =
      run->add_flag("--compare", options.compare,
                    "run it with acceleration and without, in turn, and tell what was gained");
  compare->excludes(report);
  run->add_option("--pairs", options.pairs, "pairs of runs that are compared")
      ->needs(compare)
      ->check(CLI::Range(3, 100))
      ->capture_default_str();
  run->add_option("--steps", options.last_step,
                  "end each run after this many steps; default: when the program ends");
  return run;
}

CLI::App* add_convert(CLI::App& app, paceline::cli::ConvertOptions& options) {
  CLI::App* convert = app.add_subcommand(
      "convert", "Turn jobs of other operators, and sbatch scripts, into TrainingJobs");
  convert->footer(
      "Kinds: PyTorchJob, TFJob, MPIJob, PaddleJob, XGBoostJob and JAXJob of Kubeflow; TrainJob "
      "with its\nruntime; JobSet; Job of Volcano. What cannot be carried over is said, field by "
      "field.");
  convert->add_option("-f,--file", options.file, "file with the jobs (YAML), or an sbatch script")
      ->required();
  convert->add_option("-o,--output", options.output,
                      "file for the TrainingJobs; default: standard output");
  return convert;
}

/// The options that choose another machine than this one. Returns --nccl-topo.
template <typename Machine>
CLI::Option* add_machine(CLI::App& command, Machine& machine) {
  // An empty value would silently mean this machine.
  const CLI::Validator not_empty(
      [](const std::string& value) { return value.empty() ? "an empty value: give a path" : ""; },
      "PATH");
  command
      .add_option("--root", machine.root,
                  "folder with the sys and proc of another machine, or a recording")
      ->check(not_empty);
  command
      .add_option("--nvml", machine.nvml, "a recorded answer of NVML (nvml.json of a recording)")
      ->check(not_empty);
  return command
      .add_option("--nccl-topo", machine.nccl_topo,
                  "a topology file as NCCL reads and writes it, instead of a machine; what it "
                  "lacks is unknown. With --root (/ is this machine): only the places of devices")
      ->check(not_empty);
}

/// The options that choose a node of a cluster; no option of this machine goes with them.
CLI::Option* add_node(CLI::App& command, paceline::cli::NodeOptions& node) {
  CLI::Option* name = command.add_option("--node", node.name, "a node of a cluster");
  command
      .add_option("--kubeconfig", node.kubeconfig, "how to reach the cluster; default: $KUBECONFIG")
      ->needs(name);
  command
      .add_option("--agent-namespace", node.agent_namespace,
                  "namespace of the agents' Leases; default: paceline-agents")
      ->needs(name);
  for (const char* other : {"--root", "--nvml", "--nccl-topo", "--record", "--export-nccl-topo",
                            "--live", "--registrations", "--pci-config"}) {
    if (CLI::Option* option = command.get_option_no_throw(other); option != nullptr)
      name->excludes(option);
  }
  return name;
}

CLI::App* add_fabric(CLI::App& app, Options& options) {
  CLI::App* fabric =
      app.add_subcommand("fabric", "Show the distances between GPUs and NICs of a machine");
  fabric->add_flag("--json", options.fabric.json, "everything that is known, as JSON");
  CLI::Option* topology = add_machine(*fabric, options.fabric.machine);
  fabric->add_flag("--export-nccl-topo", options.fabric.export_nccl_topo,
                   "print a topology file for NCCL");
  fabric
      ->add_option(
          "--record", options.fabric.record,
          "record this machine into a new folder, without serial numbers, addresses and UUIDs")
      ->excludes(topology);
  add_node(*fabric, options.node);
  return fabric;
}

CLI::App* add_doctor(CLI::App& app, Options& options) {
  paceline::cli::DoctorOptions& machine = options.doctor;
  paceline::cli::NodeOptions& node = options.node;
  CLI::App* doctor = app.add_subcommand(
      "doctor", "Say what keeps GPUDirect RDMA from working on a machine, and what to type");
  doctor->add_flag("--json", machine.json, "all findings, as JSON");
  CLI::Option* live = doctor->add_flag(
      "--live", machine.live,
      "register memory of idle GPUs with the NICs and release it, which proves that it works");
  doctor->add_option("--probe", machine.probe,
                     "the program for --live; default: paceline-probe beside this one");
  doctor
      ->add_option("--registrations", machine.registrations,
                   "a report of paceline-probe, perhaps from a pod, instead of --live")
      ->excludes(live);
  CLI::Option* config =
      doctor->add_option("--pci-config", machine.pci_config,
                         "folder that paceline-probe --pci-config recorded as root");
  add_machine(*doctor, machine.machine)->excludes(live)->excludes(config);
  CLI::Option* named = add_node(*doctor, node);
  CLI::Option* agent =
      doctor
          ->add_option("--agent", node.agent,
                       "https://ADDRESS:PORT of the node's agent, for all findings instead of the "
                       "conditions")
          ->needs(named);
  doctor
      ->add_option("--agent-ca", node.agent_ca,
                   "PEM certificates that sign the agent's; default: the system's")
      ->needs(agent);
  doctor
      ->add_option("--agent-token", node.agent_token,
                   "file with a token of the audience paceline-agent")
      ->needs(agent);
  doctor
      ->add_option("--agent-name", node.agent_name,
                   "name in the agent's certificate; default: its address")
      ->needs(agent);
  return doctor;
}

CLI::App* add_measure(CLI::App& app, paceline::cli::MeasureOptions& options) {
  CLI::App* measure = app.add_subcommand(
      "measure", "Measure latency and bandwidth between two nodes of a cluster, by their agents");
  measure->add_option("--node", options.node.name, "the node that measures")->required();
  measure->add_option("--peer", options.peer, "the other node")->required();
  measure->add_option(
      "--agent", options.node.agent,
      "https://ADDRESS:PORT of the first node's agent; default: from its NodeFabric");
  measure->add_option("--agent-ca", options.node.agent_ca,
                      "PEM certificates that sign the agent's; default: the system's");
  measure->add_option("--agent-token", options.node.agent_token,
                      "file with a token of the audience paceline-agent; default: `kubectl exec` "
                      "in the agent's pod");
  measure->add_option("--agent-namespace", options.node.agent_namespace, "namespace of the agents")
      ->capture_default_str();
  measure->add_option("--agent-name", options.node.agent_name,
                      "name in the agent's certificate; default: its address");
  measure->add_option("--kubeconfig", options.node.kubeconfig,
                      "how to reach the cluster; default: $KUBECONFIG");
  measure->add_flag("--json", options.json, "everything, as JSON");
  return measure;
}

/// fabric or doctor of a node of a cluster.
int show_node(bool fabric, const Options& options) {
  constexpr int kExitInput = 2;
  const paceline::SystemClock clock;
  const auto& node = options.node;
  const auto api = connect(fabric ? "fabric" : "doctor", node, clock);
  if (!api) return kExitInput;
  if (fabric) {
    return paceline::cli::node_fabric(*api, node, clock, options.fabric.json, std::cout, std::cerr);
  }
  return node.agent.empty()
             ? paceline::cli::node_doctor(*api, node, clock, options.doctor.json, std::cout,
                                          std::cerr)
             : paceline::cli::agent_doctor(*api, options.doctor.json, std::cout, std::cerr);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Paceline runs accelerated deep-learning training, in a cluster and on one machine.",
               "paceline");
  app.set_version_flag("--version", PACELINE_VERSION);
  app.require_subcommand(1);
  Options options;
  const CLI::App* run = add_run(app, options.run);
  const CLI::App* converted = add_convert(app, options.convert);
  const CLI::App* fabric = add_fabric(app, options);
  const CLI::App* doctor = add_doctor(app, options);
  const CLI::App* measured = add_measure(app, options.measure);
  const CLI::App* top = paceline::cli::add_top(app, options.top);
  const CLI::App* explained = paceline::cli::add_explain(app, options.explain);
  const CLI::App* reported = paceline::cli::add_report(app, options.report);
  const CLI::App* traced = paceline::cli::add_trace(app, options.trace);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kExitUsage = 2;
    if (argc > 1 && *argv[1] != '-' && app.get_subcommands().empty()) {
      std::cerr << "paceline: there is no command " << argv[1]
                << "; `paceline --help` lists the commands\n";
      return kExitUsage;
    }
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (*converted) return paceline::cli::convert_command(options.convert, std::cout, std::cerr);
  if (*top) return paceline::cli::top_command(options.top);
  if (*explained) return paceline::cli::explain_command(options.explain);
  if (*reported) return paceline::cli::report_command(options.report);
  if (*traced) {
    const paceline::SystemClock clock;
    return paceline::cli::trace_command(
        options.trace,
        [&](const paceline::cli::TraceOptions& asked) {
          return paceline::cli::find_cluster(asked.kubeconfig, asked.name_space, clock);
        },
        std::cerr);
  }
  if (*measured) return measure(std::move(options.measure));
  if (!options.node.name.empty()) return show_node(static_cast<bool>(*fabric), options);
  if (*fabric) return paceline::cli::fabric_command(options.fabric, std::cout, std::cerr);
  if (*doctor) return paceline::cli::doctor_command(options.doctor, std::cout, std::cerr);
  options.run.script.command = run->remaining();
  return paceline::cli::run_command(options.run);
}
