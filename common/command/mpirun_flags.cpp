// SPDX-License-Identifier: Apache-2.0
#include "common/command/mpirun_flags.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>

#include "common/command/words.hpp"

namespace paceline::frameworks {
namespace {

// Names without dashes: Open MPI takes one or two before each.
constexpr std::array<std::string_view, 9> kPrograms{
    "mpirun",         "mpiexec",      "orterun",         "prterun",      "mpiexec.hydra",
    "mpirun.openmpi", "mpirun.mpich", "mpiexec.openmpi", "mpiexec.mpich"};
constexpr std::array<std::string_view, 4> kRanks{"np", "n", "c", "nprocs"};
constexpr std::array<std::string_view, 8> kHostFlags{
    "H", "host", "hosts", "hostfile", "machinefile", "f", "default-hostfile", "hostlist"};
constexpr std::array<std::string_view, 4> kReach{"launcher", "launcher-exec", "bootstrap",
                                                 "bootstrap-exec"};
constexpr std::array<std::string_view, 40> kOneValue{"N",
                                                     "npernode",
                                                     "npersocket",
                                                     "x",
                                                     "map-by",
                                                     "bind-to",
                                                     "rank-by",
                                                     "wdir",
                                                     "wd",
                                                     "path",
                                                     "prefix",
                                                     "rf",
                                                     "rankfile",
                                                     "ppr",
                                                     "ppn",
                                                     "perhost",
                                                     "output-filename",
                                                     "output",
                                                     "timeout",
                                                     "report-uri",
                                                     "iface",
                                                     "genvlist",
                                                     "envlist",
                                                     "rmk",
                                                     "topolib",
                                                     "usize",
                                                     "outfile-pattern",
                                                     "errfile-pattern",
                                                     "prepend-pattern",
                                                     "cpu-set",
                                                     "cpu-list",
                                                     "am",
                                                     "tune",
                                                     "personality",
                                                     "cpus-per-proc",
                                                     "cpus-per-rank",
                                                     "stdin",
                                                     "runtime-options",
                                                     "preload-files",
                                                     "grr"};
constexpr std::array<std::string_view, 8> kTwoValues{"mca",     "gmca",    "omca", "gomca",
                                                     "pmixmca", "prtemca", "genv", "env"};

bool is_in(std::string_view name, const auto& names) {
  return std::ranges::find(names, name) != names.end();
}

std::string_view name_of(std::string_view word) {
  const std::size_t dashes = word.starts_with("--") ? 2 : 1;
  return word.substr(dashes);
}

/// Calls `visit` with each option of mpirun and its values, up to the program, in each part of a
/// command with several programs (`mpirun -n 1 a : -n 3 b`). An option that is not known here
/// counts as one without a value: the rest of its part is then not seen.
void visit_options(const std::vector<std::string>& argv,
                   const std::function<void(std::string_view name, const std::string& value,
                                            const std::string& second)>& visit,
                   const std::function<void()>& part_ends) {
  const auto word = [&](std::size_t at) { return at < argv.size() ? argv[at] : std::string(); };
  std::size_t at = 1;
  while (at < argv.size()) {
    while (at < argv.size() && argv[at].starts_with('-') && argv[at] != "-") {
      const std::string_view name = name_of(argv[at]);
      // MPICH takes `-genv NAME VALUE` as well as `-genv NAME=VALUE`.
      const bool joined = name.ends_with("env") && word(at + 1).find('=') != std::string::npos;
      const bool two = is_in(name, kTwoValues) && !joined;
      const bool one = is_in(name, kRanks) || is_in(name, kHostFlags) || is_in(name, kReach) ||
                       is_in(name, kOneValue) || joined;
      visit(name, two || one ? word(at + 1) : "", two ? word(at + 2) : "");
      at += two ? 3 : one ? 2 : 1;
    }
    while (at < argv.size() && argv[at] != ":") ++at;
    part_ends();
    ++at;
  }
}

}  // namespace

bool is_mpirun(const std::string& program) { return is_in(base_name(program), kPrograms); }

Status check_mpirun_flags(const std::vector<std::string>& argv) {
  if (argv.empty() || !is_mpirun(argv.front())) return {};
  std::string problem;
  visit_options(
      argv,
      [&](std::string_view name, const std::string& value, const std::string& second) {
        if (!problem.empty()) return;
        const std::string shown = "-" + std::string(name) + " " + value;
        if (is_in(name, kHostFlags)) {
          problem = shown +
                    " names hosts, but the job's replicas are the hosts: remove it; "
                    "spec.roles[].replicas says how many there are";
        } else if (is_in(name, kReach) || value == "plm_rsh_agent" || value == "plm_ssh_agent") {
          problem = shown + (second.empty() ? "" : " " + second) +
                    " says how to reach other hosts, but pods have no sshd and Paceline's "
                    "launchers start the processes: remove it";
        }
      },
      [] {});
  if (!problem.empty()) return contradiction(problem);
  return {};
}

Status check_mpirun_ranks(const std::vector<std::string>& argv, int ranks) {
  if (argv.empty() || argv.front().empty()) {
    return contradiction(
        "the replica that runs mpirun has no command: write command: [mpirun, PROGRAM, …] in the "
        "trainer container of the Launcher role, or of the workers in a job without one");
  }
  if (!is_mpirun(argv.front())) return {};
  int total = 0;
  bool known = true;
  std::string bad;
  std::optional<int> part;
  visit_options(
      argv,
      [&](std::string_view name, const std::string& value, const std::string&) {
        if (!is_in(name, kRanks)) return;
        part = whole_number(value);
        if (!part && bad.empty()) bad = "-" + std::string(name) + " " + value;
      },
      [&] {
        known = known && part.has_value();
        total += part.value_or(0);
        part.reset();
      });
  if (!bad.empty())
    return contradiction(bad + " is no number of ranks: remove it, mpirun then starts the job's " +
                         std::to_string(ranks));
  if (!known || total == ranks) return {};
  return contradiction("-np " + std::to_string(total) + " contradicts the job, which has " +
                       std::to_string(ranks) +
                       " ranks (replicas of the workers, times processes per replica): remove -np, "
                       "or change spec.roles[].replicas or spec.framework.processesPerReplica");
}

}  // namespace paceline::frameworks
