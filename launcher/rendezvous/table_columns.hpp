// SPDX-License-Identifier: Apache-2.0
// The rank table's rows as columns of runs, for the wire. Pod names, indices and most node names
// follow a pattern, so a column of thousands of rows is a few runs. 10,000 rows whose addresses and
// node names follow none take about 200 KiB instead of 2 MiB. message.cpp uses it.
//
// A column of numbers is a list of [first, step, count]. A column of texts is an object: what all
// rows have in common in front (`before`) and at the end (`after`), and a list `runs` of what is
// between:
//   "text"                              one row
//   ["text", count]                     the same text in `count` rows
//   ["before", "digits", "after", count] texts whose number grows by one from row to row
//
// Pure. Reading accepts any JSON and stores the first wrong field in `problem`.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/rendezvous/rank_table.hpp"

namespace paceline::rendezvous {

/// An object with one field for each column.
nlohmann::json to_columns(const std::vector<Node>& nodes);

/// `first_rank` follows from the processes of the rows before.
std::vector<Node> read_columns(const nlohmann::json& columns, std::string& problem);

}  // namespace paceline::rendezvous
