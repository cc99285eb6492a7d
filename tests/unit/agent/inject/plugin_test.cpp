// SPDX-License-Identifier: Apache-2.0
// The plugin with a fake kubelet over real sockets and gRPC.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "agent/plugin/device_plugin.grpc.pb.h"
#include "agent/plugin/grpc_kubelet.hpp"
#include "agent/plugin/pod_resources.grpc.pb.h"
#include "testing/runtime_fixture.hpp"

namespace paceline::agent {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr auto kLongest = 30s;  // for what comes at once where nothing is wrong

/// The kubelet's side: accepts registrations and lists what pods use.
class FakeKubelet final : public v1beta1::Registration::Service,
                          public v1::PodResourcesLister::Service {
 public:
  explicit FakeKubelet(std::string socket) : socket_(std::move(socket)) { start(); }
  ~FakeKubelet() override { stop(); }

  void start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
    builder.RegisterService(static_cast<v1beta1::Registration::Service*>(this));
    builder.RegisterService(static_cast<v1::PodResourcesLister::Service*>(this));
    server_ = builder.BuildAndStart();
    ASSERT_TRUE(server_);
  }
  void stop() {
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  grpc::Status Register(grpc::ServerContext* /*context*/, const v1beta1::RegisterRequest* request,
                        v1beta1::Empty* /*answer*/) override {
    registered = *request;
    return refusal;
  }
  grpc::Status List(grpc::ServerContext* /*context*/,
                    const v1::ListPodResourcesRequest* /*request*/,
                    v1::ListPodResourcesResponse* answer) override {
    *answer = pods;
    return refusal;
  }

  v1beta1::RegisterRequest registered;
  v1::ListPodResourcesResponse pods;
  grpc::Status refusal;

 private:
  const std::string socket_;
  std::unique_ptr<grpc::Server> server_;
};

class FakePlugin final : public DevicePlugin {
 public:
  Offer offer() override {
    const std::lock_guard lock(mutex);
    return offered;
  }
  Result<Grant> grant(const std::vector<std::string>& ids) override {
    const std::lock_guard lock(mutex);
    if (ids != std::vector<std::string>{"slot-0"})
      return fail(Code::kInvalid, Origin::kConfig, "the kubelet names a slot that is not offered");
    return Grant{{{"/opt/paceline", "/node/runtime"}, {"/run/paceline-slot", "/node/slot-0"}},
                 {{"PACELINE_X", "1"}}};
  }

  std::mutex mutex;
  Offer offered{{"slot-0", "slot-1"}, true};
};

class PluginTest : public testing::Test {
 protected:
  PluginTest() {
    paths_.device_plugins = scratch_ / "d";
    paths_.pod_resources = scratch_ / "d/kubelet.sock";
    std::filesystem::create_directories(paths_.device_plugins);
    ours_ = make_grpc_kubelet(paths_);
  }

  std::unique_ptr<v1beta1::DevicePlugin::Stub> stub() const {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1beta1::DevicePlugin::NewStub(
        grpc::CreateCustomChannel("unix:" + (scratch_ / "d/paceline.sock").string(),
                                  grpc::InsecureChannelCredentials(), own));
  }

  static void limit(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + kLongest);
  }

  bool comes(const std::function<bool()>& fact) const {
    const auto until = std::chrono::steady_clock::now() + kLongest;
    while (!fact() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(5ms);
    return fact();
  }

  Scratch scratch_;
  KubeletPaths paths_;
  FakePlugin plugin_;
  std::unique_ptr<Kubelet> ours_;
};

TEST_F(PluginTest, RegistersByNameVersionAndSocket) {
  EXPECT_EQ(ours_->incarnation(), "");
  FakeKubelet kubelet((scratch_ / "d/kubelet.sock").string());
  EXPECT_NE(ours_->incarnation(), "");
  ASSERT_TRUE(ours_->serve(plugin_));
  EXPECT_TRUE(ours_->serving());
  const auto told = ours_->enroll({});
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(kubelet.registered.version(), "v1beta1");
  EXPECT_EQ(kubelet.registered.endpoint(), "paceline.sock");
  EXPECT_EQ(kubelet.registered.resource_name(), "paceline.dev/runtime");
  EXPECT_FALSE(kubelet.registered.options().pre_start_required());

  kubelet.refusal = {grpc::StatusCode::UNKNOWN, "taken by another plugin"};
  const auto refused = ours_->enroll({});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("taken by another plugin"));
}

TEST_F(PluginTest, AKubeletThatIsGoneIsAnErrorAndOneThatStartsAnewIsReached) {
  {
    FakeKubelet kubelet((scratch_ / "d/kubelet.sock").string());
    ASSERT_TRUE(ours_->enroll({}));
    const std::string first = ours_->incarnation();
    kubelet.stop();
    EXPECT_FALSE(ours_->enroll({}));
    kubelet.start();
    EXPECT_NE(ours_->incarnation(), first);
    const auto told = ours_->enroll({});
    EXPECT_TRUE(told) << told.error().message;
  }
  std::stop_source stopped;
  stopped.request_stop();
  EXPECT_FALSE(ours_->enroll(stopped.get_token()));
}

TEST_F(PluginTest, AWatcherSeesEveryChangeAndIsCountedWhileItLives) {
  ASSERT_TRUE(ours_->serve(plugin_));
  EXPECT_EQ(ours_->watchers(), 0);
  const auto stub = this->stub();
  {
    grpc::ClientContext context;
    limit(context);
    const auto stream = stub->ListAndWatch(&context, {});
    v1beta1::ListAndWatchResponse seen;
    ASSERT_TRUE(stream->Read(&seen));
    ASSERT_EQ(seen.devices_size(), 2);
    EXPECT_EQ(seen.devices(1).id(), "slot-1");
    EXPECT_EQ(seen.devices(1).health(), "Healthy");
    EXPECT_EQ(ours_->watchers(), 1);
    {
      const std::lock_guard lock(plugin_.mutex);
      plugin_.offered = {{"slot-0"}, false};
    }
    ours_->offer_changed();
    ASSERT_TRUE(stream->Read(&seen));
    ASSERT_EQ(seen.devices_size(), 1);
    EXPECT_EQ(seen.devices(0).health(), "Unhealthy");
    context.TryCancel();
    stream->Finish();
  }
  EXPECT_TRUE(comes([&] { return ours_->watchers() == 0; })) << "a dead stream counts as a watcher";
}

TEST_F(PluginTest, StreamsAreBoundedAndEndWithTheServing) {
  ASSERT_TRUE(ours_->serve(plugin_));
  const auto stub = this->stub();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1beta1::ListAndWatchResponse>>> streams;
  v1beta1::ListAndWatchResponse seen;
  for (int i = 0; i < 4; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    limit(*contexts.back());
    streams.push_back(stub->ListAndWatch(contexts.back().get(), {}));
    ASSERT_TRUE(streams.back()->Read(&seen));
  }
  grpc::ClientContext fifth;
  limit(fifth);
  const auto refused = stub->ListAndWatch(&fifth, {});
  EXPECT_FALSE(refused->Read(&seen));
  EXPECT_EQ(refused->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  // The plugin still answers while all of them are open.
  grpc::ClientContext context;
  limit(context);
  v1beta1::DevicePluginOptions options;
  EXPECT_TRUE(stub->GetDevicePluginOptions(&context, {}, &options).ok());
  ours_->stop_serving();
  for (const auto& stream : streams) EXPECT_FALSE(stream->Read(&seen));
  EXPECT_EQ(ours_->watchers(), 0);
}

TEST_F(PluginTest, AllocateMountsReadOnlyAndRefusesWhatIsNotASlot) {
  ASSERT_TRUE(ours_->serve(plugin_));
  const auto stub = this->stub();
  const auto allocate = [&](const std::vector<std::vector<std::string>>& containers,
                            v1beta1::AllocateResponse& answer) {
    v1beta1::AllocateRequest request;
    for (const auto& ids : containers) {
      auto& container = *request.add_container_requests();
      for (const auto& id : ids) container.add_devices_ids(id);
    }
    grpc::ClientContext context;
    limit(context);
    return stub->Allocate(&context, request, &answer);
  };
  v1beta1::AllocateResponse answer;
  ASSERT_TRUE(allocate({{"slot-0"}}, answer).ok());
  ASSERT_EQ(answer.container_responses_size(), 1);
  const auto& given = answer.container_responses(0);
  ASSERT_EQ(given.mounts_size(), 2);
  for (const auto& mount : given.mounts()) EXPECT_TRUE(mount.read_only()) << mount.container_path();
  EXPECT_EQ(given.mounts(0).container_path(), "/opt/paceline");
  EXPECT_EQ(given.mounts(0).host_path(), "/node/runtime");
  EXPECT_EQ(given.envs_size(), 1);
  EXPECT_EQ(given.envs().at("PACELINE_X"), "1");
  EXPECT_EQ(given.devices_size() + given.cdi_devices_size() + given.annotations_size(), 0);

  for (const auto& ids :
       std::vector<std::vector<std::string>>{{"../slot-0"}, {}, {"slot-0", "slot-0"}, {"\x01"}}) {
    answer.Clear();
    EXPECT_EQ(allocate({{"slot-0"}, ids}, answer).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  // Larger than any kubelet's message: refused unread, and the plugin goes on.
  EXPECT_EQ(allocate({{std::string(1'000'000, 'x')}}, answer).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(allocate({{"slot-0"}}, answer).ok());
}

TEST_F(PluginTest, ASocketWhoseNameWasRemovedIsOpenedAgain) {
  ASSERT_TRUE(ours_->serve(plugin_));
  std::filesystem::remove(scratch_ / "d/paceline.sock");  // as a starting kubelet does
  EXPECT_FALSE(ours_->serving());
  ASSERT_TRUE(ours_->serve(plugin_));
  EXPECT_TRUE(ours_->serving());
  grpc::ClientContext context;
  limit(context);
  v1beta1::DevicePluginOptions options;
  EXPECT_TRUE(stub()->GetDevicePluginOptions(&context, {}, &options).ok());
}

TEST_F(PluginTest, APathThatIsTooLongIsNamed) {
  paths_.device_plugins = scratch_ / std::string(120, 'd');
  std::filesystem::create_directories(paths_.device_plugins);
  const auto refused = make_grpc_kubelet(paths_)->serve(plugin_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("longer than the kernel takes"));
}

TEST_F(PluginTest, SlotsInUseAreThoseOfOurResource) {
  EXPECT_FALSE(ours_->slots_in_use({}));
  FakeKubelet kubelet((scratch_ / "d/kubelet.sock").string());
  for (const auto& [resource, id] :
       std::multimap<std::string, std::string>{{"nvidia.com/gpu", "GPU-1"},
                                               {"paceline.dev/runtime", "slot-1"},
                                               {"paceline.dev/runtime", "slot-7"}}) {
    auto& pod = *kubelet.pods.add_pod_resources();
    pod.set_namespace_("team");
    pod.set_name("of-" + id);
    auto& devices = *pod.add_containers()->add_devices();
    devices.set_resource_name(resource);
    devices.add_device_ids(id);
  }
  const auto used = ours_->slots_in_use({});
  ASSERT_TRUE(used) << used.error().message;
  EXPECT_EQ(*used, (SlotPods{{"slot-1", PodName{"team", "of-slot-1"}},
                             {"slot-7", PodName{"team", "of-slot-7"}}}));
  // The other accelerators of the same container.
  auto& container = *kubelet.pods.mutable_pod_resources(1)->mutable_containers(0);
  for (const auto& [resource, id] :
       std::multimap<std::string, std::string>{{"nvidia.com/gpu", "GPU-2"},
                                               {"nvidia.com/mig-1g.10gb", "MIG-1"},
                                               {"rdma/hca", "mlx5_0"}}) {
    auto& devices = *container.add_devices();
    devices.set_resource_name(resource);
    devices.add_device_ids(id);
  }
  const auto with_devices = ours_->slots_in_use({});
  ASSERT_TRUE(with_devices);
  EXPECT_EQ(
      with_devices->find("slot-1")->second.devices,
      (std::vector<PodDevice>{{"nvidia.com/gpu", "GPU-2"}, {"nvidia.com/mig-1g.10gb", "MIG-1"}}));
  kubelet.refusal = {grpc::StatusCode::PERMISSION_DENIED, "no"};
  EXPECT_FALSE(ours_->slots_in_use({}));
}

}  // namespace
}  // namespace paceline::agent
