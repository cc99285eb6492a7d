// SPDX-License-Identifier: Apache-2.0
#include "launcher/ending.hpp"

#include <filesystem>
#include <optional>
#include <utility>

#include "common/contract/host_ports.hpp"
#include "common/contract/labels.hpp"
#include "launcher/files.hpp"
#include "launcher/summary/documents.hpp"

namespace paceline::launcher {
namespace {

void write_termination_message(const std::string& file, const summary::Ending& ending,
                               const telemetry::JobSummary& summary, Log& log) {
  if (file.empty()) return;
  const auto text =
      summary::termination_message(ending, summary, contract::kTerminationMessageBytes);
  if (auto written = write_in_place(file, text); !written) log.line(written.error().message);
}

int refuse_as(rendezvous::End end, const std::string& termination_log, const std::string& message,
              Log& log) {
  log.line(message);
  const summary::Ending ending{
      std::string(rendezvous::to_string(end)), 0, 0, message, std::nullopt, ""};
  write_termination_message(termination_log, ending, {}, log);
  return exit_code(end);
}

}  // namespace

int exit_code(rendezvous::End end) {
  switch (end) {
    case rendezvous::End::kSucceeded: return contract::kExitOk;
    case rendezvous::End::kFailed: return contract::kExitJobFailed;
    case rendezvous::End::kTerminated: return contract::kExitTerminated;
    case rendezvous::End::kBadContract:
    case rendezvous::End::kOtherRelease: return contract::kExitBadContract;
    case rendezvous::End::kRendezvousTimeout: return contract::kExitRendezvous;
    case rendezvous::End::kPreflightFailed: return contract::kExitPreflight;
    case rendezvous::End::kReplaceNode: return contract::kExitReplaceNode;
  }
  return contract::kExitJobFailed;
}

void write_ending(const Config& config, const rendezvous::Outcome& outcome,
                  const telemetry::JobSummary& summary,
                  const std::optional<telemetry::Goodput>& goodput, diagnosis::Findings findings,
                  Log& log) {
  const summary::Ending ending{std::string(rendezvous::to_string(outcome.end)),
                               outcome.attempt,
                               outcome.restarts,
                               outcome.message,
                               outcome.culprit,
                               (std::filesystem::path(config.state_dir) / "report.json").string(),
                               summary::read_effects(config.effects_file()),
                               std::move(findings),
                               summary::read_model_flops(config.effects_file()),
                               goodput,
                               outcome.saved};
  if (auto written = write_atomically(ending.report, summary::report_document(ending, summary));
      !written)
    log.line(written.error().message);
  write_termination_message(config.termination_log, ending, summary, log);
  if (const std::string line = summary::effects_line(ending.effects); !line.empty())
    log.line("acceleration: " + line);
  if (const std::string line = goodput ? summary::goodput_line(*goodput) : ""; !line.empty())
    log.line(line);
  log.line("ends: " + ending.verdict + (ending.message.empty() ? "" : ": " + ending.message));
}

int refuse(const std::string& termination_log, const std::string& message, Log& log) {
  return refuse_as(rendezvous::End::kBadContract, termination_log, message, log);
}

int refuse(const Config& config, const Error& error, Log& log) {
  if (config.port_base == 0 || error.code != Code::kAlreadyExists)
    return refuse(config.termination_log, error.message, log);
  const std::string message =
      error.message + "; on node " + config.node_name + " the ports " +
      std::to_string(config.port_base) + " to " +
      std::to_string(config.port_base + contract::kHostPortsOfPod - 1) +
      " are this pod's: stop the program that listens there, or let it listen on a port outside " +
      std::to_string(contract::kFirstHostPort) + " to " +
      std::to_string(contract::kEndOfHostPorts - 1);
  return refuse_as(rendezvous::End::kPreflightFailed, config.termination_log, message, log);
}

}  // namespace paceline::launcher
