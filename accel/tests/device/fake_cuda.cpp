// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 without a GPU: the functions that paceline uses, each call written down, and
// kernels run by cuda_shim.hpp, whole grids of them, on memory of the process. Tests load it before
// the library looks for the driver, and then find it under its name.
//
// Streams that it makes have a thread each, which does what they were given one after another, each
// a little later: what does not wait for an event, or for a call of the host, comes too early and
// is seen. Other streams do it at once. Memory of a device is a memory file, which processes open
// by its handle as they do with CUDA IPC, and RDMA devices (rdma/fake_verbs.cpp) by a descriptor;
// what such a device writes is seen after a flush, unless "write ordering" says otherwise.
// fake_cuda_counts() says what is there still. What the real one refuses is refused: calls before
// cuInit, without a current context, or out of a function that a stream calls, and flags and sizes
// that mean nothing.
//
// fake_cuda_log() answers the calls so far, a line each, and "landed" for each call of the host
// that a stream has come to. fake_cuda_set(name, value) sets "version", "major", "minor",
// "devices", "rdma supported", "flush options", "write ordering", "dma-buf supported", or by the
// name of a function what that function answers; "refused launch" n: the n-th launch from now on
// fails; "dry" leaves the kernels out; "late kernels" 1: streams come to no kernel before it is 0;
// "captured elsewhere" 1: another thread captures a graph, which forbids flushes, questions, and to
// make and free memory, to threads that are not in relaxed mode. fake_cuda_uneven() says whether a
// block's threads came to different numbers of barriers.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_shim.hpp"
#include "stream.hpp"
// After what they are compiled with.
#include "../../src/comm/coding_device/coding.cu"
#include "../../src/comm/device/comm.cu"
#include "../../src/optim/device/optim.cu"

#define FAKE extern "C" __attribute__((visibility("default")))

namespace {

namespace coding = paceline::comm::coding_device;
namespace optim = paceline::optim::device;
namespace comm = paceline::comm::device;
using paceline::device_test::Event;
using paceline::device_test::Stream;

struct Memory {
  std::size_t bytes = 0;
  int file = -1;  // -1: another process's
};

struct State {
  std::recursive_mutex mutex;
  std::ostringstream log;
  std::map<std::string, int> values{
      {"version", 13000},   {"major", 9},          {"minor", 0},
      {"devices", 64},      {"peers", 1},          {"rdma supported", 1},
      {"flush options", 1}, {"write ordering", 0}, {"dma-buf supported", 1}};
  // What an RDMA device has written, and nobody has flushed.
  std::vector<std::pair<void*, std::string>> written;
  bool uneven = false;
  std::set<Stream*> streams;
  std::map<unsigned long long, Memory> memories;
  int events = 0;
  int host_blocks = 0;
};

thread_local int contexts = 0;           // pushed by this thread
thread_local int capture_mode = 0;       // CUstreamCaptureMode; 2: relaxed
thread_local bool in_host_call = false;  // a stream's

enum : int {
  kInvalidValue = 1,
  kNotInitialized = 3,
  kNoContext = 201,
  kNotPermitted = 800,
  kCaptured = 900
};

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
  if (in_host_call) return kNotPermitted;
  const int answer = note(name, words...);
  return told("initialized") != 0 ? answer : kNotInitialized;
}

// One that belongs to the current context.
template <typename... Words>
int call(const char* name, const Words&... words) {
  const int answer = free_call(name, words...);
  return answer == 0 && contexts == 0 ? kNoContext : answer;
}

// Unsafe while a thread captures in the mode that forbids such calls to all.
template <typename... Words>
int unsafe_call(const char* name, const Words&... words) {
  const int answer = call(name, words...);
  return answer == 0 && told("captured elsewhere") != 0 && capture_mode != 2 ? kCaptured : answer;
}

// A kernel of any module: each has one parameter, a structure of its own, by value.
struct Named {
  const char* name;
  void (*run)(const void* parameter);
  // taken at the launch, as a driver does
  std::shared_ptr<const void> (*copy)(const void* parameter);
};

template <typename Parameter, void (*kernel)(const Parameter)>
constexpr Named named(const char* name) {
  return {name, [](const void* parameter) { kernel(*static_cast<const Parameter*>(parameter)); },
          [](const void* parameter) -> std::shared_ptr<const void> {
            return std::make_shared<const Parameter>(*static_cast<const Parameter*>(parameter));
          }};
}

const Named kKernels[] = {
    named<coding::Launch, coding::paceline_coding_encode_halves>("paceline_coding_encode_halves"),
    named<coding::Launch, coding::paceline_coding_encode_int8>("paceline_coding_encode_int8"),
    named<coding::Launch, coding::paceline_coding_encode_signs>("paceline_coding_encode_signs"),
    named<coding::Launch, coding::paceline_coding_decode_halves>("paceline_coding_decode_halves"),
    named<coding::Launch, coding::paceline_coding_decode_int8>("paceline_coding_decode_int8"),
    named<coding::Launch, coding::paceline_coding_decode_signs>("paceline_coding_decode_signs"),
    named<optim::Launch, optim::paceline_optim_norm>("paceline_optim_norm"),
    named<optim::Launch, optim::paceline_optim_layers>("paceline_optim_layers"),
    named<optim::Launch, optim::paceline_optim_update>("paceline_optim_update"),
    named<comm::SumLaunch, comm::paceline_comm_sum>("paceline_comm_sum")};

constexpr int kThreads = 256;  // of every block of every module

// Blocks in an order that no kernel may count on.
void run_grid(const Named& kernel, unsigned blocks, unsigned threads, const void* parameter) {
  // Shared memory and what a block is told are one for the process; so are the fibers, which a
  // sanitizer takes its time to make.
  static std::mutex one_grid;
  const std::lock_guard lock(one_grid);
  static auto& fibers = *new paceline::device_test::Fibers(kThreads);
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

// In a stream of ours, or at once.
void in(void* stream, std::function<void()> one) {
  {
    const std::lock_guard lock(state().mutex);
    auto* const ours = static_cast<Stream*>(stream);
    if (state().streams.contains(ours)) return ours->add(std::move(one));
  }
  one();
}

unsigned long long map_memory(int file, std::size_t bytes, bool own) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return 0;
  const auto address = reinterpret_cast<unsigned long long>(at);
  const std::lock_guard lock(state().mutex);
  state().memories[address] = {bytes, own ? file : -1};
  return address;
}

int unmap_memory(unsigned long long address, bool own) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().memories.find(address);
  if (found == state().memories.end() || (found->second.file >= 0) != own) return 1;
  ::munmap(reinterpret_cast<void*>(address), found->second.bytes);
  if (own) ::close(found->second.file);
  state().memories.erase(found);
  return 0;
}

// CUipcMemHandle: whose file it is.
struct Handle {
  int process;
  int file;
  std::size_t bytes;
  char rest[48];
};
static_assert(sizeof(Handle) == 64);

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
// Allocations, mappings of others', streams, events and blocks of pinned memory.
FAKE int fake_cuda_counts() {
  const std::lock_guard lock(state().mutex);
  return static_cast<int>(state().memories.size() + state().streams.size()) + state().events +
         state().host_blocks;
}
// Until a stream has done what it was given so far.
FAKE void fake_cuda_finish(void* stream) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  in(stream, [&] {
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}
FAKE void fake_cuda_hang(void* stream) {
  in(stream, [] {
    for (;;) ::pause();
  });
}
// Writes into memory when a stream comes to it.
FAKE void fake_cuda_write(void* stream, void* to, const void* from, std::size_t bytes) {
  in(stream, [=, content = std::string(static_cast<const char*>(from), bytes)] {
    ::usleep(2000);
    if (bytes > 0) std::memcpy(to, content.data(), bytes);
  });
}
FAKE int fake_cuda_uneven() { return state().uneven ? 1 : 0; }

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
  static const std::map<int, const char*> names{
      {75, "major"},          {76, "minor"},           {116, "rdma supported"},
      {117, "flush options"}, {118, "write ordering"}, {124, "dma-buf supported"}};
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
  if (in_host_call) return kNotPermitted;
  if (context == nullptr) return kNoContext;
  ++contexts;
  return 0;
}

FAKE int cuCtxPopCurrent_v2(void**) {
  if (in_host_call) return kNotPermitted;
  if (contexts == 0) return kNoContext;
  --contexts;
  return 0;
}

FAKE int cuModuleLoadData(void** module, const void* image) {
  *module = const_cast<void*>(image);
  return unsafe_call("cuModuleLoadData", std::string(static_cast<const char*>(image), 8));
}

FAKE int cuModuleGetFunction(void** function, void*, const char* name) {
  if (contexts == 0) return kNoContext;
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
  const int answer = call("cuLaunchKernel", kernel.name, blocks, threads, "stream",
                          reinterpret_cast<std::uintptr_t>(stream), "contexts", contexts);
  if (answer != 0) return answer;
  {
    const std::lock_guard lock(state().mutex);
    if (int& left = state().values["refused launch"]; left > 0 && --left == 0) return 1;
  }
  if (blocks == 0 || blocks > 0x7fffffff || threads == 0 || threads > 1024) return kInvalidValue;
  if (shared != 0 || extra != nullptr) return kInvalidValue;
  if (told("dry") != 0) return 0;
  in(stream, [&kernel, blocks, threads, parameter = kernel.copy(parameters[0])] {
    while (told("late kernels") != 0) ::usleep(500);
    run_grid(kernel, blocks, threads, parameter.get());
  });
  return 0;
}

FAKE int cuDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0",
                static_cast<unsigned>(device) + 16);
  return free_call("cuDeviceGetPCIBusId", device);
}

FAKE int cuDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned bus = 0;
  if (std::sscanf(text, "0000:%02x:00.0", &bus) != 1) return 1;
  *device = static_cast<int>(bus) - 16;
  return free_call("cuDeviceGetByPCIBusId", text);
}

FAKE int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  {
    const std::lock_guard lock(state().mutex);
    *can = state().values["peers"];
  }
  return free_call("cuDeviceCanAccessPeer", device, peer);
}

FAKE int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  if (const int answer = unsafe_call("cuMemAlloc", bytes); answer != 0) return answer;
  if (bytes == 0) return kInvalidValue;
  const int file = ::memfd_create("fake-cuda", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return 2;
  *address = map_memory(file, bytes, true);
  return *address != 0 ? 0 : 2;
}

// Memory is freed when all streams have done what they were given, whoever made them.
void finish_all() {
  std::set<Stream*> streams;
  {
    const std::lock_guard lock(state().mutex);
    streams = state().streams;
  }
  for (Stream* const stream : streams) fake_cuda_finish(stream);
}

FAKE int cuMemFree_v2(unsigned long long address) {
  if (const int answer = unsafe_call("cuMemFree"); answer != 0) return answer;
  finish_all();
  return unmap_memory(address, true);
}

FAKE int cuMemGetHandleForAddressRange(void* handle, unsigned long long address, std::size_t bytes,
                                       int type, unsigned long long flags) {
  if (const int answer = call("cuMemGetHandleForAddressRange", bytes, type); answer != 0)
    return answer;
  if (type != 1 || flags != 0) return kInvalidValue;
  const std::lock_guard lock(state().mutex);
  const auto found = state().memories.find(address);
  if (found == state().memories.end() || found->second.file < 0 || found->second.bytes != bytes)
    return 1;
  *static_cast<int*>(handle) = ::fcntl(found->second.file, F_DUPFD_CLOEXEC, 0);
  return 0;
}

FAKE int cuFlushGPUDirectRDMAWrites(int target, int scope) {
  if (const int answer =
          unsafe_call("cuFlushGPUDirectRDMAWrites", target, scope, "contexts", contexts);
      answer != 0)
    return answer;
  const std::lock_guard lock(state().mutex);
  for (const auto& [to, content] : state().written) std::memcpy(to, content.data(), content.size());
  state().written.clear();
  return 0;
}

FAKE int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (in_host_call || *mode < 0 || *mode > 2) return in_host_call ? kNotPermitted : kInvalidValue;
  std::swap(*mode, capture_mode);
  return free_call("cuThreadExchangeStreamCaptureMode", capture_mode);
}

// Whether it is memory of a device of this process.
FAKE int fake_cuda_has(unsigned long long address) {
  const std::lock_guard lock(state().mutex);
  const auto after = state().memories.upper_bound(address);
  return after != state().memories.begin() &&
         address < std::prev(after)->first + std::prev(after)->second.bytes;
}

// As an RDMA device does.
FAKE void fake_cuda_rdma_write(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (state().values["write ordering"] > 0) {
    std::memcpy(to, from, bytes);
  } else {
    state().written.emplace_back(to, std::string(static_cast<const char*>(from), bytes));
  }
}

FAKE int cuMemHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  if (const int answer = unsafe_call("cuMemHostAlloc", bytes, flags); answer != 0) return answer;
  if (bytes == 0 || flags > 7) return kInvalidValue;
  const std::lock_guard lock(state().mutex);
  ++state().host_blocks;
  *memory = ::operator new(bytes);
  return 0;
}

FAKE int cuMemFreeHost(void* memory) {
  if (const int answer = unsafe_call("cuMemFreeHost"); answer != 0) return answer;
  finish_all();
  const std::lock_guard lock(state().mutex);
  --state().host_blocks;
  ::operator delete(memory);
  return 0;
}

FAKE int cuIpcGetMemHandle(Handle* handle, unsigned long long address) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().memories.find(address);
  if (found == state().memories.end() || found->second.file < 0) return kInvalidValue;
  *handle = {::getpid(), found->second.file, found->second.bytes, {}};
  return call("cuIpcGetMemHandle");
}

FAKE int cuIpcOpenMemHandle_v2(unsigned long long* address, Handle handle, unsigned flags) {
  if (const int answer = call("cuIpcOpenMemHandle", "flags", flags); answer != 0) return answer;
  if (flags != 1) return kInvalidValue;
  // As CUDA has it: memory of this process needs no handle.
  if (handle.process == ::getpid()) return kNoContext;
  const std::string path =
      "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return 1;
  *address = map_memory(file, handle.bytes, false);
  ::close(file);
  return *address != 0 ? 0 : 1;
}

FAKE int cuIpcCloseMemHandle(unsigned long long address) {
  if (const int answer = call("cuIpcCloseMemHandle"); answer != 0) return answer;
  return unmap_memory(address, false);
}

FAKE int cuMemcpyAsync(unsigned long long to, unsigned long long from, std::size_t bytes,
                       void* stream) {
  if (const int answer = call("cuMemcpyAsync", bytes); answer != 0) return answer;
  if (bytes > 0)
    in(stream, [=] {
      std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    });
  return 0;
}

FAKE int cuStreamCreate(void** stream, unsigned flags) {
  if (const int answer = call("cuStreamCreate"); answer != 0) return answer;
  if (flags > 1) return kInvalidValue;
  auto* const made = new Stream;
  const std::lock_guard lock(state().mutex);
  state().streams.insert(made);
  *stream = made;
  return 0;
}

FAKE int cuStreamDestroy_v2(void* stream) {
  if (const int answer = call("cuStreamDestroy"); answer != 0) return answer;
  auto* const ours = static_cast<Stream*>(stream);
  {
    const std::lock_guard lock(state().mutex);
    if (state().streams.erase(ours) == 0) return 400;
  }
  delete ours;
  return 0;
}

FAKE int cuStreamIsCapturing(void*, int* status) {
  const std::lock_guard lock(state().mutex);
  *status = state().values["capturing"];
  return call("cuStreamIsCapturing");
}

FAKE int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  if (const int answer = call("cuLaunchHostFunc"); answer != 0) return answer;
  in(stream, [=] {
    in_host_call = true;
    function(data);
    in_host_call = false;
    note("landed");
  });
  return 0;
}

FAKE int cuEventCreate(void** event, unsigned flags) {
  if (const int answer = call("cuEventCreate"); answer != 0) return answer;
  if (flags > 7) return kInvalidValue;
  const std::lock_guard lock(state().mutex);
  ++state().events;
  *event = new std::shared_ptr<Event>(std::make_shared<Event>());
  return 0;
}

FAKE int cuEventDestroy_v2(void* event) {
  if (const int answer = call("cuEventDestroy"); answer != 0) return answer;
  const std::lock_guard lock(state().mutex);
  --state().events;
  delete static_cast<std::shared_ptr<Event>*>(event);
  return 0;
}

FAKE int cuEventRecord(void* event, void* stream) {
  if (const int answer = call("cuEventRecord"); answer != 0) return answer;
  const std::shared_ptr<Event> it = *static_cast<std::shared_ptr<Event>*>(event);
  unsigned number = 0;
  {
    const std::lock_guard lock(it->mutex);
    number = ++it->recorded;
  }
  in(stream, [it, number] {
    const std::lock_guard lock(it->mutex);
    it->reached = std::max(it->reached, number);
    it->changed.notify_all();
  });
  return 0;
}

FAKE int cuEventQuery(void* event) {
  if (const int answer = unsafe_call("cuEventQuery"); answer != 0) return answer;
  const std::shared_ptr<Event> it = *static_cast<std::shared_ptr<Event>*>(event);
  const std::lock_guard lock(it->mutex);
  return it->reached == it->recorded ? 0 : 600;
}

// For the record that was the last one when this was called.
FAKE int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  if (const int answer = call("cuStreamWaitEvent"); answer != 0) return answer;
  if (flags > 1) return kInvalidValue;
  const std::shared_ptr<Event> it = *static_cast<std::shared_ptr<Event>*>(event);
  unsigned number = 0;
  {
    const std::lock_guard lock(it->mutex);
    number = it->recorded;
  }
  in(stream, [it, number] {
    std::unique_lock lock(it->mutex);
    it->changed.wait(lock, [&] { return it->reached >= number; });
  });
  return 0;
}
