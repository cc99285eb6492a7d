// SPDX-License-Identifier: Apache-2.0
// Where a trace is asked for.
#include "launcher/trace/command.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/rendezvous/json_forms.hpp"

namespace paceline::traces {
namespace {

namespace fs = std::filesystem;

/// "address:port" of each launcher, by the table of three pods of which the second is in the
/// network of its node.
std::vector<std::string> asked_from(frameworks::Environment more) {
  const fs::path state = fs::temp_directory_path() / ("ptc-" + std::to_string(::getpid()));
  fs::create_directories(state);
  std::vector<rendezvous::Node> nodes(3);
  for (int rank = 0; rank < 3; ++rank) {
    auto& node = nodes[static_cast<std::size_t>(rank)];
    node.node_rank = rank;
    node.address = "10.0.0." + std::to_string(rank);
  }
  nodes[1].port_base = 16300;
  std::ofstream(state / "rank-table.json")
      << rendezvous::to_json(rendezvous::make_rank_table(0, 29500, nodes));
  more.insert({{"PACELINE_JOB_UID", "u"},
               {"PACELINE_NODE_RANK", "0"},
               {"PACELINE_NODE_COUNT", "3"},
               {"PACELINE_POD_IP", "10.0.0.0"},
               {"PACELINE_TOKEN", "t"},
               {"PACELINE_RENDEZVOUS_ADDRESS", "10.96.0.7:29400"},
               {"PACELINE_RENDEZVOUS_LISTEN", "[::]:29400"},
               {"PACELINE_STATE_DIR", state.string()}});
  const auto found = launchers_of_pod(more);
  fs::remove_all(state);
  EXPECT_TRUE(found.has_value()) << found.error().message;
  std::vector<std::string> asked;
  if (found) {
    for (const net::Address& address : found->addresses) asked.push_back(net::to_string(address));
  }
  return asked;
}

TEST(TraceCommand, AsksEachLauncherAtItsPort) {
  EXPECT_EQ(asked_from({{"PACELINE_HTTP_LISTEN", "[::]:29401"}}),
            (std::vector<std::string>{"10.0.0.0:29401", "10.0.0.1:16301", "10.0.0.2:29401"}));
  EXPECT_EQ(asked_from({{"PACELINE_HTTP_LISTEN", "[::]:16001"}, {"PACELINE_PORT_BASE", "16000"}}),
            (std::vector<std::string>{"10.0.0.0:29401", "10.0.0.1:16301", "10.0.0.2:29401"}));
}

}  // namespace
}  // namespace paceline::traces
