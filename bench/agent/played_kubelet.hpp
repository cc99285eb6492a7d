// SPDX-License-Identifier: Apache-2.0
// A fake kubelet: the side of device plugins and PodResources that an agent needs. It accepts the
// agent's registration, watches its slots, and names one pod for each.
//
// Owns its servers and threads. Thread-safe. If a server cannot be started, the program ends with a
// message.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace paceline::bench {

class PlayedKubelet {
 public:
  /// Listens at FOLDER/device-plugins/kubelet.sock and FOLDER/pod-resources/kubelet.sock. Slot N is
  /// pod NAMESPACE/JOB-worker-N-0's.
  PlayedKubelet(const std::filesystem::path& folder, std::string name_space, std::string job,
                int pods);
  ~PlayedKubelet();

  /// Watches the slots as a kubelet does and waits until they are healthy; false after a minute.
  bool slots_are_healthy();
  /// The plugin's answer for a container with the slot: the folder of the slot, or nothing.
  std::string allocate(const std::string& slot);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace paceline::bench
