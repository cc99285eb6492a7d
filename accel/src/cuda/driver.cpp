// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <type_traits>

namespace paceline::cuda {
namespace {

constexpr int kCapabilityMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kCapabilityMinor = 76;
constexpr int kOldestMajor = 12;  // oldest major version of CUDA that has modules
constexpr int kNewestMajor = 13;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Returns an empty vector if the file is missing or cannot be read.
std::vector<char> read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rbe"));
  std::vector<char> content;
  if (file == nullptr) return content;
  std::array<char, 65536> part;
  for (std::size_t got = 0; (got = std::fread(part.data(), 1, part.size(), file.get())) > 0;)
    content.insert(content.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(got));
  if (std::ferror(file.get()) != 0) content.clear();
  return content;
}

// Returns the architecture whose code runs on a device of this major capability, or an empty
// string. Code runs on devices of the same major capability and of its own minor one or above.
std::string architecture_of(int major) {
  switch (major) {
    case 8: return "sm_80";
    case 9: return "sm_90";
    case 10: return "sm_100";
    default: return {};
  }
}

}  // namespace

std::string Driver::load() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string("no driver: ") + ::dlerror();
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    void* symbol = ::dlsym(library, name);
    if (symbol == nullptr && missing.empty()) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(init_, "cuInit");
  find(version_get_, "cuDriverGetVersion");
  find(error_name_, "cuGetErrorName");
  find(device_get, "cuDeviceGet");
  find(device_get_attribute, "cuDeviceGetAttribute");
  find(context_retain, "cuDevicePrimaryCtxRetain");
  find(context_push, "cuCtxPushCurrent_v2");
  find(context_pop, "cuCtxPopCurrent_v2");
  find(module_load, "cuModuleLoadData");
  find(module_function, "cuModuleGetFunction");
  find(launch, "cuLaunchKernel");
  find(capture_mode, "cuThreadExchangeStreamCaptureMode");
  find(stream_is_capturing, "cuStreamIsCapturing");
  find(context_current, "cuCtxGetCurrent");
  find(context_device, "cuCtxGetDevice");
  find(device_pci_address, "cuDeviceGetPCIBusId");
  find(event_create, "cuEventCreate");
  find(event_record, "cuEventRecord");
  find(event_query, "cuEventQuery");
  find(event_elapsed, "cuEventElapsedTime");
  if (!missing.empty()) return "libcuda.so.1 has no " + missing;
  if (const int status = init_(0); status != kSuccess) return "cuInit: " + error_name(status);
  if (const int status = version_get_(&version_); status != kSuccess)
    return "cuDriverGetVersion: " + error_name(status);
  return {};
}

std::expected<const Driver*, std::string> Driver::get() {
  struct Loaded {
    Driver driver;
    std::string problem = driver.load();
  };
  static const Loaded loaded;
  if (!loaded.problem.empty()) return std::unexpected(loaded.problem);
  return &loaded.driver;
}

std::string Driver::error_name(int status) const {
  const char* name = nullptr;
  if (error_name_(status, &name) != kSuccess || name == nullptr)
    return "error " + std::to_string(status);
  return name;
}

namespace {

struct FoundModule {
  int device = 0;
  std::string module_name;
  std::vector<char> image;
};

// Finds the module of this name for a device.
std::expected<FoundModule, std::string> find_module(const Driver& cuda, int ordinal,
                                                    std::string_view folder,
                                                    std::string_view name) {
  const auto problem = [&](const char* call, int status) {
    return std::unexpected(std::string(call) + ": " + cuda.error_name(status));
  };
  FoundModule found;
  int major = 0;
  int minor = 0;
  if (const int status = cuda.device_get(&found.device, ordinal); status != kSuccess)
    return problem("cuDeviceGet", status);
  if (const int status = cuda.device_get_attribute(&major, kCapabilityMajor, found.device);
      status != kSuccess)
    return problem("cuDeviceGetAttribute", status);
  if (const int status = cuda.device_get_attribute(&minor, kCapabilityMinor, found.device);
      status != kSuccess)
    return problem("cuDeviceGetAttribute", status);
  const std::string capability = std::to_string(major) + "." + std::to_string(minor);
  const std::string architecture = architecture_of(major);
  if (architecture.empty())
    return std::unexpected("a GPU of compute capability " + capability +
                           ": there is code for 8.x, 9.x and 10.x");
  const int newest = std::min(cuda.version() / 1000, kNewestMajor);
  if (newest < kOldestMajor)
    return std::unexpected("the driver supports CUDA " + std::to_string(cuda.version() / 1000) +
                           " only: install one for CUDA 12 or later");
  std::string tried;
  for (int cuda_major = newest; cuda_major >= kOldestMajor && found.image.empty(); --cuda_major) {
    found.module_name =
        std::string(name) + "-cuda" + std::to_string(cuda_major) + "-" + architecture + ".cubin";
    found.image = read_file(std::string(folder) + "/" + found.module_name);
    tried += (tried.empty() ? "" : ", ") + found.module_name;
  }
  if (found.image.empty())
    return std::unexpected("no module in " + std::string(folder) + ": " + tried);
  return found;
}

}  // namespace

std::expected<Kernels, std::string> Kernels::open(int ordinal, std::string_view folder,
                                                  std::string_view name,
                                                  const std::vector<std::string>& functions) {
  const auto driver = Driver::get();
  if (!driver) return std::unexpected(driver.error());
  Kernels kernels;
  const Driver& cuda = *(kernels.driver_ = *driver);
  const auto problem = [&](const char* call, int status) {
    return std::unexpected(std::string(call) + ": " + cuda.error_name(status));
  };
  auto found = find_module(cuda, ordinal, folder, name);
  if (!found) return std::unexpected(found.error());
  kernels.module_name_ = found->module_name;
  if (const int status = cuda.context_retain(&kernels.context_, found->device); status != kSuccess)
    return problem("cuDevicePrimaryCtxRetain", status);
  const Current current = kernels.current();
  Module module = nullptr;
  if (const int status = cuda.module_load(&module, found->image.data()); status != kSuccess)
    return std::unexpected(kernels.module_name_ + ": cuModuleLoadData: " + cuda.error_name(status));
  for (const std::string& wanted : functions) {
    Function function = nullptr;
    if (const int status = cuda.module_function(&function, module, wanted.c_str());
        status != kSuccess)
      return std::unexpected(kernels.module_name_ + ": " + wanted + ": " + cuda.error_name(status));
    kernels.functions_.push_back(function);
  }
  return kernels;
}

int Kernels::launch(std::size_t function, unsigned blocks, unsigned threads, Stream stream,
                    void* parameter) const {
  // The stepping thread may have another current context, or none. So the context is pushed for
  // this call only.
  if (const int status = driver_->context_push(context_); status != kSuccess) return status;
  void* parameters[] = {parameter};
  const int status = driver_->launch(functions_[function], blocks, 1, 1, threads, 1, 1, 0, stream,
                                     parameters, nullptr);
  Context ours = nullptr;
  const int popped = driver_->context_pop(&ours);
  return status != kSuccess ? status : popped;
}

}  // namespace paceline::cuda
