// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/advice.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>

namespace paceline::diagnosis {
namespace {

using telemetry::PhaseSeconds;

struct ClassAdvice {
  std::string_view name;
  std::string_view what;
  std::string_view advice;
};
constexpr std::array kClasses{
    ClassAdvice{
        "data", "waiting for batches",
        "Give the loader more workers, or turn on acceleration.loaderWorkers; make decoding "
        "and storage faster."},
    ClassAdvice{"communication", "waiting for the gradients of other ranks",
                "Turn on acceleration.communication, compress gradients, accumulate over more "
                "batches, or use faster links; paceline measure shows what the links give."},
    ClassAdvice{"checkpoint", "saving checkpoints",
                "Save less often, save with torch.distributed.checkpoint.async_save, or use faster "
                "storage."},
    ClassAdvice{"host", "work between the steps",
                "Look at logging, metrics and other Python code between optimizer step and next "
                "batch; a .item() waits for the device."},
};

constexpr ClassAdvice kServers{
    "communication", "waiting for the parameter servers",
    "Add servers or give them more processors, send updates less often, or use faster links; "
    "paceline measure shows what the links give."};

double share_of(std::string_view name, const PhaseSeconds& shares) {
  if (name == "data") return shares[PACELINE_PHASE_DATA_WAIT] + shares[PACELINE_PHASE_H2D];
  if (name == "communication")
    return shares[PACELINE_PHASE_COMM_EXPOSED] + shares[PACELINE_PHASE_PIPELINE_BUBBLE];
  if (name == "checkpoint") return shares[PACELINE_PHASE_CHECKPOINT];
  return shares[PACELINE_PHASE_OTHER] + shares[PACELINE_PHASE_IDLE_HOST] +
         shares[PACELINE_PHASE_IDLE_GAP];
}

/// What the rank that waits least spends on it: it waits for no other rank, only for the links.
double least_communication(const telemetry::JobSummary& job) {
  double least = 1;
  for (const telemetry::RankSummary& rank : job.ranks) {
    const PhaseSeconds& seconds = job.device ? rank.device_window : rank.window;
    if (telemetry::sum(seconds) > 0)
      least = std::min(least, share_of("communication", telemetry::shares(seconds)));
  }
  return least;
}

Finding imbalance(double share) {
  Finding finding{.kind = Kind::kBottleneck, .subject = "imbalance"};
  finding.text = "Ranks spend " + shown_share(share) +
                 " of their time on waiting for each other, while the gradients themselves take "
                 "less than half of that.";
  finding.advice =
      "The ranks' batches take different times: bring samples of one length together, or give "
      "each rank as much work.";
  finding.gain = at_most(share);
  return finding;
}

// Below both, what a framework spends on each call is longer than what the call computes.
constexpr double kTinyStep = 3e-3;  // seconds
constexpr double kTinyBatch = 16;   // samples of one rank

std::optional<Finding> tiny_batches(const telemetry::JobSummary& job) {
  if (job.ranks.empty() || job.p50 <= 0 || job.p50 >= kTinyStep) return std::nullopt;
  const double samples = job.samples_per_second * job.p50 / static_cast<double>(job.ranks.size());
  if (samples < 0.5 || samples > kTinyBatch) return std::nullopt;
  Finding finding{.kind = Kind::kBottleneck, .subject = "tiny_batches"};
  finding.text = "A step takes " + shown_seconds(job.p50) + " for " +
                 std::to_string(std::lround(samples)) +
                 " samples of a rank: most of it is the fixed cost of the framework's calls.";
  finding.advice = "Use larger batches; several samples cost about as much as one.";
  return finding;
}

/// The device's own message, or the system's, in the last lines of the rank that failed.
struct Known {
  std::string_view words;
  std::string_view advice;
};
constexpr std::string_view kCheckpoint =
    "A checkpoint could not be written: look for a full disk or quota.";
constexpr std::array kKnown{
    Known{"No space left on device",
          "The disk is full: free some room, keep fewer checkpoints, or give the volume more."},
    Known{"PytorchStreamWriter failed writing", kCheckpoint},
    Known{"PyTorchStreamWriter::", kCheckpoint},
    Known{"unexpected pos", kCheckpoint},
    Known{"Disk quota exceeded", "The quota of the file system is spent: free some room."},
    Known{"CUDA out of memory",
          "The GPU's memory is full: use smaller batches, gradient checkpointing or sharding."},
    Known{"DefaultCPUAllocator",
          "The container's memory is full: use smaller batches or fewer loader workers, or raise "
          "the memory limit."},
    Known{"bus error",
          "Shared memory is full: mount a larger /dev/shm, or use fewer loader workers."},
    Known{"Address already in use", "Another program uses the port: end it, or set another port."},
};

}  // namespace

std::optional<Finding> bottleneck_of(const telemetry::JobSummary& job, WaitsFor waits_for) {
  if (auto tiny = tiny_batches(job)) return tiny;
  const auto* found = std::ranges::find(kClasses, job.bottleneck, &ClassAdvice::name);
  if (found == kClasses.end()) return std::nullopt;
  const bool of_communication = found->name == "communication";
  // The job's bottleneck is of the device's clock, too, where that is known.
  const double share = share_of(found->name, job.device ? job.device->breakdown : job.breakdown);
  if (of_communication && waits_for == WaitsFor::kServers) {
    found = &kServers;
  } else if (of_communication && least_communication(job) < share / 2) {
    return imbalance(share);
  }
  Finding finding{.kind = Kind::kBottleneck, .subject = std::string(found->name)};
  finding.text =
      "Steps spend " + shown_share(share) + " of their time on " + std::string(found->what) + ".";
  finding.advice = found->advice;
  finding.gain = at_most(share);
  return finding;
}

std::string advice_for_phase(std::size_t phase, const std::string& node) {
  const std::string there = node.empty() ? "its node" : "node " + node;
  switch (phase) {
    case PACELINE_PHASE_DATA_WAIT:
    case PACELINE_PHASE_H2D:
      return "Look at the storage and the loader's workers on " + there + ".";
    case PACELINE_PHASE_COMM_EXPOSED:
    case PACELINE_PHASE_PIPELINE_BUBBLE:
      return "Look at the links between the nodes: paceline measure shows what they give.";
    case PACELINE_PHASE_OTHER:
    case PACELINE_PHASE_UNATTRIBUTED:
      return "Look at the program's own code between the steps: logging, metrics, growing lists.";
    default:
      return "Look for other programs, heat and clock limits on " + there +
             ", and for uneven batches: paceline doctor" + (node.empty() ? "" : " --node " + node) +
             " checks it.";
  }
}

Finding failure_of(const rendezvous::Culprit& culprit, std::string node, std::string text) {
  const rendezvous::Failure& failure = culprit.failure;
  Finding finding{.kind = Kind::kFailure, .rank = culprit.rank, .node = std::move(node)};
  if (!text.empty())
    text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  finding.text = std::move(text) + ".";
  if (failure.oom) {
    finding.advice =
        "Raise the container's memory limit, or use smaller batches or fewer loader workers.";
    return finding;
  }
  for (auto line = failure.last_lines.rbegin(); line != failure.last_lines.rend(); ++line) {
    for (const Known& known : kKnown) {
      if (line->find(known.words) == std::string::npos) continue;
      finding.advice = known.advice;
      return finding;
    }
  }
  finding.advice = "The last lines of its log name the cause: see status.culprit.";
  return finding;
}

}  // namespace paceline::diagnosis
