// SPDX-License-Identifier: Apache-2.0
// How many pods, processes and GPUs a batch script asks for. A TrainingJob has the same number of
// processes in each pod. What does not divide is rounded up, and noted. Pure; never fails.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cli/convert/notes.hpp"

namespace paceline::cli {

struct SlurmCount {
  std::int64_t number = 1;
  int line = 1;  // of the script
};
/// "nodes", "ntasks", "ntasks-per-node", "gpus", "gpus-per-node", "gpus-per-task", …
using SlurmCounts = std::map<std::string, SlurmCount, std::less<>>;

struct NodeShape {
  std::int64_t nodes = 1;
  std::int64_t tasks = 1;            // of one node
  std::optional<std::int64_t> gpus;  // of one node
};

NodeShape node_shape(const SlurmCounts& counts, Notes& notes);

}  // namespace paceline::cli
