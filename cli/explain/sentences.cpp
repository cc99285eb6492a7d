// SPDX-License-Identifier: Apache-2.0
#include "cli/explain/sentences.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "cli/explain/remedies.hpp"
#include "cli/watch/phases.hpp"
#include "cli/watch/text.hpp"
#include "common/base/duration.hpp"

namespace paceline::cli {
namespace {

constexpr std::size_t kMostListed = 8;

std::string count(std::size_t number, const std::string& one) {
  return std::to_string(number) + " " + one + (number == 1 ? "" : "s");
}

std::string whole_percent(double share) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.*f%%", std::abs(share) < 0.0995 ? 1 : 0,
                share * 100);
  return buffer.data();
}

std::string ago(const std::optional<WallTime>& since, WallTime now) {
  if (!since || *since > now) return "";
  return format_duration(std::chrono::floor<std::chrono::seconds>(now - *since));
}

std::string sentence(std::string text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.pop_back();
  if (!text.empty() && !std::string_view(".!?…").contains(text.back())) text += '.';
  return text;
}

/// The names, and how many more there are.
std::string some(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostListed); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMostListed)
    text += " and " + std::to_string(names.size() - kMostListed) + " more";
  return text;
}

std::string size_of(const JobFacts& facts) {
  std::string text;
  if (facts.ranks > 0) text += " with " + count(static_cast<std::size_t>(facts.ranks), "rank");
  std::vector<std::string> nodes = facts.nodes;
  std::ranges::sort(nodes);
  nodes.erase(std::ranges::unique(nodes).begin(), nodes.end());
  if (!nodes.empty()) text += " on " + count(nodes.size(), "node") + " (" + some(nodes) + ")";
  return text;
}

void speed(const JobFacts& facts, std::vector<std::string>& out) {
  if (facts.step == 0) {
    if (facts.phase == "Running") out.emplace_back("No training step has been seen yet.");
    return;
  }
  std::string text =
      (facts.finished() ? "It ended at step " : "It is at step ") + std::to_string(facts.step);
  if (facts.p50 > 0) text += ", and half of its steps take up to " + seconds_text(facts.p50);
  if (facts.p95 > 0) text += " (95% up to " + seconds_text(facts.p95) + ")";
  out.push_back(text + ".");
  std::string rates;
  if (facts.samples_per_second > 0) rates = rate(facts.samples_per_second) + " samples a second";
  if (facts.tokens_per_second)
    rates += (rates.empty() ? "" : ", ") + rate(*facts.tokens_per_second) + " tokens a second";
  if (!rates.empty()) out.push_back("It trains on " + rates + ".");
  if (facts.mfu)
    out.push_back("It uses " + whole_percent(*facts.mfu) +
                  " of the arithmetic that its accelerators can do (MFU).");
}

void culprit(const JobFacts& facts, std::vector<std::string>& out) {
  if (!facts.culprit) return;
  const CulpritFact& culprit = *facts.culprit;
  std::string text = culprit.rank ? "Rank " + std::to_string(*culprit.rank) : "A pod";
  if (!culprit.pod.empty()) text += " (pod " + culprit.pod + ")";
  text += " failed first";
  if (culprit.kind == "OOMKilled") {
    text += ": it was killed, since it used more memory than its limit";
  } else if (culprit.signal) {
    text += ": signal " + std::to_string(*culprit.signal);
  } else if (culprit.exit_code) {
    text += ": exit code " + std::to_string(*culprit.exit_code);
  }
  out.push_back(text + ".");
  for (const std::string& line : culprit.last_lines) out.push_back("  | " + line);
}

Section doing(const JobFacts& facts, WallTime now) {
  Section section{"What it does", {}};
  auto& out = section.sentences;
  const std::string since = ago(facts.started, now);
  const std::string name = facts.name.empty() ? "The job" : facts.name;
  if (facts.phase == "Running") {
    out.push_back(name + " trains" + size_of(facts) +
                  (since.empty() ? "" : "; it was started " + since + " ago") + ".");
  } else {
    const std::string state = facts.phase == "Succeeded" ? " has succeeded"
                              : facts.phase == "Failed"  ? " has failed"
                              : facts.phase == "Queued"  ? " is queued"
                              : facts.phase.empty()      ? " is of an unknown phase"
                                                         : " is " + facts.phase;
    // What a queued job waits for has a section of its own.
    const bool told = facts.message.empty() || facts.phase == "Queued";
    out.push_back(sentence(name + state + size_of(facts) + (told ? "" : ": " + facts.message)));
  }
  speed(facts, out);
  if (facts.restarts > 0)
    out.push_back("It has been restarted " +
                  count(static_cast<std::size_t>(facts.restarts), "time") + ".");
  if (!facts.missing.empty()) {
    std::vector<std::string> ranks;
    for (const int rank : facts.missing) ranks.push_back(std::to_string(rank));
    out.push_back("Away while the others go on: the pod of node rank " + some(ranks) + ".");
  }
  culprit(facts, out);
  return section;
}

Section waiting(const JobFacts& facts, WallTime now) {
  Section section{"What it waits for", {}};
  if (facts.phase == "Running" || facts.finished()) return section;
  const ConditionFact* placed = facts.condition("Placed");
  const bool queued = facts.phase == "Queued" || facts.phase.empty();
  if (queued && placed != nullptr && !placed->holds) {
    const std::string since = ago(placed->since, now);
    section.sentences.push_back("It waits for its place" + (since.empty() ? "" : ", for " + since) +
                                ".");
    if (!placed->message.empty()) section.sentences.push_back(sentence(placed->message));
  } else if (queued && placed == nullptr) {
    section.sentences.emplace_back(
        "The operator has said nothing of it yet; if that stays so, look whether the operator "
        "runs.");
  }
  for (const ConditionFact& condition : facts.conditions) {
    // A condition that is said already, or that says nothing, is left out.
    if (condition.message.empty() || &condition == placed || condition.message == facts.message)
      continue;
    section.sentences.push_back(condition.type + (condition.holds ? "" : " is not so") + " (" +
                                condition.reason + "): " + sentence(condition.message));
  }
  for (const auto& [node, why] : facts.excluded_nodes)
    section.sentences.push_back("Node " + node + " is left out for a while: " + sentence(why));
  return section;
}

Section limits(const JobFacts& facts) {
  Section section{"What limits it", {}};
  auto& out = section.sentences;
  if (facts.step == 0) return section;
  if (const Remedy* remedy = remedy_of(facts.bottleneck); remedy != nullptr) {
    std::string text(remedy->limits);
    if (remedy->phase) text += ": " + whole_percent(facts.shares[*remedy->phase]) + " of a step";
    out.push_back(text + ".");
  } else if (!facts.bottleneck.empty()) {
    out.push_back("Its bottleneck is " + facts.bottleneck + ".");
  } else {
    out.emplace_back(
        "No bottleneck is named: most of the time has no phase, or the phases are host times of "
        "a job on GPUs.");
  }
  std::vector<std::string> parts;
  for (std::size_t phase = 0; phase < telemetry::kPhases; ++phase) {
    if (facts.shares[phase] >= 0.01)
      parts.push_back(std::string(phase_looks()[phase].name) + " " +
                      whole_percent(facts.shares[phase]));
  }
  if (!parts.empty()) {
    std::string list;
    for (const std::string& part : parts) list += (list.empty() ? "" : ", ") + part;
    out.push_back("A step consists of " + list + ".");
  }
  if (facts.device && facts.device->idle)
    out.push_back("The accelerators are idle for " + whole_percent(*facts.device->idle) +
                  " of a step.");
  if (const auto spread = spread_of(facts)) {
    std::array<char, 32> ratio{};
    std::snprintf(ratio.data(), ratio.size(), "%.2f", spread->ratio);
    out.push_back(spread->ratio > 1.2
                      ? "Rank " + std::to_string(spread->rank) + " works " + ratio.data() +
                            " times as long on a step as the middle rank; the others wait for it."
                      : "The ranks are even: the slowest, rank " + std::to_string(spread->rank) +
                            ", works " + ratio.data() + " times as long as the middle one.");
  } else if (facts.slowest_rank && facts.ranks > 1) {
    out.push_back("The others wait most for rank " + std::to_string(*facts.slowest_rank) + ".");
  }
  return section;
}

Section findings(const JobFacts& facts) {
  Section section{"Findings", {}};
  for (const Finding& finding : facts.findings) {
    std::string where;
    if (finding.rank) where = "rank " + std::to_string(*finding.rank);
    if (!finding.node.empty()) where += (where.empty() ? "node " : ", node ") + finding.node;
    std::string text = finding.kind.empty() ? "" : finding.kind;
    if (!where.empty()) text += (text.empty() ? "" : ", ") + where;
    text += (text.empty() ? "" : ": ") + sentence(finding.text);
    if (!finding.advice.empty()) text += " " + sentence(finding.advice);
    if (finding.gain)
      text += " Expected: " + gain_text(finding.gain->first, finding.gain->second) + ".";
    section.sentences.push_back(std::move(text));
  }
  return section;
}

Section acceleration(const JobFacts& facts) {
  Section section{"Acceleration", {}};
  auto& out = section.sentences;
  for (const EffectFact& effect : facts.effects) {
    std::string text = effect.feature;
    if (effect.kept && effect.gain) {
      text += " acts: " + gain_text(*effect.gain, *effect.gain) + " with it";
    } else if (effect.kept) {
      text += " acts; its gain was not measured";
    } else if (effect.gain) {
      text += " was tried and taken back: " + gain_text(*effect.gain, *effect.gain);
    } else {
      text += " does not act";
    }
    if (!effect.reason.empty())
      text += (effect.kept ? " (" : ": ") + effect.reason + (effect.kept ? ")" : "");
    out.push_back(sentence(text));
  }
  std::vector<std::string> silent;
  for (const auto& [name, value] : facts.settings) {
    const bool said =
        std::ranges::find(facts.effects, name, &EffectFact::feature) != facts.effects.end();
    if (!said && value != "Disabled" && name != "numerics" && name != "profile")
      silent.push_back(name);
  }
  if (!silent.empty())
    out.push_back("On, and rank 0 has not said whether it acts: " + some(silent) + ".");
  if (facts.settings.empty() && facts.effects.empty() && facts.step > 0)
    out.emplace_back(
        "Acceleration is off for this run. `acceleration: {mode: Auto}` in "
        "its spec turns on what is measured to gain.");
  return section;
}

Section help(const JobFacts& facts) {
  Section section{"What else would help", {}};
  for (const Help& help : helps(facts)) {
    std::string text = help.text;
    if (help.bound)
      text += " If it took no time, steps would be " + whole_percent(*help.bound) + " quicker.";
    section.sentences.push_back(std::move(text));
  }
  return section;
}

Section goodput(const JobFacts& facts) {
  Section section{"Goodput", {}};
  if (!facts.goodput) return section;
  const GoodputFact& goodput = *facts.goodput;
  section.sentences.push_back(whole_percent(goodput.ratio) + " of " +
                              seconds_text(std::floor(goodput.seconds)) +
                              " since the first start went into steps that count.");
  for (const auto& [loss, seconds] : goodput.losses)
    section.sentences.push_back(
        "Lost by " + loss_name(loss) + ": " + seconds_text(seconds) +
        (goodput.seconds > 0 ? " (" + whole_percent(seconds / goodput.seconds) + ")." : "."));
  return section;
}

}  // namespace

std::optional<Spread> spread_of(const JobFacts& facts) {
  std::vector<std::pair<double, int>> own;
  for (const RankFact& rank : facts.rank_rows) {
    const double total = telemetry::sum(rank.shares);
    if (total <= 0) continue;
    const double waits =
        rank.shares[PACELINE_PHASE_COMM_EXPOSED] + rank.shares[PACELINE_PHASE_PIPELINE_BUBBLE];
    own.emplace_back((total - waits) / total, rank.rank);
  }
  if (own.size() < 2) return std::nullopt;
  std::ranges::sort(own);
  const double middle = own[own.size() / 2].first;
  if (middle <= 0) return std::nullopt;
  return Spread{own.back().second, own.back().first / middle};
}

std::string loss_name(const std::string& loss) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kNames{
      {{"waiting", "waiting for nodes"},
       {"starting", "starting pods and programs"},
       {"restarting", "restarts"},
       {"lostSteps", "steps that were done again after a restart"},
       {"checkpoint", "checkpoints"},
       {"evaluation", "evaluation"},
       {"dataWait", "waiting for data"},
       {"unexplained", "what nothing explains"}}};
  const auto* const found =
      std::ranges::find(kNames, loss, &std::pair<std::string_view, std::string_view>::first);
  return found == kNames.end() ? loss : std::string(found->second);
}

std::string gain_text(double low, double high) {
  if (high < 0) return "steps are " + whole_percent(-low) + " slower";
  if (whole_percent(low) == whole_percent(high))
    return "steps are " + whole_percent(low) + " quicker";
  return "steps are " + whole_percent(low) + " to " + whole_percent(high) + " quicker";
}

std::vector<Section> explain(const JobFacts& facts, WallTime now) {
  std::vector<Section> sections{doing(facts, now), waiting(facts, now), limits(facts),
                                findings(facts),   acceleration(facts), help(facts),
                                goodput(facts)};
  std::erase_if(sections, [](const Section& section) { return section.sentences.empty(); });
  return sections;
}

std::string sections_text(const std::vector<Section>& sections, std::size_t width) {
  std::string text;
  for (const Section& section : sections) {
    text += (text.empty() ? "" : "\n") + section.title + "\n";
    for (const std::string& sentence : section.sentences) {
      std::istringstream words(sentence);
      std::string line = "  ";
      for (std::string word; words >> word;) {
        const bool fits = columns_of(line) + 1 + columns_of(word) <= width;
        if (!fits && line.find_first_not_of(' ') != std::string::npos) {
          text += line + "\n";
          line = "    ";
        }
        line += (line.find_first_not_of(' ') == std::string::npos ? "" : " ") + word;
      }
      text += line + "\n";
    }
  }
  return text;
}

}  // namespace paceline::cli
