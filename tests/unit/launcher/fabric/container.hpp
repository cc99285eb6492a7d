// SPDX-License-Identifier: Apache-2.0
// A container on a recorded machine: it has the device files that a device plugin gives.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "testing/node_tree.hpp"

namespace paceline::fabric {

class Container {
 public:
  Container(std::string_view fixture, int gpus) : tree_(fixture) {
    int number = 0;
    const auto devices = tree_.folder() / "sys/class/infiniband";
    if (std::filesystem::exists(devices)) {
      for (const auto& entry : std::filesystem::directory_iterator(devices))
        give(entry.path().filename().string(), number++);
    }
    for (int gpu = 0; gpu < gpus; ++gpu) tree_.write("dev/nvidia" + std::to_string(gpu), "");
    for (const char* other : {"nvidiactl", "nvidia-uvm"})
      tree_.write("dev/" + std::string(other), "");
  }

  /// Takes the device file of an RDMA device away; the kernel still shows the device.
  void take(const std::string& device) const {
    const auto verbs = tree_.folder() / "sys/class/infiniband" / device / "device/infiniband_verbs";
    for (const auto& entry : std::filesystem::directory_iterator(verbs))
      tree_.remove("dev/infiniband/" + entry.path().filename().string());
  }

  const agent::NodeTree& tree() const { return tree_; }
  const std::filesystem::path& root() const { return tree_.folder(); }

 private:
  void give(const std::string& device, int number) const {
    const std::string verbs = "uverbs" + std::to_string(number);
    tree_.write("sys/class/infiniband/" + device + "/device/infiniband_verbs/" + verbs + "/ibdev",
                device + "\n");
    tree_.write("dev/infiniband/" + verbs, "");
  }

  agent::NodeTree tree_;
};

}  // namespace paceline::fabric
