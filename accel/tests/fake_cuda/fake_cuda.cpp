// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 without a GPU: the functions that paceline uses. It records each call. A launch
// runs the whole grid at once by cuda_shim.hpp, on memory of the process. Tests load it before the
// library looks for the driver, so the library finds it under the driver's name. It refuses what
// the real driver refuses: calls before cuInit or without a current context, and bad flags and
// sizes.
//
// What tests ask of it:
// - fake_cuda_log() returns the calls so far, a line each.
// - fake_cuda_uneven() tells whether threads of one block came to different numbers of barriers.
// - fake_cuda_wide() tells how often kernels read or wrote several elements at once.
//
// The names that fake_cuda_set(name, value) takes:
// - "version", "major", "minor" and "devices" set what the driver reports.
// - The name of a function sets what that function returns.
// - "refused launch": the launch with this number from now on fails.
// - "dry": kernels do not run.
// - "captured elsewhere": if 1, another thread captures a graph, which forbids loading a module to
//   threads that are not in relaxed mode.
// Streams and events, and the names that they take, are in events.hpp.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cuda_shim.hpp"
#include "warp_shim.hpp"
// After what they are compiled with.
#include "../../src/ops/device/attention.cu"
#include "../../src/ops/device/fcos3d.cu"
#include "../../src/ops/device/simota.cu"
#include "../../src/optim/device/optim.cu"

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

namespace ops = paceline::ops::device;
namespace optim = paceline::optim::device;

struct State {
  std::recursive_mutex mutex;
  std::ostringstream log;
  std::map<std::string, int> values{
      {"version", 13000}, {"major", 9}, {"minor", 0}, {"devices", 64}};
  bool uneven = false;
};

thread_local std::vector<void*> context_stack;  // pushed by this thread
thread_local int capture_mode = 0;              // CUstreamCaptureMode; 2: relaxed

enum : int { kInvalidValue = 1, kNotInitialized = 3, kNoContext = 201, kCaptured = 900 };

State& state() {
  static State all;
  return all;
}

int told(const char* name) {
  const std::lock_guard lock(state().mutex);
  return state().values[name];
}

// Writes it down, and answers what it was told to.
template <typename... Words>
int note(const char* name, const Words&... words) {
  const std::lock_guard lock(state().mutex);
  state().log << name;
  ((state().log << ' ' << words), ...);
  state().log << '\n';
  const auto told = state().values.find(name);
  return told == state().values.end() ? 0 : told->second;
}

// A call that belongs to no context.
template <typename... Words>
int free_call(const char* name, const Words&... words) {
  const int answer = note(name, words...);
  return told("initialized") != 0 ? answer : kNotInitialized;
}

// One that belongs to the current context.
template <typename... Words>
int call(const char* name, const Words&... words) {
  const int answer = free_call(name, words...);
  return answer == 0 && context_stack.empty() ? kNoContext : answer;
}

// A kernel of any module: each has one parameter, a structure of its own, by value.
struct Named {
  const char* name;
  unsigned threads;  // of a block
  void (*run)(const void* parameter);
};

template <typename Parameter, void (*kernel)(const Parameter)>
constexpr Named named(const char* name, unsigned threads) {
  return {name, threads,
          [](const void* parameter) { kernel(*static_cast<const Parameter*>(parameter)); }};
}

const Named kKernels[] = {
    named<ops::Attention, ops::paceline_attention_forward>("paceline_attention_forward",
                                                           ops::kAttentionThreads),
    named<ops::Attention, ops::paceline_attention_backward>("paceline_attention_backward",
                                                            ops::kAttentionThreads),
    named<ops::Attention, ops::paceline_attention_bias>("paceline_attention_bias",
                                                        ops::kAttentionThreads),
    named<ops::Attention, ops::paceline_attention_table>("paceline_attention_table",
                                                         ops::kAttentionThreads),
    named<ops::Targets, ops::paceline_fcos3d_targets>("paceline_fcos3d_targets",
                                                      ops::kTargetThreads),
    named<ops::Assignment, ops::paceline_simota_priors>("paceline_simota_priors",
                                                        ops::kTargetThreads),
    named<ops::Assignment, ops::paceline_simota_match>("paceline_simota_match",
                                                       ops::kTargetThreads),
    named<ops::Assignment, ops::paceline_simota_write>("paceline_simota_write",
                                                       ops::kTargetThreads),
    named<optim::Launch, optim::paceline_optim_norm>("paceline_optim_norm", optim::kThreads),
    named<optim::Launch, optim::paceline_optim_layers>("paceline_optim_layers", optim::kThreads),
    named<optim::Launch, optim::paceline_optim_update>("paceline_optim_update", optim::kThreads)};

// Blocks in an order that no kernel may count on.
void run_grid(const Named& kernel, unsigned blocks, unsigned threads, const void* parameter) {
  // Shared memory and what a block is told are one for the process; so are the fibers, which a
  // sanitizer takes its time to make.
  static std::mutex one_grid;
  const std::lock_guard lock(one_grid);
  static auto& made = *new std::map<unsigned, paceline::device_test::Fibers>;
  auto& fibers = made.try_emplace(kernel.threads, static_cast<int>(kernel.threads)).first->second;
  static std::mt19937 random(11);
  std::vector<unsigned> order(blocks);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), random);
  gridDim.x = blocks;
  for (const unsigned block : order) {
    blockIdx.x = block;
    const bool even = fibers.run([&](int thread) {
      threadIdx.x = static_cast<unsigned>(thread);
      kernel.run(parameter);
    });
    state().uneven = state().uneven || !even;
  }
  state().uneven = state().uneven || threads != kernel.threads;
}

}  // namespace

FAKE const char* fake_cuda_log() {
  const std::lock_guard lock(state().mutex);
  static std::string text;
  text = state().log.str();
  return text.c_str();
}
FAKE void fake_cuda_forget() {
  const std::lock_guard lock(state().mutex);
  state().log.str({});
}
FAKE void fake_cuda_set(const char* name, int value) {
  const std::lock_guard lock(state().mutex);
  state().values[name] = value;
}
FAKE int fake_cuda_value(const char* name) { return told(name); }
FAKE int fake_cuda_uneven() { return state().uneven ? 1 : 0; }

FAKE long fake_cuda_wide() { return WideAccess::count; }

FAKE int cuInit(unsigned flags) {
  const int answer = note("cuInit");
  fake_cuda_set("initialized", 1);
  return answer == 0 && flags != 0 ? kInvalidValue : answer;
}

FAKE int cuDriverGetVersion(int* version) {
  *version = state().values["version"];
  return 0;
}

FAKE int cuGetErrorName(int status, const char** name) {
  *name = status == 1     ? "CUDA_ERROR_INVALID_VALUE"
          : status == 201 ? "CUDA_ERROR_INVALID_CONTEXT"
          : status == 200 ? "CUDA_ERROR_INVALID_IMAGE"
          : status == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
                          : nullptr;
  return *name != nullptr ? 0 : 1;
}

FAKE int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  const int answer = free_call("cuDeviceGet", ordinal);
  return answer != 0 || ordinal < state().values["devices"] ? answer : 101;
}

FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  static const std::map<int, const char*> names{{75, "major"}, {76, "minor"}};
  const std::lock_guard lock(state().mutex);
  const auto name = names.find(attribute);
  *value = name == names.end() ? -1 : state().values[name->second];
  return 0;
}

FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(device + 1));
  return free_call("cuDevicePrimaryCtxRetain", device);
}

FAKE int cuCtxPushCurrent_v2(void* context) {
  if (context == nullptr) return kNoContext;
  context_stack.push_back(context);
  return 0;
}

FAKE int cuCtxPopCurrent_v2(void** context) {
  if (context_stack.empty()) return kNoContext;
  *context = context_stack.back();
  context_stack.pop_back();
  return 0;
}

FAKE int cuModuleLoadData(void** module, const void* image) {
  *module = const_cast<void*>(image);
  const int answer = call("cuModuleLoadData", std::string(static_cast<const char*>(image), 8));
  return answer == 0 && told("captured elsewhere") != 0 && capture_mode != 2 ? kCaptured : answer;
}

FAKE int cuModuleGetFunction(void** function, void*, const char* name) {
  if (context_stack.empty()) return kNoContext;
  for (const Named& kernel : kKernels) {
    if (std::strcmp(kernel.name, name) == 0) {
      *function = const_cast<Named*>(&kernel);
      return 0;
    }
  }
  return 500;
}

FAKE int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads,
                        unsigned, unsigned, unsigned shared, void* stream, void** parameters,
                        void** extra) {
  const auto& kernel = *static_cast<const Named*>(function);
  const int answer =
      call("cuLaunchKernel", kernel.name, blocks, threads, "stream",
           reinterpret_cast<std::uintptr_t>(stream), "contexts", context_stack.size());
  if (answer != 0) return answer;
  {
    const std::lock_guard lock(state().mutex);
    if (int& left = state().values["refused launch"]; left > 0 && --left == 0) return 1;
  }
  if (blocks == 0 || blocks > 0x7fffffff || threads == 0 || threads > 1024) return kInvalidValue;
  if (shared != 0 || extra != nullptr) return kInvalidValue;
  if (told("dry") != 0) return 0;
  run_grid(kernel, blocks, threads, parameters[0]);
  return 0;
}

FAKE int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (*mode < 0 || *mode > 2) return kInvalidValue;
  std::swap(*mode, capture_mode);
  return free_call("cuThreadExchangeStreamCaptureMode", capture_mode);
}

#include "events.hpp"
