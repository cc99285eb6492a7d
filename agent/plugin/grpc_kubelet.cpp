// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/grpc_kubelet.hpp"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "agent/plugin/device_plugin.grpc.pb.h"
#include "agent/plugin/pod_resources.grpc.pb.h"
#include "agent/probe/hardware/accelerator.hpp"
#include "common/contract/injection.hpp"

namespace paceline::agent {
namespace {

using std::chrono_literals::operator""s;

constexpr int kMostRequest = 256 * 1024;
constexpr int kMostPodList = 16 * 1024 * 1024;
constexpr int kMostStreams = 4;
constexpr std::size_t kMostDevices = 64;  // of one container
constexpr int kMostThreads = 12;
constexpr auto kCallLimit = 5s;
/// How soon a stream to a dead kubelet is closed.
constexpr auto kLookAtStream = 1s;

grpc::StatusCode status_code(Code code) {
  switch (code) {
    case Code::kInvalid: return grpc::StatusCode::INVALID_ARGUMENT;
    case Code::kExhausted: return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case Code::kUnavailable: return grpc::StatusCode::UNAVAILABLE;
    default: return grpc::StatusCode::INTERNAL;
  }
}

Code code_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::DEADLINE_EXCEEDED: return Code::kTimeout;
    case grpc::StatusCode::UNAVAILABLE: return Code::kUnavailable;
    case grpc::StatusCode::CANCELLED: return Code::kCancelled;
    case grpc::StatusCode::PERMISSION_DENIED: return Code::kForbidden;
    case grpc::StatusCode::INVALID_ARGUMENT: return Code::kInvalid;
    default: return Code::kInternal;
  }
}

/// The file that a name leads to, and its time of birth; empty if there is none.
std::string identity_of(const std::filesystem::path& path) {
  struct stat is{};
  if (::lstat(path.c_str(), &is) != 0 || !S_ISSOCK(is.st_mode)) return {};
  // An inode number is reused at once; the time of birth is not.
  return std::to_string(is.st_dev) + ":" + std::to_string(is.st_ino) + ":" +
         std::to_string(is.st_ctim.tv_sec) + "." + std::to_string(is.st_ctim.tv_nsec);
}

class Service final : public v1beta1::DevicePlugin::Service {
 public:
  explicit Service(DevicePlugin& plugin) : plugin_(plugin) {}

  grpc::Status GetDevicePluginOptions(grpc::ServerContext* /*context*/,
                                      const v1beta1::Empty* /*request*/,
                                      v1beta1::DevicePluginOptions* /*answer*/) override {
    return grpc::Status::OK;  // no preferences, and no call before a container starts
  }

  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty* /*request*/,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    if (streams_.fetch_add(1) >= kMostStreams) {
      --streams_;
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many watch the slots already"};
    }
    std::unique_lock lock(mutex_);
    bool writable = true;
    for (std::uint64_t sent = 0; writable && !stopping_ && !context->IsCancelled();) {
      if (sent != changes_) {
        sent = changes_;
        lock.unlock();
        writable = writer->Write(response(plugin_.offer()));
        lock.lock();
        continue;
      }
      changed_.wait_for(lock, kLookAtStream);
    }
    --streams_;
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext* /*context*/, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* answer) override {
    for (const auto& container : request->container_requests()) {
      auto grant = plugin_.grant({container.devices_ids().begin(), container.devices_ids().end()});
      if (!grant) return {status_code(grant.error().code), grant.error().message};
      auto& given = *answer->add_container_responses();
      for (const auto& [name, value] : grant->variables) (*given.mutable_envs())[name] = value;
      for (const auto& [in_container, on_node] : grant->mounts) {
        auto& mount = *given.add_mounts();
        mount.set_container_path(in_container);
        mount.set_host_path(on_node);
        mount.set_read_only(true);
      }
    }
    return grpc::Status::OK;
  }

  void changed() {
    const std::lock_guard lock(mutex_);
    ++changes_;
    changed_.notify_all();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  int streams() const { return streams_; }

 private:
  static v1beta1::ListAndWatchResponse response(const Offer& offer) {
    v1beta1::ListAndWatchResponse response;
    for (const std::string& slot : offer.slots) {
      auto& device = *response.add_devices();
      device.set_id(slot);
      device.set_health(offer.healthy ? "Healthy" : "Unhealthy");
    }
    return response;
  }

  DevicePlugin& plugin_;
  std::atomic<int> streams_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t changes_ = 1;
  bool stopping_ = false;
};

/// The bounds of one call: the deadline and the stop token.
class Call {
 public:
  explicit Call(const std::stop_token& stop) : cancel_(stop, [this] { context_.TryCancel(); }) {
    context_.set_deadline(std::chrono::system_clock::now() + kCallLimit);
    context_.set_wait_for_ready(false);
  }
  grpc::ClientContext* context() { return &context_; }

 private:
  grpc::ClientContext context_;
  std::stop_callback<std::function<void()>> cancel_;
};

std::shared_ptr<grpc::Channel> channel_to(const std::filesystem::path& socket) {
  grpc::ChannelArguments arguments;
  // A restarted kubelet is a new server: do not keep the back-off of the old connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Go's server refuses the authority that would be derived from the socket's path.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  arguments.SetMaxReceiveMessageSize(kMostPodList);
  return grpc::CreateCustomChannel("unix:" + socket.string(), grpc::InsecureChannelCredentials(),
                                   arguments);
}

std::unexpected<Error> call_failed(const std::string& what, const grpc::Status& status) {
  const Code code = code_of(status.error_code());
  return fail(code, Origin::kKube, what + ": " + status.error_message(), code != Code::kInvalid);
}

class GrpcKubelet final : public Kubelet {
 public:
  explicit GrpcKubelet(KubeletPaths paths)
      : paths_(std::move(paths)),
        own_(paths_.device_plugins / paths_.endpoint),
        theirs_(paths_.device_plugins / "kubelet.sock") {}
  ~GrpcKubelet() override { close(); }

  std::string incarnation() override { return identity_of(theirs_); }

  Status serve(DevicePlugin& plugin) override {
    close();
    if (own_.string().size() >= sizeof(sockaddr_un::sun_path)) {
      return fail(Code::kInvalid, Origin::kConfig,
                  "the socket's path " + own_.string() +
                      " is longer than the kernel takes; name a shorter folder");
    }
    service_ = std::make_unique<Service>(plugin);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + own_.string(), grpc::InsecureServerCredentials());
    builder.RegisterService(service_.get());
    builder.SetMaxReceiveMessageSize(kMostRequest);
    builder.SetResourceQuota(grpc::ResourceQuota("paceline").SetMaxThreads(kMostThreads));
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
    server_ = builder.BuildAndStart();
    identity_ = identity_of(own_);
    if (server_ && !identity_.empty()) return {};
    close();
    return fail(Code::kUnavailable, Origin::kSystem, "cannot listen on " + own_.string(), true);
  }

  bool serving() override { return server_ && identity_of(own_) == identity_; }

  void stop_serving() override { close(); }

  Status enroll(const std::stop_token& stop) override {
    v1beta1::RegisterRequest request;
    request.set_version("v1beta1");
    request.set_endpoint(paths_.endpoint);
    request.set_resource_name(std::string(contract::kRuntimeResource));
    request.mutable_options();
    v1beta1::Empty answer;
    Call call(stop);
    const auto status = v1beta1::Registration::NewStub(channel_to(theirs_))
                            ->Register(call.context(), request, &answer);
    if (!status.ok())
      return call_failed("register with the kubelet at " + theirs_.string(), status);
    return {};
  }

  int watchers() override { return service_ ? service_->streams() : 0; }

  void offer_changed() override {
    if (service_) service_->changed();
  }

  Result<SlotPods> slots_in_use(const std::stop_token& stop) override {
    v1::ListPodResourcesResponse answer;
    Call call(stop);
    const auto status = v1::PodResourcesLister::NewStub(channel_to(paths_.pod_resources))
                            ->List(call.context(), v1::ListPodResourcesRequest(), &answer);
    if (!status.ok())
      return call_failed("list what pods use at " + paths_.pod_resources.string(), status);
    SlotPods used;
    for (const auto& pod : answer.pod_resources()) {
      for (const auto& container : pod.containers()) {
        SlotOwner owner(PodName{pod.namespace_(), pod.name()});
        for (const auto& devices : container.devices()) {
          if (!is_accelerator_resource(devices.resource_name())) continue;
          for (const auto& id : devices.device_ids()) {
            if (owner.devices.size() < kMostDevices)
              owner.devices.push_back({devices.resource_name(), id});
          }
        }
        for (const auto& devices : container.devices()) {
          if (devices.resource_name() != contract::kRuntimeResource) continue;
          for (const auto& slot : devices.device_ids()) used.emplace(slot, owner);
        }
      }
    }
    return used;
  }

 private:
  void close() {
    if (service_) service_->stop();
    // Streams end at once; calls in flight get a moment.
    if (server_) server_->Shutdown(std::chrono::system_clock::now() + 1s);
    server_.reset();
    service_.reset();
    identity_.clear();
  }

  const KubeletPaths paths_;
  const std::filesystem::path own_;
  const std::filesystem::path theirs_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string identity_;
};

}  // namespace

std::unique_ptr<Kubelet> make_grpc_kubelet(KubeletPaths paths) {
  return std::make_unique<GrpcKubelet>(std::move(paths));
}

}  // namespace paceline::agent
