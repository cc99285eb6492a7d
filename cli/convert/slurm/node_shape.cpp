// SPDX-License-Identifier: Apache-2.0
#include "cli/convert/slurm/node_shape.hpp"

#include <algorithm>
#include <string_view>

namespace paceline::cli {
namespace {

std::int64_t divided_up(std::int64_t number, std::int64_t parts) {
  return number / parts + (number % parts == 0 ? 0 : 1);
}

class Shaper {
 public:
  Shaper(const SlurmCounts& counts, Notes& notes) : counts_(counts), notes_(notes) {}

  NodeShape shape() {
    NodeShape shape;
    const auto nodes = count("nodes");
    const auto tasks = count("ntasks");
    const auto most = count("ntasks-per-node");
    shape.nodes = nodes.value_or(1);
    shape.tasks = most.value_or(1);
    if (tasks) {
      // Beside --ntasks, Slurm takes --ntasks-per-node for a maximum.
      if (most) shape.nodes = std::max(shape.nodes, divided_up(*tasks, *most));
      shape.tasks = divided_up(*tasks, shape.nodes);
      compare("ntasks", "processes", shape.nodes, shape.tasks);
      if (nodes && *nodes != shape.nodes)
        note("nodes", "becomes " + std::to_string(shape.nodes) +
                          " replicas, because no node runs more than " + std::to_string(*most) +
                          " processes");
    }
    if (const auto each = count("gpus-per-node")) {
      shape.gpus = each;
    } else if (const auto of_task = count("gpus-per-task")) {
      shape.gpus = *of_task * shape.tasks;
    } else if (const auto all = count("gpus")) {
      shape.gpus = divided_up(*all, shape.nodes);
      compare("gpus", "GPUs", shape.nodes, *shape.gpus);
    }
    return shape;
  }

 private:
  std::optional<std::int64_t> count(std::string_view name) const {
    const auto found = counts_.find(name);
    return found == counts_.end() ? std::nullopt : std::optional(found->second.number);
  }

  void note(std::string_view name, std::string reason) {
    const SlurmCount& count = counts_.find(name)->second;
    const Json shown = std::to_string(count.number);
    notes_.add("--" + std::string(name), &shown, std::move(reason),
               "change replicas, processes or limits if the number matters");
    notes_.all().back().line = count.line;
  }

  void compare(std::string_view name, const std::string& what, std::int64_t nodes,
               std::int64_t each) {
    if (nodes * each == *count(name)) return;
    note(name, "becomes " + std::to_string(nodes) + " replicas with " + std::to_string(each) + " " +
                   what + " each, " + std::to_string(nodes * each) +
                   " in all: every replica has the same number");
  }

  const SlurmCounts& counts_;
  Notes& notes_;
};

}  // namespace

NodeShape node_shape(const SlurmCounts& counts, Notes& notes) {
  return Shaper(counts, notes).shape();
}

}  // namespace paceline::cli
