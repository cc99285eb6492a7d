// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous/table_columns.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/rendezvous/json_forms.hpp"
#include "launcher/rendezvous/message.hpp"

namespace paceline::rendezvous {
namespace {

using nlohmann::json;

Node worker(int rank) {
  const std::string index = std::to_string(rank);
  return {rank,    "worker", rank,    0, "job-worker-" + index + "-0", "10.0.0." + index,
          "gpu-a", 8,        8 * rank};
}

std::vector<Node> nodes(int count) {
  std::vector<Node> all;
  for (int rank = 0; rank < count; ++rank) all.push_back(worker(rank));
  return all;
}

/// The rows after the trip, as the document that ranks read, so that every field is compared.
std::string trip(const std::vector<Node>& rows) {
  std::string problem;
  RankTable table;
  table.nodes = read_columns(to_columns(rows), problem);
  EXPECT_EQ(problem, "");
  return to_json(table);
}

std::string written(std::vector<Node> rows) {
  RankTable table;
  table.nodes = std::move(rows);
  return to_json(table);
}

TEST(TableColumns, KeepEveryFieldOfEveryRow) {
  for (const int count : {1, 2, 3, 11, 300}) EXPECT_EQ(trip(nodes(count)), written(nodes(count)));
}

TEST(TableColumns, PortsInTheNetworkOfANodeAreToldOnlyWhereThereAreAny) {
  auto rows = nodes(3);
  EXPECT_FALSE(to_columns(rows).contains("portBase")) << "earlier launchers do not know it";
  rows[0].port_base = 16000;
  rows[2].port_base = 16100;
  EXPECT_EQ(trip(rows), written(rows));
  const json table = json::parse(written(rows));
  EXPECT_EQ(table["nodes"][2]["portBase"], 16100);
  EXPECT_FALSE(table["nodes"][1].contains("portBase"));
  std::string problem;
  json columns = to_columns(rows);
  columns["portBase"] = json::array({{65437, 0, 3}});
  read_columns(columns, problem);
  EXPECT_NE(problem, "");
}

TEST(TableColumns, KeepTextsThatFollowNoPattern) {
  const std::vector<std::vector<std::string>> cases{
      {"a", "b", "b", "c"},
      {"", "", "1", "2"},
      {"n-08", "n-09", "n-10", "n-11"},  // zeros in front
      {"n-8", "n-9", "n-10", "n-011"},   // and not
      {"n-099", "n-100", "n-101"},
      {"n-9-x", "n-10-y", "n-11-y"},
      {"10.0.0.255", "10.0.1.0", "10.0.1.1"},
      {"a1", "a2x", "a3"},
      {"9", "10", "11", "9"},
      {"n99999999999999999999", "n100000000000000000000"},  // more than an integer holds
      {"-1", "-2"},
      {"fd00::9", "fd00::a", "fd00::10"},
      {"a", "ab", "abab", "b"},
      {"\u00e4", "\u00e5", "\u03e4"},  // bytes in common
      {"aa", "a", "aaa"},
      {"x1y1", "x1y1y1"},
      {"1", "11", "111"}};
  for (const auto& texts : cases) {
    std::vector<Node> rows;
    for (std::size_t row = 0; row < texts.size(); ++row) {
      rows.push_back(worker(static_cast<int>(row)));
      rows.back().pod_name = rows.back().address = rows.back().node_name = texts[row];
    }
    EXPECT_EQ(trip(rows), written(rows)) << to_columns(rows).dump();
  }
}

TEST(TableColumns, KeepNumbersThatFollowNoPattern) {
  std::vector<Node> rows = nodes(5);
  rows[1].incarnation = 7;
  rows[3].incarnation = 2;
  rows[2].processes = 1;
  rows[4].replica_index = 0;
  int rank = 0;
  for (Node& row : rows) {
    row.first_rank = rank;
    rank += row.processes;
  }
  EXPECT_EQ(trip(rows), written(rows));
}

TEST(TableColumns, OfAPatternTakeFewBytesHoweverManyRows) {
  EXPECT_LT(to_columns(nodes(10'000)).dump().size(), 500U);
}

TEST(TableColumns, OfArbitraryAddressesAndHostsTakeFewBytesARow) {
  std::vector<Node> rows = nodes(10'000);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::size_t place = (7919 * row + 13) % 65521;
    const std::string high = std::to_string(place / 256);
    const std::string low = std::to_string(place % 256);
    rows[row].address = "10.7." + high + "." + low;
    rows[row].node_name = "ip-10-7-" + high + "-" + low + ".eu-central-1.compute.internal";
  }
  EXPECT_EQ(trip(rows), written(rows));
  EXPECT_LT(to_columns(rows).dump().size(), 220'000U);
}

TEST(TableColumns, RefuseWhatIsNoTable) {
  const auto problem_of = [](const char* column, const char* value) {
    json columns = to_columns(nodes(2));
    (columns[column].is_object() ? columns[column]["runs"] : columns[column]) = json::parse(value);
    std::string problem;
    EXPECT_TRUE(read_columns(columns, problem).empty()) << value;
    return problem;
  };
  for (const char* value :
       {"5", "[5]", "[[]]", R"([["a"]])", R"([["a",0]])", R"([["a",-1]])", R"([["a",100001]])",
        R"([["a",99999],["b",99999]])", R"([["a","x","b",2]])", R"([["a","","b",2]])",
        R"([["a","1234567890123456","b",2]])", R"([[1,"1","b",2]])", R"([["a",2,3]])"})
    EXPECT_NE(problem_of("podName", value).find("podName"), std::string::npos) << value;
  for (const char* value :
       {"[[0,1]]", "[[0,1,0]]", R"([["0",1,2]])", "[[-1,1,2]]", "[[0,-1,2]]",
        "[[0,9223372036854775807,2]]", "[[0,1,18446744073709551615]]", "[[1,100000,2]]", "[0,1]"})
    EXPECT_NE(problem_of("nodeRank", value).find("nodeRank"), std::string::npos) << value;
  EXPECT_NE(problem_of("processes", "[[0,0,2]]").find("processes"), std::string::npos);
  EXPECT_NE(problem_of("role", R"([["w",3]])").find("another number of rows"), std::string::npos);
  for (const json& columns : {json::array(), json::object(), json{{"nodeRank", 5}}}) {
    std::string problem;
    EXPECT_TRUE(read_columns(columns, problem).empty());
    EXPECT_NE(problem, "");
  }
  json columns = to_columns(nodes(2));
  columns["podName"] = json::array({"a", "b"});
  std::string problem;
  EXPECT_TRUE(read_columns(columns, problem).empty());
  EXPECT_NE(problem.find("podName"), std::string::npos) << problem;
}

}  // namespace
}  // namespace paceline::rendezvous
