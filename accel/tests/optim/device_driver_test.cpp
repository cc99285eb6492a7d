// SPDX-License-Identifier: Apache-2.0
// The calls that the GPU step makes of the driver: modules, contexts, streams, and what is refused.
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "device_world.hpp"
#include "fake_cuda/fake.hpp"

namespace device_cases {

CASE(device_modules_load_while_another_thread_captures_a_graph) {
  FakeCuda cuda;
  cuda.set("captured elsewhere", 1);
  CHECK(opens(cuda));
  CHECK_EQ(cuda.capture_mode(), 0);
}

CASE(device_calls_go_to_the_callers_stream_and_leave_no_context_behind) {
  FakeCuda cuda(
      {"optim-cuda12-sm_90.cubin", "optim-cuda13-sm_90.cubin", "optim-cuda13-sm_80.cubin"});
  CHECK(opens(cuda, 3) && opens(cuda, 3));
  CHECK(cuda.log() ==
        "cuInit\ncuDeviceGet 3\ncuDevicePrimaryCtxRetain 3\ncuThreadExchangeStreamCaptureMode 2\n"
        "cuModuleLoadData cuda13-s\ncuThreadExchangeStreamCaptureMode 0\n");  // once for a process
  World world(std::vector<Spec>{{8193}});
  world.groups[0] = group_of(PACELINE_OPTIM_SGD, 0);
  Device device(world);
  device.call().device = 3;
  cuda.forget();
  CHECK_EQ(device.step(), PACELINE_OK);
  CHECK(cuda.log() == "cuLaunchKernel paceline_optim_update 2 256 stream 119 contexts 1\n");
  cuda.forget();
  device.call().max_grad_norm = 1;
  CHECK_EQ(device.step(), PACELINE_OK);
  CHECK(cuda.log() ==
        "cuLaunchKernel paceline_optim_norm 2 256 stream 119 contexts 1\n"
        "cuLaunchKernel paceline_optim_update 2 256 stream 119 contexts 1\n");
  cuda.set("cuLaunchKernel", 700);
  CHECK_EQ(device.step(), PACELINE_EDEVICE);
}

CASE(device_an_older_driver_takes_the_older_module) {
  FakeCuda cuda({"optim-cuda12-sm_80.cubin", "optim-cuda13-sm_80.cubin"});
  cuda.set("version", 12080);
  cuda.set("major", 8);
  cuda.set("minor", 6);
  CHECK(opens(cuda));
  CHECK(cuda.log().find("cuModuleLoadData cuda12-s\n") != std::string::npos);
}

CASE(device_without_its_own_module_a_newer_driver_takes_an_older_one) {
  FakeCuda cuda({"optim-cuda12-sm_100.cubin"});
  cuda.set("major", 10);
  cuda.set("minor", 3);
  CHECK(opens(cuda));
}

CASE(device_a_reason_is_given_where_there_is_nothing_for_it) {
  FakeCuda cuda;
  cuda.set("major", 7);
  cuda.set("minor", 5);
  CHECK(cuda.open(0).find("compute capability 7.5") != std::string::npos);
  cuda.set("major", 12);
  CHECK(cuda.open(1).find("compute capability 12.5") != std::string::npos);
  cuda.set("major", 10);
  CHECK(cuda.open(2).find("optim-cuda13-sm_100.cubin, optim-cuda12-sm_100.cubin") !=
        std::string::npos);
  cuda.set("major", 9);
  cuda.set("cuModuleLoadData", 200);
  CHECK(cuda.open(4).find("CUDA_ERROR_INVALID_IMAGE") != std::string::npos);
  cuda.set("cuModuleLoadData", 0);
  CHECK(cuda.open(4).find("CUDA_ERROR_INVALID_IMAGE") != std::string::npos);  // remembered
  CHECK(cuda.open(64).find("64") != std::string::npos);
  World world(std::vector<Spec>{{5}});
  world.groups[0] = group_of(PACELINE_OPTIM_SGD, 0);
  Device device(world);
  CHECK_EQ(device.step(), PACELINE_EDEVICE);
}

CASE(device_counts_in_the_hosts_memory_go_on_where_there_is_a_gradient) {
  std::array<float, 3> steps{1, 2, 3};
  std::array<float, 3> counts = steps;
  std::array<float*, 3> places{&steps[0], &steps[1], &steps[2]};
  const std::array<const void*, 3> grads{steps.data(), nullptr, steps.data()};
  CHECK_EQ(paceline_optim_counts_are(places.data(), counts.data(), 3), 1);
  CHECK_EQ(paceline_optim_count(places.data(), counts.data(), grads.data(), 3), PACELINE_OK);
  CHECK((steps == std::array<float, 3>{2, 2, 4} && counts == steps));
  steps[2] = 7;
  CHECK_EQ(paceline_optim_counts_are(places.data(), counts.data(), 3), 0);
  CHECK_EQ(paceline_optim_counts_are(places.data(), counts.data(), 2), 1);
  CHECK_EQ(paceline_optim_counts_are(nullptr, nullptr, 0), 1);
  CHECK_EQ(paceline_optim_counts_are(nullptr, counts.data(), 3), PACELINE_EINVAL);
  CHECK_EQ(paceline_optim_count(places.data(), counts.data(), nullptr, 3), PACELINE_EINVAL);
}

CASE(device_a_driver_too_old_is_refused) {
  FakeCuda cuda;
  cuda.set("version", 11080);
  CHECK(cuda.open().find("CUDA 11") != std::string::npos);
}

CASE(device_bad_arguments_are_refused_before_anything_is_launched) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  const auto refused = [&](auto&& spoil) {
    World world({{5}, {6}});
    world.groups[0] = group_of(PACELINE_OPTIM_ADAM, PACELINE_OPTIM_AMSGRAD);
    Device device(world);
    spoil(world, device.call());
    cuda.forget();
    CHECK_EQ(device.step(), PACELINE_EINVAL);
    CHECK(cuda.log().empty());
  };
  refused([](World&, paceline_optim_device_call& call) { call.size = 8; });
  refused([](World&, paceline_optim_device_call& call) { call.device = -1; });
  refused([](World&, paceline_optim_device_call& call) { --call.table_bytes; });
  refused([](World&, paceline_optim_device_call& call) {
    call.table = static_cast<std::byte*>(call.table) + 8;
  });
  refused([](World&, paceline_optim_device_call& call) { call.max_grad_norm = std::nan(""); });
  refused([](World&, paceline_optim_device_call& call) { call.max_grad_norm = -1; });
  refused([](World&, paceline_optim_device_call& call) { call.tensors = nullptr; });
  refused([](World& world, paceline_optim_device_call&) { world.groups[0].kind = 7; });
  refused([](World& world, paceline_optim_device_call&) { world.groups.clear(); });
  CHECK_EQ(paceline_optim_device_step(nullptr), PACELINE_EINVAL);
}

CASE(device_an_empty_table_still_counts_steps_and_has_a_norm_of_0) {
  FakeCuda cuda;
  CHECK(opens(cuda));
  World world({{0}, {0}});
  world.groups[0] = group_of(PACELINE_OPTIM_ADAM, 0);
  Device device(world);
  double norm = -1;
  device.call().norm_out = &norm;
  for (int i = 0; i < 2; ++i) CHECK_EQ(device.step(), PACELINE_OK);
  CHECK_EQ(norm, 0.0);
  CHECK_EQ(world.all[1].step, 2.0F);
}

}  // namespace device_cases
