// SPDX-License-Identifier: Apache-2.0
#include "common/base/log.hpp"

#include "tests/unit/agent/report/report_fixture.hpp"

#include "agent/probe/formats/nvml_json.hpp"
#include "agent/probe/probe.hpp"
#include "testing/node_tree.hpp"

namespace paceline::agent {
namespace {

Hardware probe_tree(const NodeTree& tree, std::string_view fixture) {
  const auto library = read_nvml_json(NodeTree::nvml_json(fixture), fixture);
  if (!library) ADD_FAILURE() << library.error().message;
  return library ? probe_hardware(tree.root(), **library) : Hardware{};
}

}  // namespace

Hardware recorded_machine(std::string_view fixture) {
  return probe_tree(NodeTree(fixture), fixture);
}

std::vector<Finding> checked(std::string_view fixture) {
  const NodeTree tree(fixture);
  const Hardware hardware = probe_tree(tree, fixture);
  return run_checks(Node(hardware, read_settings(tree.root(), hardware)));
}

nlohmann::json condition(const nlohmann::json& status, std::string_view type) {
  for (const auto& entry : status["conditions"]) {
    if (entry["type"] == type) return entry;
  }
  return nlohmann::json::object();
}

}  // namespace paceline::agent
