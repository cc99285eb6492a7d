// SPDX-License-Identifier: Apache-2.0
#include "bench/agent/played_kubelet.hpp"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "agent/plugin/device_plugin.grpc.pb.h"
#include "agent/plugin/pod_resources.grpc.pb.h"
#include "common/contract/injection.hpp"
#include "common/contract/names.hpp"

namespace paceline::bench {

struct PlayedKubelet::Impl final : v1beta1::Registration::Service, v1::PodResourcesLister::Service {
  Impl(const std::filesystem::path& folder, std::string ns, std::string of, int count)
      : plugins(folder / "device-plugins"),
        name_space(std::move(ns)),
        job(std::move(of)),
        pods(count) {
    for (const char* part : {"device-plugins", "pod-resources"}) {
      std::filesystem::create_directories(folder / part);
      const std::string socket = (folder / part / "kubelet.sock").string();
      grpc::ServerBuilder builder;
      builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
      builder.RegisterService(static_cast<v1beta1::Registration::Service*>(this));
      builder.RegisterService(static_cast<v1::PodResourcesLister::Service*>(this));
      auto server = builder.BuildAndStart();
      if (!server) {
        std::fprintf(stderr, "bench: cannot listen on %s\n", socket.c_str());
        std::exit(2);
      }
      (part[0] == 'd' ? registration : resources) = std::move(server);
    }
  }

  grpc::Status Register(grpc::ServerContext* /*context*/, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty* /*answer*/) override {
    if (watching.joinable()) return {grpc::StatusCode::ALREADY_EXISTS, "registered already"};
    const std::string socket = (plugins / request->endpoint()).string();
    watching = std::jthread([this, socket] { watch(socket); });
    return grpc::Status::OK;
  }

  grpc::Status List(grpc::ServerContext* /*context*/,
                    const v1::ListPodResourcesRequest* /*request*/,
                    v1::ListPodResourcesResponse* answer) override {
    for (int i = 0; i < pods; ++i) {
      auto& pod = *answer->add_pod_resources();
      pod.set_namespace_(name_space);
      pod.set_name(contract::pod_name(job, "worker", i, 0));
      auto& devices = *pod.add_containers()->add_devices();
      devices.set_resource_name(std::string(contract::kRuntimeResource));
      devices.add_device_ids("slot-" + std::to_string(i));
    }
    return grpc::Status::OK;
  }

  static std::shared_ptr<grpc::Channel> channel(const std::string& socket) {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    own.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
    return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), own);
  }

  void watch(const std::string& socket) {
    const auto stub = v1beta1::DevicePlugin::NewStub(channel(socket));
    const auto stream = stub->ListAndWatch(&context, {});
    for (v1beta1::ListAndWatchResponse offer; stream->Read(&offer);) {
      healthy = offer.devices_size() > 0 && offer.devices(0).health() == "Healthy";
    }
  }

  const std::filesystem::path plugins;
  const std::string name_space;
  const std::string job;
  const int pods;
  std::atomic<bool> healthy = false;
  grpc::ClientContext context;
  std::unique_ptr<grpc::Server> registration;
  std::unique_ptr<grpc::Server> resources;
  std::jthread watching;
};

PlayedKubelet::PlayedKubelet(const std::filesystem::path& folder, std::string name_space,
                             std::string job, int pods)
    : impl_(std::make_unique<Impl>(folder, std::move(name_space), std::move(job), pods)) {}

PlayedKubelet::~PlayedKubelet() {
  impl_->context.TryCancel();
  for (auto* server : {impl_->registration.get(), impl_->resources.get()})
    server->Shutdown(std::chrono::system_clock::now());
}

bool PlayedKubelet::slots_are_healthy() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!impl_->healthy && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return impl_->healthy;
}

std::string PlayedKubelet::allocate(const std::string& slot) {
  v1beta1::AllocateRequest request;
  request.add_container_requests()->add_devices_ids(slot);
  v1beta1::AllocateResponse answer;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const auto stub =
      v1beta1::DevicePlugin::NewStub(Impl::channel((impl_->plugins / "paceline.sock").string()));
  if (!stub->Allocate(&context, request, &answer).ok() || answer.container_responses_size() != 1)
    return {};
  for (const auto& mount : answer.container_responses(0).mounts()) {
    if (mount.container_path() == contract::kSlotMount) return mount.host_path();
  }
  return {};
}

}  // namespace paceline::bench
