// SPDX-License-Identifier: Apache-2.0
#include "cli/job_arguments.hpp"

#include <cstdint>

namespace paceline::cli {
namespace {

/// The options that choose a namespace of a cluster. Returns --namespace.
template <typename Command>
CLI::Option* add_cluster(CLI::App& command, Command& options) {
  command.add_option("--kubeconfig", options.kubeconfig,
                     "how to reach the cluster; default: $KUBECONFIG");
  return command.add_option("-n,--namespace", options.ns,
                            "namespace of the job; default: that of the kubeconfig's context");
}

template <typename Command>
void add_target(CLI::App& command, Command& options) {
  command
      .add_option("JOB", options.look.target,
                  "job/NAME in the cluster, run/NAME of `paceline run`, or a .json of `paceline "
                  "report`")
      ->required();
  add_cluster(command, options.look);
}

}  // namespace

CLI::App* add_top(CLI::App& app, TopOptions& options) {
  CLI::App* top = app.add_subcommand("top", "Show all jobs live, and where their steps go");
  CLI::Option* ns = add_cluster(*top, options);
  top->add_flag("-A,--all-namespaces", options.all_namespaces, "jobs of all namespaces")
      ->excludes(ns);
  top->add_flag("--local", options.local, "the runs of `paceline run` on this machine");
  top->add_flag("--once", options.once, "one list, also on a terminal");
  top->add_option("-o,--output", options.output, "json: everything that is known, once")
      ->check(CLI::IsMember({"json"}));
  return top;
}

CLI::App* add_explain(CLI::App& app, ExplainOptions& options) {
  CLI::App* explain = app.add_subcommand(
      "explain", "Say what a job does, what limits it, what acts, and what else would help");
  add_target(*explain, options);
  explain->add_option("-o,--output", options.output, "json: the sentences and what they tell of")
      ->check(CLI::IsMember({"json"}));
  return explain;
}

CLI::App* add_report(CLI::App& app, ReportOptions& options) {
  CLI::App* report = app.add_subcommand("report", "Write a page about a job, to send to somebody");
  add_target(*report, options);
  report->add_option("-o,--output", options.output, "a page (.html) or a document (.json)")
      ->required();
  return report;
}

CLI::App* add_trace(CLI::App& app, TraceOptions& options) {
  CLI::App* trace = app.add_subcommand(
      "trace", "Record some steps of all ranks of a running job into one file for Perfetto");
  trace->footer(
      "paceline trace job/NAME --steps 5 -o trace.json.gz\npaceline trace --local [NAME]");
  trace->add_option("job", options.job, "job/NAME; with --local the name of a run");
  CLI::Option* local =
      trace->add_flag("--local", options.local, "a `paceline run` of this machine");
  trace
      ->add_option("-n,--namespace", options.name_space,
                   "namespace of the job; default: that of the kubeconfig's context")
      ->excludes(local);
  trace
      ->add_option("--kubeconfig", options.kubeconfig,
                   "how to reach the cluster; default: $KUBECONFIG")
      ->excludes(local);
  trace->add_option("-o,--output", options.output, "the file; compressed if its name ends in .gz")
      ->capture_default_str();
  constexpr std::uint64_t kMostSteps = 1000;
  trace->add_option("--steps", options.steps, "how many steps")
      ->check(CLI::Range(std::uint64_t{1}, kMostSteps))
      ->capture_default_str();
  trace->add_flag("--records", options.records,
                  "the last steps that all ranks remember, without PyTorch's profiler");
  constexpr std::uint64_t kLongest = 2400;
  trace
      ->add_option("--timeout", options.timeout,
                   "seconds to wait for the ranks; default: three times what the steps should "
                   "take, at least 60")
      ->check(CLI::Range(std::uint64_t{1}, kLongest));
  return trace;
}

}  // namespace paceline::cli
