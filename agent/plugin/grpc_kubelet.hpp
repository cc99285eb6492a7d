// SPDX-License-Identifier: Apache-2.0
// The kubelet of this node over gRPC, on the sockets in the kubelet's folders: Registration and
// DevicePlugin (v1beta1), PodResourcesLister (v1). main.cpp makes one for the injector.
//
// Implements agent/inject/kubelet.hpp. Its threads and streams are bounded; messages of the kubelet
// are limited to 256 KiB, its list of pods to 16 MiB. No call takes longer than 5 s, and a stop
// request ends it at once.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "agent/inject/kubelet.hpp"

namespace paceline::agent {

struct KubeletPaths {
  std::filesystem::path device_plugins = "/var/lib/kubelet/device-plugins";
  std::filesystem::path pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  /// Name of the plugin's socket in `device_plugins`.
  std::string endpoint = "paceline.sock";
};

std::unique_ptr<Kubelet> make_grpc_kubelet(KubeletPaths paths);

}  // namespace paceline::agent
