// SPDX-License-Identifier: Apache-2.0
// Converts to and from JSON the values that messages, rank table, summary and termination message
// share. Pure. Writing never fails; reading stores the first wrong field in `problem`.
#pragma once

#include <nlohmann/json.hpp>

#include "common/json/fields.hpp"
#include "common/telemetry/stats/summary.hpp"
#include "launcher/rendezvous/failure.hpp"
#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::rendezvous {

inline constexpr std::size_t kMostReportedRanks = 256;  // of one replica, in one heartbeat

/// The rank table as the document that ranks read: version 1.
std::string to_json(const RankTable& table);

nlohmann::json form(const Node& node);
nlohmann::json form(const RankTable& table);
/// The rank table with its rows as columns (table_columns.hpp).
nlohmann::json columns_form(const RankTable& table);
nlohmann::json form(const Culprit& culprit);
nlohmann::json form(const telemetry::RankSummary& summary);

Node read_node(const nlohmann::json& json, std::string& problem);
RankTable read_columns_form(const nlohmann::json& json, std::string& problem);
Culprit read_culprit(const nlohmann::json& json, std::string& problem);
Failure read_failure(const nlohmann::json& json, std::string& problem);
telemetry::RankSummary read_rank_summary(const nlohmann::json& json, std::string& problem);

}  // namespace paceline::rendezvous
