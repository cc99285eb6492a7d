// SPDX-License-Identifier: Apache-2.0
// paceline: run a job on this machine, and tell what the machine is. Wiring only.
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/doctor/command.hpp"
#include "cli/fabric/command.hpp"
#include "cli/run/command.hpp"

int main(int argc, char** argv) {
  CLI::App app("Paceline runs accelerated deep-learning training, in a cluster and on one machine.", "paceline");
  app.set_version_flag("--version", PACELINE_VERSION);
  app.require_subcommand(1);
  paceline::cli::RunOptions options;
  CLI::App* run = app.add_subcommand("run", "Run a TrainingJob on this machine, without Kubernetes");
  run->add_option("-f,--file", options.file, "job file (YAML)")->required();
  run->add_option(
         "--map", options.maps,
         "CONTAINER_PATH=LOCAL_PATH: where a path of the image lies on this machine; may be given several times")
      ->allow_extra_args(false);
  run->add_option("--metrics-listen", options.metrics_listen,
                  "ip:port where Prometheus finds the metrics of all ranks while the job runs");
  run->add_option("--runtime", options.runtime_dir,
                  "directory of the runtime (lib/, python/), if it does not lie beside this program");
  paceline::cli::FabricOptions look;
  CLI::App* fabric = app.add_subcommand("fabric", "Show how GPUs and NICs of a machine lie to each other");
  fabric->add_flag("--json", look.json, "all that is known, as JSON");
  fabric->add_option("--root", look.machine.root, "folder with the sys and proc of another machine, or a recording");
  fabric->add_option("--nvml", look.machine.nvml, "a recorded answer of NVML (nvml.json of a recording)");
  fabric->add_option("--nccl-topo", look.nccl_topo,
                     "a topology file as NCCL reads and writes it, instead of a machine");
  fabric->add_flag("--export-nccl-topo", look.export_nccl_topo, "print such a file");
  fabric->add_option("--record", look.record,
                     "record this machine into a new folder, without serial numbers, addresses and UUIDs");
  paceline::cli::DoctorOptions sick;
  CLI::App* doctor =
      app.add_subcommand("doctor", "Tell what keeps GPUDirect RDMA from working on a machine, and what to type");
  doctor->add_flag("--json", sick.json, "every finding, as JSON");
  CLI::Option* live = doctor->add_flag(
      "--live", sick.live, "register memory of idle GPUs with the NICs, and take it back: what only an attempt proves");
  doctor->add_option("--probe", sick.probe, "the program that does it; default: paceline-probe beside this one");
  doctor->add_option("--registrations", sick.registrations, "what paceline-probe reported instead, maybe in a pod")
      ->excludes(live);
  doctor->add_option("--pci-config", sick.pci_config, "folder that paceline-probe --pci-config recorded as root");
  doctor->add_option("--root", sick.machine.root, "folder with the sys and proc of another machine, or a recording");
  doctor->add_option("--nvml", sick.machine.nvml, "a recorded answer of NVML (nvml.json of a recording)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kExitUsage = 2;
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  if (*fabric) return paceline::cli::fabric_command(look, std::cout, std::cerr);
  if (*doctor) return paceline::cli::doctor_command(sick, std::cout, std::cerr);
  return paceline::cli::run_command(options);
}
