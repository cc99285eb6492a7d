// SPDX-License-Identifier: Apache-2.0
// The kubelet of this node, over the sockets that it and we have in its folders: Registration and
// DevicePlugin (v1beta1), PodResourcesLister (v1).
//
// As agent/inject/kubelet.hpp says. Its threads are bounded, streams too; messages of the kubelet
// are limited to 256 KiB, its list of pods to 16 MiB. No call takes longer than 5 s, and a stop
// token ends it at once.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "agent/inject/kubelet.hpp"

namespace paceline::agent {

struct KubeletPaths {
  std::filesystem::path device_plugins = "/var/lib/kubelet/device-plugins";
  std::filesystem::path pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  /// Name of our socket in `device_plugins`.
  std::string endpoint = "paceline.sock";
};

std::unique_ptr<Kubelet> make_grpc_kubelet(KubeletPaths paths);

}  // namespace paceline::agent
