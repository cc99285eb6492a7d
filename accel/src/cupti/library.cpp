// SPDX-License-Identifier: Apache-2.0
#include "library.hpp"

#include <dlfcn.h>

#include <array>
#include <type_traits>

namespace paceline::cupti {
namespace {

constexpr int kNewestMajor = 14;
constexpr int kOldestMajor = 12;

void* opened(const std::string& name, int flags) {
  return ::dlopen(name.c_str(), flags | RTLD_LAZY | RTLD_LOCAL);
}

// The copy that PyTorch or another profiler has mapped.
void* mapped() {
  for (int major = kNewestMajor; major >= kOldestMajor; --major) {
    if (void* found = opened("libcupti.so." + std::to_string(major), RTLD_NOLOAD)) return found;
  }
  return opened("libcupti.so", RTLD_NOLOAD);
}

// The major version of CUDA that the driver supports, 0 without a driver.
int driver_major() {
  void* driver = opened("libcuda.so.1", RTLD_NOLOAD);
  if (driver == nullptr) return 0;
  const auto get = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDriverGetVersion"));
  int version = 0;
  return get != nullptr && get(&version) == 0 ? version / 1000 : 0;
}

void* loaded(int major) {
  const std::string name = "libcupti.so." + std::to_string(major);
  for (const char* folder : {"", "/usr/local/cuda/extras/CUPTI/lib64/", "/usr/local/cuda/lib64/"}) {
    if (void* found = opened(folder + name, 0)) return found;
  }
  return nullptr;
}

}  // namespace

std::expected<Library, std::string> Library::find() {
  void* handle = mapped();
  if (handle == nullptr) {
    const int major = driver_major();
    if (major == 0) return std::unexpected("libcuda.so.1 is not loaded, so CUPTI cannot be chosen");
    handle = loaded(major);
    if (handle == nullptr)
      return std::unexpected("libcupti.so." + std::to_string(major) +
                             " is missing: pip install nvidia-cuda-cupti" +
                             (major == 12 ? "-cu12" : ""));
  }
  Library library;
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    void* symbol = ::dlsym(handle, name);
    if (symbol == nullptr && missing.empty()) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(library.subscribe, "cuptiSubscribe");
  find(library.unsubscribe, "cuptiUnsubscribe");
  find(library.enable, "cuptiActivityEnable");
  find(library.disable, "cuptiActivityDisable");
  find(library.register_callbacks, "cuptiActivityRegisterCallbacks");
  find(library.flush, "cuptiActivityFlushAll");
  find(library.next_record, "cuptiActivityGetNextRecord");
  find(library.dropped_records, "cuptiActivityGetNumDroppedRecords");
  find(library.timestamp, "cuptiGetTimestamp");
  find(library.result_name_, "cuptiGetResultString");
  if (!missing.empty()) return std::unexpected("libcupti has no " + missing);
  find(library.latency_timestamps, "cuptiActivityEnableLatencyTimestamps");
  return library;
}

std::string Library::error_name(int status) const {
  const char* name = nullptr;
  if (result_name_(status, &name) != kSuccess || name == nullptr)
    return "error " + std::to_string(status);
  return name;
}

}  // namespace paceline::cupti
