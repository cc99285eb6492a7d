// SPDX-License-Identifier: Apache-2.0
// A gang of two members that tests talk to. Member n has connection n + 1.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/rendezvous/gang.hpp"

namespace paceline::rendezvous {

struct GangTest : ::testing::Test {
  GangTest() : gang(config(2)) {}

  static GangConfig config(int nodes) {
    GangConfig value;
    value.job_uid = "uid";
    value.token = "secret";
    value.node_count = nodes;
    value.max_restarts = 1;
    value.master_port = [](int attempt) { return static_cast<std::uint16_t>(29500 + attempt); };
    return value;
  }

  static Hello hello(int node_rank, int incarnation = 0, int attempt = 0, int restarts = 0) {
    Hello value;
    value.token = "secret";
    value.job_uid = "uid";
    value.node = {node_rank,
                  "worker",
                  node_rank,
                  incarnation,
                  "pod-" + std::to_string(node_rank),
                  "10.0.0." + std::to_string(node_rank),
                  "n",
                  2,
                  0};
    value.attempt = attempt;
    value.restarts = restarts;
    return value;
  }

  static Failure killed(int local_rank) {
    return {local_rank, std::nullopt, 9, false, "Signal", {"last words"}};
  }

  static Failure raised(int local_rank, Cause cause, std::chrono::milliseconds ago) {
    return {local_rank, 1, std::nullopt, false, "Exit", {"last words"}, cause, ago};
  }

  /// Both answer Stop, and have no further failures.
  GangActions settle(int attempt) {
    auto actions = say(1, Stopping{attempt});
    const auto more = say(2, Stopping{attempt});
    actions.insert(actions.end(), more.begin(), more.end());
    return actions;
  }

  GangActions say(ConnectionId from, const Message& message) {
    return gang.on_message(from, message, now);
  }

  template <typename T>
  static std::vector<T> sent(const GangActions& actions, ConnectionId to) {
    std::vector<T> found;
    for (const auto& action : actions) {
      const auto* send = std::get_if<SendTo>(&action);
      if (send != nullptr && send->to == to && std::holds_alternative<T>(send->message))
        found.push_back(std::get<T>(send->message));
      const auto* all = std::get_if<SendToAll>(&action);
      if (all != nullptr && std::ranges::count(all->to, to) > 0 &&
          std::holds_alternative<T>(all->message))
        found.push_back(std::get<T>(all->message));
    }
    return found;
  }

  /// The members that are sent the rank table.
  static std::vector<ConnectionId> tables(const GangActions& actions) {
    std::vector<ConnectionId> to;
    for (const auto& action : actions) {
      if (const auto* send = std::get_if<SendTable>(&action))
        to.insert(to.end(), send->to.begin(), send->to.end());
    }
    return to;
  }

  static bool closes(const GangActions& actions, ConnectionId id) {
    for (const auto& action : actions) {
      const auto* close = std::get_if<CloseConnection>(&action);
      if (close != nullptr && close->id == id) return true;
    }
    return false;
  }

  GangActions gather() {
    say(1, hello(0));
    return say(2, hello(1));
  }

  static std::string lines(const GangActions& actions) {
    std::string text;
    for (const auto& action : actions) {
      if (const auto* line = std::get_if<LogLine>(&action)) text += line->text + "\n";
    }
    return text;
  }

  SteadyTime now{std::chrono::hours(1)};
  Gang gang;
};

/// A gang whose members have kinds and stages.
struct RolesTest : GangTest {
  static constexpr auto kServer = contract::RoleKind::kParameterServer;
  static constexpr auto kWorker = contract::RoleKind::kWorker;
  static constexpr auto kEvaluator = contract::RoleKind::kEvaluator;

  /// One replica of each kind, in this order, with two processes each.
  GangActions gather_roles(const std::vector<contract::RoleKind>& roles, bool rank_zero = false,
                           const std::vector<int>& stage_of = {}) {
    kinds = roles;
    stages = stage_of;
    auto settings = config(static_cast<int>(roles.size()));
    settings.rank_zero_decides = rank_zero;
    gang = Gang(settings);
    GangActions last;
    for (int rank = 0; rank < static_cast<int>(roles.size()); ++rank) last = join(rank);
    return last;
  }

  GangActions join(int rank, int incarnation = 0, int attempt = 0) {
    const auto place = static_cast<std::size_t>(rank);
    Hello value = hello(rank, incarnation, attempt);
    value.node.kind = kinds[place];
    value.start_stage = stages.empty() ? 0 : stages[place];
    return say(of(rank, incarnation), value);
  }

  static ConnectionId of(int rank, int incarnation = 0) {
    return static_cast<ConnectionId>(rank + 100 * incarnation) + 1;
  }

  static std::vector<ConnectionId> told(const GangActions& actions) {
    std::vector<ConnectionId> to;
    for (ConnectionId id = 1; id < 300; ++id) {
      if (!sent<StartStage>(actions, id).empty()) to.push_back(id);
    }
    return to;
  }

  std::vector<contract::RoleKind> kinds;
  std::vector<int> stages;
};

}  // namespace paceline::rendezvous
