// SPDX-License-Identifier: Apache-2.0
#include "launcher/frameworks/frameworks.hpp"

namespace paceline::frameworks {
namespace {

/// A tracker that sorts by task compares texts, so that all numbers have the same width.
std::string task_id(const Process& process) {
  std::string id = std::to_string(process.rank());
  const std::size_t width = std::to_string(process.table.world_size - 1).size();
  if (id.size() < width) id.insert(0, width - id.size(), '0');
  return id;
}

}  // namespace

void set_xgboost(const Process& process, Variables& variables) {
  const auto both = [&](const std::string& upper, const std::string& lower,
                        const std::string& value) {
    variables.set(upper, value);
    variables.set(lower, value);
  };
  // The lower-case names are those of the arguments of xgboost.collective.CommunicatorContext.
  both("DMLC_TRACKER_URI", "dmlc_tracker_uri", process.table.master_address);
  both("DMLC_TRACKER_PORT", "dmlc_tracker_port", std::to_string(process.table.master_port));
  both("DMLC_TASK_ID", "dmlc_task_id", task_id(process));
  variables.set("DMLC_NUM_WORKER", process.table.world_size);
}

}  // namespace paceline::frameworks
