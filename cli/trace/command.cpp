// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/command.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "cli/error_text.hpp"
#include "cli/trace/trace_file.hpp"
#include "cli/watch/local_runs.hpp"

namespace paceline::cli {
namespace {

constexpr int kExitInput = 2;
constexpr std::size_t kMostProblems = 16;  // lines about missing ranks

/// Whom a refused second trace names.
std::string who() {
  const char* user = std::getenv("USER");
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return std::string(user == nullptr ? "somebody" : user) + "@" + host.data();
}

std::vector<std::string> arguments_of(const TraceOptions& options) {
  std::vector<std::string> words{"trace", "--steps", std::to_string(options.steps), "--by", who()};
  if (options.records) words.emplace_back("--records");
  if (options.timeout > 0) {
    words.emplace_back("--timeout");
    words.push_back(std::to_string(options.timeout));
  }
  return words;
}

std::string name_of_job(const std::string& text) {
  constexpr std::string_view kPrefix = "job/";
  return text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text;
}

/// The program to start, with its words.
Result<std::vector<std::string>> program(const TraceOptions& options, kube::Api* api) {
  std::vector<std::string> words = arguments_of(options);
  const std::string job = name_of_job(options.job);
  if (!options.local)
    return exec_in_rank_zero(*api, {options.kubeconfig, options.name_space, job}, words);
  const auto run = find_local_run(state_base(), job);
  if (!run) return std::unexpected(run.error());
  words.insert(words.begin(), run->launcher);
  words.insert(words.end(), {"--run", run->path});
  return words;
}

std::string counted(std::uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

void report(const TraceOptions& options, const TraceSummary& summary, std::ostream& err) {
  err << options.output << ": ";
  if (options.records) {
    err << "the last steps of " << counted(static_cast<std::uint64_t>(summary.with_steps), "rank");
  } else {
    err << "steps " << summary.first_step << " to " << summary.first_step + summary.steps - 1
        << ", " << summary.recorded << " of "
        << counted(static_cast<std::uint64_t>(summary.ranks), "rank") << " recorded";
  }
  err << "; open it in https://ui.perfetto.dev\n";
  if (summary.uncertainty_ms > 0) {
    char text[64];
    std::snprintf(text, sizeof text, "%.3f", summary.uncertainty_ms);
    err << "the clocks of the nodes agree to within " << text << " ms\n";
  }
  for (std::size_t i = 0; i < std::min(kMostProblems, summary.problems.size()); ++i)
    err << "not all: " << summary.problems[i] << "\n";
  if (summary.problems.size() > kMostProblems)
    err << "and " << summary.problems.size() - kMostProblems
        << " more, in the file's \"paceline\"\n";
}

}  // namespace

int trace_command(TraceOptions options,
                  const std::function<Result<ClusterWay>(const TraceOptions&)>& find,
                  std::ostream& err) {
  const auto refuse = [&](const Error& error) {
    err << "paceline trace: " << error_text(error) << "\n";
    const bool input = error.code == Code::kInvalid || error.code == Code::kNotFound;
    return input ? kExitInput : 1;
  };
  if (!options.local && name_of_job(options.job).empty())
    return refuse({Code::kInvalid, Origin::kConfig,
                   "name a job (paceline trace job/NAME), or give --local for a `paceline run`"});
  std::shared_ptr<kube::Api> api;
  if (!options.local) {
    auto way = find(options);
    if (!way) return refuse({Code::kInvalid, Origin::kConfig, way.error().message});
    api = std::move(way->api);
    options.name_space = std::move(way->ns);
  }
  const auto words = program(options, api.get());
  if (!words) return refuse(words.error());
  // Before any rank is disturbed: a target that cannot be written.
  auto file = GzipFile::create(options.output);
  if (!file) return refuse(file.error());
  TraceFile trace(*std::move(file), [&err](const std::string& text) { err << text << std::endl; });
  const auto code =
      read_lines_of(*words, [&trace](std::string_view line) { return trace.take(line); });
  if (!code) return refuse(code.error());
  if (auto finished = trace.finish(); !finished) return refuse(finished.error());
  report(options, trace.summary(), err);
  return options.records || trace.summary().recorded > 0 ? 0 : 1;
}

}  // namespace paceline::cli
