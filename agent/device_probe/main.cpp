// SPDX-License-Identifier: Apache-2.0
// paceline-probe: finds out what needs privilege: which memory can be registered with which NIC,
// and PCI configuration space. An init container of the agent and the launcher's preflight run it.
// Wiring only. The program starts itself again as a child, and the child uses the devices.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <CLI/CLI.hpp>

#include "agent/checks/pod_verdict.hpp"
#include "agent/device_probe/in_process_probe.hpp"
#include "agent/device_probe/proof_cache.hpp"
#include "agent/probe/pci/pci_snapshot.hpp"
#include "agent/registration/probe_process.hpp"

namespace {

using namespace paceline;  // NOLINT(google-build-using-namespace): this file belongs to no part

struct Options {
  agent::DeviceProbeOptions here;
  std::string output;
  std::string pci_config;
  std::string keep;
  bool exit_zero = false;
  bool pod_verdict = false;
  int silence = 30;
  bool is_child = false;
};

/// The child: ends with its parent. It writes to a descriptor of its own, because a library may
/// print to stdout.
int run_here(const Options& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::FILE* answer = ::fdopen(::dup(STDOUT_FILENO), "w");
  if (answer == nullptr || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  agent::probe_devices(options.here, [answer](const std::string& line) {
    std::fwrite(line.data(), 1, line.size(), answer);
    std::fputc('\n', answer);
    std::fflush(answer);
  });
  return std::fclose(answer) == 0 ? 0 : 1;
}

/// Writes all of the text or nothing, so that a reader never sees half a report.
bool write_whole(const std::string& file, const std::string& text) {
  const std::string half = file + ".new";
  std::ofstream out(half, std::ios::binary);
  out << text;
  out.close();
  return out.good() && std::rename(half.c_str(), file.c_str()) == 0;
}

constexpr int kExitCouldNotLook = 2;

/// Records what the kernel shows only with CAP_SYS_ADMIN, for the agent, which lacks it.
bool snapshot(const Options& options) {
  if (options.pci_config.empty()) return true;
  const auto written = agent::write_pci_snapshot(agent::Root(options.here.sys, "/proc"),
                                                 options.pci_config, SystemClock().wall());
  if (!written) std::cerr << "paceline-probe: --pci-config: " << written.error().message << "\n";
  return written.has_value();
}

/// Adds to the report what an earlier run proved about GPUs that are busy now, and caches what is
/// proved for the next run.
void remember(const Options& options, agent::Registrations& found) {
  const auto file = std::filesystem::path(options.keep) / "proofs.json";
  const std::string machine = agent::machine_state(agent::Root(options.here.sys, "/proc"));
  const auto kept = agent::read_proof_cache(file, machine, SystemClock().wall());
  if (!kept.refused.empty())
    std::cerr << "paceline-probe: " << file.string() << " is ignored: " << kept.refused << "\n";
  agent::apply_cached_proofs(found, kept.attempts);
  if (const auto written = agent::write_proof_cache(file, machine, found); !written)
    std::cerr << "paceline-probe: --keep: " << written.error().message << "\n";
}

int try_devices(const Options& options) {
  agent::ProbeCommand command;
  command.program = "/proc/self/exe";
  command.arguments = {"--child",         "--verbs", options.here.verbs, "--cuda",
                       options.here.cuda, "--nvml",  options.here.nvml,  "--sys",
                       options.here.sys,  "--nccl",  options.here.nccl};
  if (options.here.even_busy) command.arguments.emplace_back("--even-busy");
  command.silence = std::chrono::seconds(options.silence);
  // Remove an older report, so that no reader takes it for this one.
  if (!options.output.empty()) std::remove(options.output.c_str());
  const auto began = SystemClock().wall();
  auto found = agent::run_probe_process(command);
  found.taken = began;
  if (!options.keep.empty() && !options.pod_verdict) remember(options, found);
  if (options.pod_verdict) {
    std::cout << agent::pod_verdict_json(agent::judge_pod(found), agent::pod_findings(found));
    return 0;
  }
  const std::string report = agent::registrations_json(found);
  if (options.output.empty()) {
    std::cout << report;
  } else if (!write_whole(options.output, report)) {
    std::cerr << "paceline-probe: cannot write --output " << options.output
              << ": give a file in a folder that exists and has room\n";
    return kExitCouldNotLook;
  }
  if (!found.problem.empty()) {
    std::cerr << "paceline-probe: " << found.problem << "\n";
    // If devices were searched and there are none, nothing fails.
    const bool asked =
        std::any_of(found.attempts.begin(), found.attempts.end(),
                    [](const auto& attempt) { return attempt.step == agent::Step::kDevices; });
    return agent::any_failed(found) ? 1 : asked ? 0 : kExitCouldNotLook;
  }
  for (const auto& attempt : found.attempts) {
    if (attempt.outcome != agent::Outcome::kDone)
      std::cerr << agent::describe(attempt) << ": " << to_string(attempt.outcome) << ", "
                << attempt.why << "\n";
  }
  return agent::any_failed(found) ? 1 : 0;
}

int run(const Options& options) {
  // First, because a driver may hang in the next step.
  const bool recorded = snapshot(options);
  const int code = try_devices(options);
  if (options.exit_zero) return 0;
  return recorded ? code : kExitCouldNotLook;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Registers memory of this machine and of its idle GPUs with every RDMA device, undoes it, "
      "and "
      "prints a report as JSON. Exit 0: nothing failed, 1: something failed or hung, 2: nothing "
      "could be tried",
      "paceline-probe");
  app.add_option("--output", options.output, "write the report to this file instead");
  app.add_flag("--pod-verdict", options.pod_verdict,
               "print one line of JSON instead: whether GPUDirect RDMA works in this pod, and what "
               "is in the way");
  app.add_option("--pci-config", options.pci_config,
                 "also record PCI configuration space in this folder, as root with CAP_SYS_ADMIN: "
                 "paceline-agent and paceline doctor read it without privilege");
  app.add_option(
      "--keep", options.keep,
      "private folder on this machine for the proof cache: a proof about a GPU holds until "
      "the machine boots or changes, also while the GPU is busy and not tried");
  app.add_option("--sys", options.here.sys, "where the node's /sys is mounted")
      ->capture_default_str();
  app.add_flag("--exit-zero", options.exit_zero,
               "always exit with 0: the report holds the result, and a failing init container "
               "would keep the agent from starting");
  app.add_flag("--even-busy", options.here.even_busy, "use busy GPUs too");
  app.add_option("--silence-seconds", options.silence, "how long one step may take")
      ->check(CLI::Range(1, 300))
      ->capture_default_str();
  app.add_option("--verbs", options.here.verbs, "the RDMA library")->capture_default_str();
  app.add_option("--cuda", options.here.cuda, "NVIDIA's CUDA driver library")
      ->capture_default_str();
  app.add_option("--nvml", options.here.nvml, "NVIDIA's management library")->capture_default_str();
  app.add_option("--nccl", options.here.nccl, "NCCL's library")->capture_default_str();
  app.add_flag("--child", options.is_child)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitCouldNotLook;
  }
  return options.is_child ? run_here(options) : run(options);
}
