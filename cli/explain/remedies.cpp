// SPDX-License-Identifier: Apache-2.0
#include "cli/explain/remedies.hpp"

#include <algorithm>
#include <functional>

namespace paceline::cli {
namespace {

constexpr double kWorthAWord = 0.05;

const std::vector<Remedy>& remedies() {
  static const std::vector<Remedy> kAll{
      {"data",
       PACELINE_PHASE_DATA_WAIT,
       "Waiting for batches limits it",
       "Steps need not wait for batches: more workers of the loader, or less work per sample.",
       {"loader", "loaderWorkers"}},
      {"communication",
       PACELINE_PHASE_COMM_EXPOSED,
       "Waiting for gradients limits it",
       "Gradients can be summed sooner: larger batches, fewer bytes, or a quicker network.",
       {"communication", "compression"}},
      {"checkpoint",
       PACELINE_PHASE_CHECKPOINT,
       "Saving checkpoints limits it",
       "Checkpoints can be saved less often, or with async_save.",
       {}},
      {"host",
       PACELINE_PHASE_OTHER,
       "Work between steps limits it",
       "Work between steps can go: logging, metrics and Python code there.",
       {}},
      {"compute",
       std::nullopt,
       "Computing limits it",
       "Computing itself can get quicker: fused optimizers and operators, a compiled model, lower "
       "precision.",
       {"optimizer", "compile", "operators", "precision", "cudaGraph"}},
  };
  return kAll;
}

/// The features that work on it and are off, as a sentence; "" if there are none.
std::string off(const Remedy& remedy, const JobFacts& facts) {
  std::string names;
  for (const auto& [name, value] : facts.settings) {
    if (value == "Disabled" && std::ranges::find(remedy.features, name) != remedy.features.end())
      names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "" : " Off in this job, and made for it: " + names + ".";
}

bool found_already(const Remedy& remedy, const JobFacts& facts) {
  return facts.bottleneck == remedy.bottleneck &&
         std::ranges::any_of(facts.findings, [](const Finding& finding) {
           return finding.kind == "bottleneck" && !finding.advice.empty();
         });
}

}  // namespace

const Remedy* remedy_of(std::string_view bottleneck) {
  const auto found = std::ranges::find(remedies(), bottleneck, &Remedy::bottleneck);
  return found == remedies().end() ? nullptr : &*found;
}

std::vector<Help> helps(const JobFacts& facts) {
  std::vector<Help> all;
  // Host times of a GPU say nothing of what a step would gain.
  if (facts.bottleneck.empty()) return all;
  for (const Remedy& remedy : remedies()) {
    if (!remedy.phase || found_already(remedy, facts)) continue;
    const double share = facts.shares[*remedy.phase];
    if (share < kWorthAWord || share >= 1) continue;
    all.push_back({std::string(remedy.advice) + off(remedy, facts), share / (1 - share)});
  }
  std::ranges::stable_sort(all, std::greater<>(), &Help::bound);
  if (const Remedy* remedy = remedy_of(facts.bottleneck); remedy != nullptr && !remedy->phase)
    all.insert(all.begin(), Help{std::string(remedy->advice) + off(*remedy, facts), std::nullopt});
  return all;
}

}  // namespace paceline::cli
