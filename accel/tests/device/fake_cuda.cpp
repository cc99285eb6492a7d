// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 without a GPU: the functions that paceline uses, each call written down, and kernels run by cuda_shim.hpp, whole grids
// of them, on memory of the process. Tests load it before the library looks for the driver, and then find it under its name.
//
// fake_cuda_log() answers the calls so far, a line each. fake_cuda_set(name, value) sets "version", "major", "minor", "devices", or by the name of
// a function what that function answers; "dry" leaves the kernels out. fake_cuda_uneven() says whether a block's threads came to different numbers of barriers.
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <sstream>
#include <string>

#include "cuda_shim.hpp"
// After what they are compiled with.
#include "../../src/comm/coding_device/coding.cu"
#include "../../src/optim/device/optim.cu"

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

namespace coding = paceline::comm::coding_device;
namespace optim = paceline::optim::device;

struct State {
  std::ostringstream log;
  std::map<std::string, int> values{{"version", 13000}, {"major", 9}, {"minor", 0}, {"devices", 64}};
  int contexts = 0;
  bool uneven = false;
};

State& state() {
  static State all;
  return all;
}

// Writes the call down, and answers what it was told to.
template <typename... Words>
int call(const char* name, const Words&... words) {
  state().log << name;
  ((state().log << ' ' << words), ...);
  state().log << '\n';
  const auto told = state().values.find(name);
  return told == state().values.end() ? 0 : told->second;
}

// A kernel of any module: each has one parameter, a structure of its own, by value.
struct Named {
  const char* name;
  void (*run)(const void* parameter);
};

template <typename Parameter, void (*kernel)(const Parameter)>
constexpr Named named(const char* name) {
  return {name, [](const void* parameter) { kernel(*static_cast<const Parameter*>(parameter)); }};
}

const Named kKernels[] = {named<coding::Launch, coding::paceline_coding_encode_halves>("paceline_coding_encode_halves"),
                          named<coding::Launch, coding::paceline_coding_encode_int8>("paceline_coding_encode_int8"),
                          named<coding::Launch, coding::paceline_coding_encode_signs>("paceline_coding_encode_signs"),
                          named<coding::Launch, coding::paceline_coding_decode_halves>("paceline_coding_decode_halves"),
                          named<coding::Launch, coding::paceline_coding_decode_int8>("paceline_coding_decode_int8"),
                          named<coding::Launch, coding::paceline_coding_decode_signs>("paceline_coding_decode_signs"),
                          named<optim::Launch, optim::paceline_optim_norm>("paceline_optim_norm"),
                          named<optim::Launch, optim::paceline_optim_layers>("paceline_optim_layers"),
                          named<optim::Launch, optim::paceline_optim_update>("paceline_optim_update")};

constexpr int kThreads = 256;  // of every block of every module

// Blocks in an order that no kernel may count on.
void run_grid(const Named& kernel, unsigned blocks, unsigned threads, const void* parameter) {
  static paceline::device_test::Fibers fibers(kThreads);
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
  state().uneven = state().uneven || threads != static_cast<unsigned>(kThreads);
}

}  // namespace

FAKE const char* fake_cuda_log() {
  static std::string text;
  text = state().log.str();
  return text.c_str();
}
FAKE void fake_cuda_forget() { state().log.str({}); }
FAKE void fake_cuda_set(const char* name, int value) { state().values[name] = value; }
FAKE int fake_cuda_uneven() { return state().uneven ? 1 : 0; }

FAKE int cuInit(unsigned) { return call("cuInit"); }

FAKE int cuDriverGetVersion(int* version) {
  *version = state().values["version"];
  return 0;
}

FAKE int cuGetErrorName(int status, const char** name) {
  *name = status == 1 ? "CUDA_ERROR_INVALID_VALUE" : status == 200 ? "CUDA_ERROR_INVALID_IMAGE" : nullptr;
  return *name != nullptr ? 0 : 1;
}

FAKE int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  const int answer = call("cuDeviceGet", ordinal);
  return answer != 0 || ordinal < state().values["devices"] ? answer : 101;
}

FAKE int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? state().values["major"] : attribute == 76 ? state().values["minor"] : -1;
  return 0;
}

FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(device + 1));
  return call("cuDevicePrimaryCtxRetain", device);
}

FAKE int cuCtxPushCurrent_v2(void*) {
  ++state().contexts;
  return 0;
}

FAKE int cuCtxPopCurrent_v2(void**) {
  --state().contexts;
  return 0;
}

FAKE int cuModuleLoadData(void** module, const void* image) {
  *module = const_cast<void*>(image);
  return call("cuModuleLoadData", std::string(static_cast<const char*>(image), 8));
}

FAKE int cuModuleGetFunction(void** function, void*, const char* name) {
  for (const Named& kernel : kKernels) {
    if (std::strcmp(kernel.name, name) == 0) {
      *function = const_cast<Named*>(&kernel);
      return 0;
    }
  }
  return 500;
}

FAKE int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                        unsigned shared, void* stream, void** parameters, void** extra) {
  const auto& kernel = *static_cast<const Named*>(function);
  const int answer = call("cuLaunchKernel", kernel.name, blocks, threads, "stream",
                          reinterpret_cast<std::uintptr_t>(stream), "contexts", state().contexts);
  if (answer != 0) return answer;
  if (shared != 0 || extra != nullptr) return 1;
  if (state().values["dry"] != 0) return 0;
  run_grid(kernel, blocks, threads, parameters[0]);
  return 0;
}
