// SPDX-License-Identifier: Apache-2.0
// paceline-launcher: first process of every training container. Wiring only.
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <expected>
#include <iostream>
#include <string>
#include <vector>

#include "common/contract/env.hpp"
#include "common/contract/labels.hpp"
#include "launcher/ending.hpp"
#include "launcher/exec/mpi_agent.hpp"
#include "launcher/install.hpp"
#include "launcher/launcher.hpp"
#include "launcher/summary/ask.hpp"
#include "launcher/trace/command.hpp"

extern char** environ;

namespace {

constexpr int kExitUsage = 2;
constexpr std::string_view kUsage =
    "usage: paceline-launcher run -- COMMAND [ARGUMENT…]   start the ranks of this replica (told "
    "by PACELINE_*)\n"
    "       paceline-launcher mpi-agent HOST COMMAND…      what mpirun calls in place of ssh\n"
    "       paceline-launcher install DIR                  copy launcher and runtime to DIR\n"
    "       paceline-launcher hold                         do nothing until asked to stop\n"
    "       paceline-launcher summary                      print what the launcher of this "
    "container "
    "knows\n"
    "       paceline-launcher trace [--steps N] [--records] [--timeout SECONDS]\n"
    "                                                      what `paceline trace` calls\n"
    "       paceline-launcher version\n";

paceline::frameworks::Environment own_environment() {
  paceline::frameworks::Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals != nullptr)
      environment.emplace(std::string(*entry, static_cast<std::size_t>(equals - *entry)),
                          equals + 1);
  }
  return environment;
}

int run(const std::vector<std::string>& command) {
  paceline::launcher::Log log;
  auto environment = own_environment();
  const auto refuse = [&](const paceline::Error& error) {
    const auto file = environment.find(std::string(paceline::env::kTerminationLog.name));
    return paceline::launcher::refuse(file == environment.end() ? "" : file->second, error.message,
                                      log);
  };
  auto complete = paceline::launcher::with_settings(environment);
  if (!complete) return refuse(complete.error());
  environment = *std::move(complete);
  const auto config = paceline::launcher::read_config(environment);
  if (!config) return refuse(config.error());
  const paceline::SystemClock clock;
  return paceline::launcher::Launcher(*config, std::move(environment), command, clock, log).run();
}

int print_summary() {
  auto environment = paceline::launcher::with_settings(own_environment());
  auto config = environment ? paceline::launcher::read_config(*environment)
                            : std::unexpected(environment.error());
  auto text = config ? paceline::summary::ask_launcher(config->http, config->token)
                     : std::unexpected(config.error());
  if (!text) {
    std::cerr << "[paceline] " << text.error().message << '\n';
    return 1;
  }
  std::cout << *text;
  return std::cout.flush() ? 0 : 1;
}

/// Holds a node's room for a gang that waits. Process 1 is not ended by a signal that it does not
/// ask for.
int hold() {
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigaddset(&stops, SIGINT);
  sigprocmask(SIG_BLOCK, &stops, nullptr);
  int signal = 0;
  return sigwait(&stops, &signal);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  // Without a command this replica only holds ranks that an mpirun elsewhere starts.
  if (arguments.size() >= 2 && arguments[0] == "run" && arguments[1] == "--")
    return run({arguments.begin() + 2, arguments.end()});
  if (arguments.size() >= 2 && arguments[0] == "mpi-agent" && arguments[1] != "--help")
    return paceline::exec::run_agent({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && arguments[0] == "trace" && arguments.back() != "--help") {
    return paceline::traces::trace_command({arguments.begin() + 1, arguments.end()},
                                           paceline::launcher::with_settings(own_environment()));
  }
  // The user more likely asks for help than for a directory of this name.
  if (arguments.size() == 2 && arguments[0] == "install" && !arguments[1].starts_with('-')) {
    if (auto installed = paceline::launcher::install(paceline::launcher::own_tree(), arguments[1]);
        !installed) {
      std::cerr << "[paceline] " << installed.error().message << '\n';
      return 1;
    }
    return 0;
  }
  if (arguments.size() == 1 && arguments[0] == "hold") return hold();
  if (arguments.size() == 1 && arguments[0] == "summary") return print_summary();
  if (arguments.size() == 1 && (arguments[0] == "version" || arguments[0] == "--version")) {
    std::cout << PACELINE_VERSION << '\n';
    return 0;
  }
  // With more arguments the question is for another program. A container with `run` and no `--`
  // must not count as succeeded.
  if (!arguments.empty() && arguments.size() <= 2 &&
      (arguments.back() == "--help" || arguments.back() == "-h")) {
    std::cout << kUsage;
    return 0;
  }
  std::cerr << kUsage;
  return kExitUsage;
}
