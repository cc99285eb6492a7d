// SPDX-License-Identifier: Apache-2.0
// paceline: run a job on this machine. Wiring only.
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kExitUsage = 2;
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return paceline::cli::run_command(options);
}
