// SPDX-License-Identifier: Apache-2.0
#include "launcher/diagnosis/hang.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "launcher/diagnosis/collectives.hpp"

namespace paceline::diagnosis {
namespace {

// The publishing thread of a rank writes a heartbeat about once a second.
constexpr double kSilent = 4;  // seconds
constexpr std::size_t kMostNamed = 4;

bool waits_by_phase(const RankAt& rank) {
  return rank.live && (rank.live->phase == PACELINE_PHASE_COMM_EXPOSED ||
                       rank.live->phase == PACELINE_PHASE_PIPELINE_BUBBLE);
}

bool waits_on_host(const RankAt& rank) {
  return waits_by_phase(rank) || (rank.stack && !rank.stack->collective.empty());
}

bool waits(const RankAt& rank) { return waits_on_host(rank) || awaited(rank) != 0; }

bool is_silent(const RankAt& rank) { return rank.live && rank.live->silent > kSilent; }

/// Between two steps, where an export, an upload or an evaluation of the program's own sets no
/// mark.
bool is_between(const RankAt& rank) {
  return rank.live && (rank.live->phase == PACELINE_PHASE_OTHER ||
                       rank.live->phase == PACELINE_PHASE_UNATTRIBUTED);
}

bool is_long(const RankAt& rank) {
  return rank.live && (rank.live->phase == PACELINE_PHASE_EVALUATION ||
                       rank.live->phase == PACELINE_PHASE_CHECKPOINT);
}

std::string doing(const RankAt& rank) {
  std::string text;
  if (!rank.live) {
    text = rank.steps > 0 ? "has ended its training" : "has not begun to train";
  } else if (is_silent(rank)) {
    text = "does not run at all (stopped, or stuck in the kernel)";
  } else {
    text = "is in " + std::string(telemetry::phase_name(rank.live->phase)) + " for " +
           shown_seconds(rank.live->seconds);
  }
  if (rank.stack && !rank.stack->collective.empty()) text += ", in " + rank.stack->collective;
  if (rank.stack && !rank.stack->where.empty()) text += ", at " + rank.stack->where;
  if (const auto number = awaited(rank); number != 0)
    text += ", its GPU in " + shown_collective(number, rank);
  return text;
}

std::string has_not_called(const RankAt& rank) {
  return doing(rank) + ", and has not called " + shown_collective(rank.live->collective + 1, rank);
}

using Shown = std::string (*)(const RankAt&);

std::string named(const std::vector<const RankAt*>& ranks, Shown shown = doing) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < kMostNamed; ++i)
    text += (text.empty() ? "" : "; ") + shown_rank(ranks[i]->rank, ranks[i]->node) + " " +
            shown(*ranks[i]);
  if (ranks.size() > kMostNamed)
    text += "; and " + std::to_string(ranks.size() - kMostNamed) + " more";
  return text;
}

std::string count_for(std::size_t waiting, std::string_view whom) {
  return (waiting == 1 ? "1 rank waits for " : std::to_string(waiting) + " ranks wait for ") +
         std::string(whom);
}

std::string count_for(std::size_t waiting, std::size_t culprits, WaitsFor waits_for) {
  if (waits_for == WaitsFor::kServers) return count_for(waiting, "the servers");
  return count_for(waiting, culprits == 1 ? "it" : "them");
}

Finding hang(const std::vector<const RankAt*>& culprits, std::string text, std::string advice) {
  Finding finding{.kind = Kind::kHang};
  if (!culprits.empty()) {
    finding.rank = culprits.front()->rank;
    finding.node = culprits.front()->node;
  }
  finding.text = std::move(text);
  finding.advice = std::move(advice);
  return finding;
}

std::string no_step(const Quiet& quiet) {
  return "No rank has got on for " + shown_seconds(quiet.seconds) + ": ";
}

Finding late(const Late& late, const Quiet& quiet) {
  return hang(late.ranks,
              no_step(quiet) + named(late.ranks, has_not_called) + "; " +
                  count_for(late.waiting, late.ranks.size(), WaitsFor::kRanks) + ".",
              "Look at the stack of that rank, and at what it does differently from the others.");
}

Finding unfinished(const Late& late, const Quiet& quiet) {
  return hang(late.ranks,
              no_step(quiet) + named(late.ranks) + ", which has ended on other ranks; " +
                  count_for(late.waiting, late.ranks.size(), WaitsFor::kRanks) + ".",
              "All ranks have called it, so look at the GPU of that rank and at its links: dmesg "
              "on its node, and paceline doctor.");
}

/// A rank that waits for others on its host is not the one that holds them up, if there is another:
/// NCCL counts no sends and receives, and not all broadcasts.
Late culprits_by_number(const std::vector<RankAt>& ranks) {
  Late behind = not_called(ranks);
  const auto waits_too = [](const RankAt* rank) { return waits_on_host(*rank); };
  if (!std::ranges::all_of(behind.ranks, waits_too))
    behind.waiting += std::erase_if(behind.ranks, waits_too);
  return behind;
}

/// The waiting ranks by the call that they are in, the rarest call first.
std::vector<std::vector<const RankAt*>> by_call(const std::vector<const RankAt*>& ranks) {
  std::map<std::string, std::vector<const RankAt*>> calls;
  for (const RankAt* rank : ranks) {
    if (!rank->stack) continue;
    const StackFacts& stack = *rank->stack;
    calls[stack.collective.empty() ? "" : stack.collective + " " + stack.where].push_back(rank);
  }
  std::vector<std::vector<const RankAt*>> groups;
  for (auto& [call, members] : calls) groups.push_back(std::move(members));
  std::ranges::sort(groups, {}, [](const std::vector<const RankAt*>& group) {
    return std::pair(group.size(), group.front()->rank);
  });
  return groups;
}

Finding mismatch(const std::vector<std::vector<const RankAt*>>& groups, const Quiet& quiet) {
  std::string text;
  for (std::size_t i = 0; i < groups.size() && i < kMostNamed; ++i) {
    text += (text.empty() ? "" : "; ") + named({groups[i].front()});
    if (groups[i].size() > 1) text += " (as " + std::to_string(groups[i].size() - 1) + " more)";
  }
  Finding finding = hang(
      groups.front(), no_step(quiet) + "the ranks are in different collectives: " + text + ".",
      "All ranks must call the same collectives in the same order: look for a branch that only "
      "some ranks take.");
  finding.kind = Kind::kMismatch;
  return finding;
}

Finding all_wait(const std::vector<const RankAt*>& ranks, const Quiet& quiet, WaitsFor waits_for) {
  if (waits_for == WaitsFor::kServers)
    return hang({}, no_step(quiet) + "all ranks wait for the servers: " + named(ranks) + ".",
                "Look at the logs of the servers, and at the links to their nodes.");
  if (const auto groups = by_call(ranks); groups.size() > 1) return mismatch(groups, quiet);
  return hang({},
              no_step(quiet) + "all " + std::to_string(ranks.size()) +
                  " ranks wait for each other: " + named(ranks) + ".",
              "A message was lost, or ranks wait in different calls: look at the links between the "
              "nodes and compare the ranks' stacks.");
}

}  // namespace

std::optional<Quiet> quiet_of(const std::vector<RankAt>& ranks, double floor) {
  Quiet quiet;
  double p95 = 0;
  bool any = false;
  bool stepping = false;
  bool stepped = false;
  bool long_one = false;
  for (const RankAt& rank : ranks) {
    p95 = std::max(p95, rank.p95);
    stepped = stepped || rank.p95 > 0;
    if (!rank.live) continue;
    quiet.seconds = any ? std::min(quiet.seconds, rank.live->seconds) : rank.live->seconds;
    any = true;
    long_one = long_one || is_long(rank);
    stepping = stepping || !is_between(rank);
  }
  if (!any) return std::nullopt;
  quiet.patience = std::max(floor, kPatienceSteps * p95);
  quiet.doing = long_one || !stepped ? Quiet::Doing::kLong
                : stepping           ? Quiet::Doing::kStepping
                                     : Quiet::Doing::kBetween;
  return quiet;
}

std::optional<Finding> hang_of(const std::vector<RankAt>& ranks, const Quiet& quiet,
                               WaitsFor waits_for) {
  std::vector<const RankAt*> waiting;
  std::vector<const RankAt*> absent;
  std::vector<const RankAt*> silent;
  for (const RankAt& rank : ranks) {
    if (is_silent(rank)) silent.push_back(&rank);
    (waits(rank) && !is_silent(rank) ? waiting : absent).push_back(&rank);
  }
  if (!silent.empty()) {
    return hang(silent,
                no_step(quiet) + named(silent) + "; " +
                    count_for(waiting.size(), silent.size(), waits_for) + ".",
                "Look at that process on its node: a stopped process, a disk or a driver that does "
                "not answer (dmesg).");
  }
  const auto at_work = [&quiet](const std::vector<const RankAt*>& late) {
    return quiet.seconds < kLongPatience * quiet.patience &&
           std::ranges::any_of(late, [](const RankAt* rank) { return is_between(*rank); });
  };
  if (const Late behind = culprits_by_number(ranks); !behind.ranks.empty()) {
    if (at_work(behind.ranks)) return std::nullopt;
    return late(behind, quiet);
  }
  if (absent.empty()) {
    if (const Late slow = not_finished(ranks); !slow.ranks.empty()) return unfinished(slow, quiet);
    return all_wait(waiting, quiet, waits_for);
  }
  if (!waiting.empty()) {
    if (at_work(absent)) return std::nullopt;
    return hang(absent,
                no_step(quiet) + named(absent) + ", and " +
                    count_for(waiting.size(), absent.size(), waits_for) + ".",
                "Look at the stack of that rank: the line that it has come to does not return.");
  }
  // Nobody waits for another rank: the program may only take its time.
  const bool patient = quiet.doing == Quiet::Doing::kStepping;
  if (!patient && quiet.seconds < kLongPatience * quiet.patience) return std::nullopt;
  std::erase_if(absent, [](const RankAt* rank) { return !rank->live; });
  Finding finding =
      hang(absent, no_step(quiet) + named(absent) + ".",
           patient ? "Look at the stacks: the line that a rank has come to does not return."
                   : "If the program is at work there, raise PACELINE_HANG_AFTER; else look at the "
                     "stacks.");
  finding.certain = patient;
  return finding;
}

}  // namespace paceline::diagnosis
