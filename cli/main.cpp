// SPDX-License-Identifier: Apache-2.0
// paceline: runs a job on this machine, and describes machines and nodes. This file only wires
// parts together.
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/doctor/command.hpp"
#include "cli/fabric/command.hpp"
#include "cli/node/command.hpp"
#include "cli/node/measure.hpp"
#include "cli/run/command.hpp"
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
    auto address = paceline::cli::published_agent(*api, options.node.name);
    if (!address) return refuse(address.error());
    options.node.agent = std::move(*address);
  }
  const auto url = paceline::cli::agent_url(options.node);
  if (!url) return refuse(url.error());
  const auto token = paceline::http::read_token(options.node.agent_token);
  if (!token) return refuse(token.error());
  const auto agent = paceline::http::make_beast_transport(url->endpoint);
  return paceline::cli::measure_command(*agent, *token, options, std::cout, std::cerr);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Paceline runs accelerated deep-learning training, in a cluster and on one machine.",
               "paceline");
  app.set_version_flag("--version", PACELINE_VERSION);
  app.require_subcommand(1);
  paceline::cli::RunOptions options;
  CLI::App* run =
      app.add_subcommand("run", "Run a TrainingJob on this machine, without Kubernetes");
  run->add_option("-f,--file", options.file, "job file (YAML)")->required();
  run->add_option("--map", options.maps,
                  "CONTAINER_PATH=LOCAL_PATH: where a path of the image lies on this machine; may "
                  "be given several times")
      ->allow_extra_args(false);
  run->add_option("--metrics-listen", options.metrics_listen,
                  "ip:port where Prometheus finds the metrics of all ranks while the job runs");
  run->add_option(
      "--runtime", options.runtime_dir,
      "directory of the runtime (lib/, python/), if it does not lie beside this program");
  paceline::cli::FabricOptions look;
  CLI::App* fabric =
      app.add_subcommand("fabric", "Show how GPUs and NICs of a machine lie to each other");
  fabric->add_flag("--json", look.json, "all that is known, as JSON");
  fabric->add_option("--root", look.machine.root,
                     "folder with the sys and proc of another machine, or a recording");
  fabric->add_option("--nvml", look.machine.nvml,
                     "a recorded answer of NVML (nvml.json of a recording)");
  fabric->add_option("--nccl-topo", look.machine.nccl_topo,
                     "a topology file as NCCL reads and writes it, instead of a machine");
  fabric->add_flag("--export-nccl-topo", look.export_nccl_topo, "print such a file");
  fabric
      ->add_option(
          "--record", look.record,
          "record this machine into a new folder, without serial numbers, addresses and UUIDs")
      ->excludes("--nccl-topo");
  paceline::cli::NodeOptions node;
  const auto add_node = [&node](CLI::App& command) {
    CLI::Option* name =
        command.add_option("--node", node.name, "a node of a cluster, as its agent published it");
    command
        .add_option("--kubeconfig", node.kubeconfig,
                    "how the cluster is reached; default: $KUBECONFIG")
        ->needs(name);
    command
        .add_option("--agent-namespace", node.agent_namespace,
                    "where the agents run, whose Leases tell who lives; default: paceline-agents")
        ->needs(name);
    for (const char* other : {"--root", "--nvml", "--nccl-topo", "--record", "--export-nccl-topo",
                              "--live", "--registrations", "--pci-config"}) {
      if (CLI::Option* option = command.get_option_no_throw(other); option != nullptr)
        name->excludes(option);
    }
    return name;
  };
  add_node(*fabric);
  paceline::cli::DoctorOptions sick;
  CLI::App* doctor = app.add_subcommand(
      "doctor", "Tell what keeps GPUDirect RDMA from working on a machine, and what to type");
  doctor->add_flag("--json", sick.json, "every finding, as JSON");
  CLI::Option* live = doctor->add_flag(
      "--live", sick.live,
      "register memory of idle GPUs with the NICs, and take it back: what only an attempt proves");
  doctor->add_option("--probe", sick.probe,
                     "the program that does it; default: paceline-probe beside this one");
  doctor
      ->add_option("--registrations", sick.registrations,
                   "what paceline-probe reported instead, maybe in a pod")
      ->excludes(live);
  doctor->add_option("--pci-config", sick.pci_config,
                     "folder that paceline-probe --pci-config recorded as root");
  doctor->add_option("--root", sick.machine.root,
                     "folder with the sys and proc of another machine, or a recording");
  doctor->add_option("--nvml", sick.machine.nvml,
                     "a recorded answer of NVML (nvml.json of a recording)");
  doctor
      ->add_option("--nccl-topo", sick.machine.nccl_topo,
                   "a topology file as NCCL reads and writes it, instead of a machine: what it "
                   "does not tell is unknown")
      ->excludes(live)
      ->excludes("--pci-config");
  CLI::Option* named = add_node(*doctor);
  CLI::Option* agent =
      doctor
          ->add_option(
              "--agent", node.agent,
              "https://ADDRESS:PORT of the node's agent: every finding, not the conditions alone")
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
                   "that its certificate is issued for; default: its address")
      ->needs(agent);
  paceline::cli::MeasureOptions far;
  CLI::App* measured = app.add_subcommand(
      "measure",
      "Measure latency and bandwidth from a node of a cluster to another, by their agents");
  measured->add_option("--node", far.node.name, "the node that measures")->required();
  measured->add_option("--peer", far.peer, "the node to which")->required();
  measured->add_option(
      "--agent", far.node.agent,
      "https://ADDRESS:PORT of the first node's agent; default: as its NodeFabric says");
  measured->add_option("--agent-ca", far.node.agent_ca,
                       "PEM certificates that sign the agent's; default: the system's");
  measured
      ->add_option("--agent-token", far.node.agent_token,
                   "file with a token of the audience paceline-agent")
      ->required();
  measured->add_option("--agent-name", far.node.agent_name,
                       "that its certificate is issued for; default: its address");
  measured->add_option("--kubeconfig", far.node.kubeconfig,
                       "how the cluster is reached; default: $KUBECONFIG");
  measured->add_flag("--json", far.json, "everything, as JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kExitUsage = 2;
    if (argc > 1 && *argv[1] != '-' && app.get_subcommands().empty()) {
      std::cerr << "paceline: there is no command " << argv[1]
                << "; paceline --help lists those that there are\n";
      return kExitUsage;
    }
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (*measured) return measure(std::move(far));
  if (!node.name.empty()) {
    constexpr int kExitInput = 2;
    const paceline::SystemClock clock;
    const auto api = connect(*fabric ? "fabric" : "doctor", node, clock);
    if (!api) return kExitInput;
    if (*fabric)
      return paceline::cli::node_fabric(*api, node, clock, look.json, std::cout, std::cerr);
    return node.agent.empty()
               ? paceline::cli::node_doctor(*api, node, clock, sick.json, std::cout, std::cerr)
               : paceline::cli::agent_doctor(*api, sick.json, std::cout, std::cerr);
  }
  if (*fabric) return paceline::cli::fabric_command(look, std::cout, std::cerr);
  if (*doctor) return paceline::cli::doctor_command(sick, std::cout, std::cerr);
  return paceline::cli::run_command(options);
}
