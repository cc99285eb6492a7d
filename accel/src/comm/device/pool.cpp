// SPDX-License-Identifier: Apache-2.0
#include "pool.hpp"

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "../../cuda/kernel_set.hpp"
#include "table.hpp"

namespace paceline::comm::device {
namespace {

enum PoolKernel : std::size_t { kSum };

constexpr std::size_t kGranule = 2UL << 20;
// Enough loads under way for the memory of another GPU, and most multiprocessors left to the model.
constexpr unsigned kMostBlocks = 64;

static_assert(kFloat32 == static_cast<Bits32>(Type::kF32) &&
              kFloat64 == static_cast<Bits32>(Type::kF64) &&
              kFloat16 == static_cast<Bits32>(Type::kF16) &&
              kBfloat16 == static_cast<Bits32>(Type::kBf16) &&
              kInt32 == static_cast<Bits32>(Type::kI32) &&
              kInt64 == static_cast<Bits32>(Type::kI64));

cuda::KernelSet& comm_kernels() {
  // Until the very end of the process, as what may still be freed then needs them.
  static auto& set = *new cuda::KernelSet("comm", {"paceline_comm_sum"});
  return set;
}

// Streams that results were written in, of each device, which no pool has now. They are never
// destroyed: a framework was told that tensors are used in them, and records an event in them when
// such a tensor is freed, however long after the pool.
class IdleStreams {
 public:
  // Of the process, and there until its very end.
  static IdleStreams& get() {
    static auto& all = *new IdleStreams;
    return all;
  }

  // Null where there is none.
  cuda::Stream take(int device) {
    const std::lock_guard lock(mutex_);
    std::vector<cuda::Stream>& idle = by_device_[device];
    if (idle.empty()) return nullptr;
    const cuda::Stream stream = idle.back();
    idle.pop_back();
    return stream;
  }

  void give_back(int device, cuda::Stream stream) {
    const std::lock_guard lock(mutex_);
    by_device_[device].push_back(stream);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<cuda::Stream>> by_device_;
};

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

std::size_t Pool::room_of(std::size_t bytes) { return rounded_up(bytes + kAlignment, 256); }

std::size_t Pool::allocated(std::size_t bytes) { return rounded_up(bytes, kGranule); }

std::expected<std::unique_ptr<Pool>, std::string> Pool::make(int device, const std::string& folder,
                                                             const Size& size) {
  if (const std::string why = comm_kernels().open(device, folder); !why.empty())
    return std::unexpected(why);
  std::unique_ptr<Pool> pool(new Pool(*comm_kernels().on(device), size));
  if (const std::string why = pool->allocate(); !why.empty()) return std::unexpected(why);
  return pool;
}

std::string Pool::allocate() {
  const cuda::Driver& cuda = driver();
  const cuda::Current current = kernels_.current();
  const auto failed = [&](const char* call, int status) {
    return std::string(call) + ": " + cuda.error_name(status);
  };
  if (const int status =
          cuda.device_pci(pci_.data(), static_cast<int>(pci_.size()), kernels_.device());
      status != cuda::kSuccess)
    return failed("cuDeviceGetPCIBusId", status);
  streams_[kTaking] = IdleStreams::get().take(kernels_.device());
  for (cuda::Stream& stream : streams_) {
    if (stream != nullptr) continue;
    if (const int status = cuda.stream_create(&stream, cuda::kNonBlocking);
        status != cuda::kSuccess)
      return failed("cuStreamCreate", status);
  }
  if (const int status = cuda.event_create(&question_, cuda::kDisableTiming);
      status != cuda::kSuccess)
    return failed("cuEventCreate", status);
  const std::size_t wanted = allocated(kDepth * (size_.chunk + size_.shard));
  if (const int status = cuda.memory_allocate(&base_, wanted); status != cuda::kSuccess)
    return failed("cuMemAlloc", status) + " of " + std::to_string(wanted) + " bytes";
  bytes_ = wanted;
  if (const int status = cuda.ipc_handle(&handle_, base_); status != cuda::kSuccess)
    return failed("cuIpcGetMemHandle", status);
  if (const std::string why =
          allocate_on_host(host_, size_.across_hosts ? kDepth * size_.shard : 0);
      !why.empty())
    return why;
  return allocate_on_host(staging_, kDepth * size_.staging);
}

std::string Pool::allocate_on_host(std::byte*& memory, std::size_t bytes) {
  if (bytes == 0) return {};
  void* made = nullptr;
  if (const int status = driver().host_allocate(&made, bytes, cuda::kHostPortable);
      status != cuda::kSuccess)
    return "cuMemHostAlloc: " + driver().error_name(status) + " of " + std::to_string(bytes) +
           " bytes";
  memory = static_cast<std::byte*>(made);
  return {};
}

Pool::~Pool() {
  const cuda::Current current = kernels_.current();
  unmap();
  const cuda::Stream known = std::exchange(streams_[kTaking], nullptr);
  if (known != nullptr) IdleStreams::get().give_back(kernels_.device(), known);
  for (const cuda::Stream stream : streams_)
    if (stream != nullptr) driver().stream_destroy(stream);
  if (question_ != nullptr) driver().event_destroy(question_);
  if (base_ != 0) driver().memory_free(base_);
  for (const cuda::Address memory : more_) driver().memory_free(memory);
  if (host_ != nullptr) driver().host_free(host_);
  if (staging_ != nullptr) driver().host_free(staging_);
}

std::expected<cuda::Address, std::string> Pool::allocate_more(std::size_t bytes) {
  cuda::Address memory = 0;
  const cuda::Current current = kernels_.current();
  if (const int status = driver().memory_allocate(&memory, bytes); status != cuda::kSuccess)
    return std::unexpected("cuMemAlloc: " + driver().error_name(status) + " of " +
                           std::to_string(bytes) + " bytes");
  more_.push_back(memory);
  more_bytes_ += bytes;
  return memory;
}

void end_by(Clock::time_point deadline, std::unique_ptr<Pool> pool) {
  if (pool == nullptr) return;
  auto ended = std::make_shared<std::promise<void>>();
  const std::future<void> end = ended->get_future();
  Pool* const held = pool.release();
  try {
    std::thread([ended, held] {
      delete held;
      ended->set_value();
    }).detach();
  } catch (const std::system_error&) {
    return;  // no thread is to be had: it stays until the process ends
  }
  end.wait_until(deadline);
}

PoolCard Pool::card() const { return {.memory = handle_, .pci = pci_, .refusal = {}}; }

std::expected<void, std::string> Pool::map(std::span<const PoolCard> cards, std::uint32_t local) {
  const cuda::Driver& cuda = driver();
  const cuda::Current current = kernels_.current();
  local_ = local;
  for (std::uint32_t one = 0; one < cards.size(); ++one) {
    if (one == local) {
      mapped_.push_back(base_);
      continue;
    }
    const auto refused = [&](const std::string& why) {
      return std::unexpected("its GPU " + std::string(pci_.data()) +
                             " cannot read memory of the GPU " + cards[one].pci.data() + ": " +
                             why);
    };
    // A device that this process does not see may be a peer all the same: then the driver's answer
    // to the handle says whether it is.
    int peer = 0;
    int can = 1;
    if (cuda.device_by_pci(&peer, cards[one].pci.data()) == cuda::kSuccess &&
        peer != kernels_.device() &&
        cuda.can_access_peer(&can, kernels_.device(), peer) == cuda::kSuccess && can == 0)
      return refused("they are no peers (nvidia-smi topo -p2p r shows which are)");
    cuda::Address memory = 0;
    if (const int status = cuda.ipc_open(&memory, cards[one].memory, cuda::kLazyPeerAccess);
        status != cuda::kSuccess)
      return refused("cuIpcOpenMemHandle: " + cuda.error_name(status));
    mapped_.push_back(memory);
  }
  return {};
}

void Pool::unmap() {
  const cuda::Current current = kernels_.current();
  for (std::uint32_t one = 0; one < mapped_.size(); ++one)
    if (one != local_) driver().ipc_close(mapped_[one]);
  mapped_.clear();
}

bool Pool::is_idle(Clock::time_point deadline) const {
  const cuda::Current current = kernels_.current();
  for (const cuda::Stream stream : streams_) {
    if (driver().event_record(question_, stream) != cuda::kSuccess) return false;
    int status = driver().event_query(question_);
    for (; status == cuda::kNotReady && Clock::now() < deadline;
         status = driver().event_query(question_))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (status != cuda::kSuccess) return false;
  }
  return true;
}

int Pool::join_ways() const {
  int status = cuda::kSuccess;
  for (const cuda::Stream before : streams_) {
    status = status != cuda::kSuccess ? status : driver().event_record(question_, before);
    for (const cuda::Stream after : streams_)
      if (status == cuda::kSuccess && after != before)
        status = driver().stream_wait(after, question_, 0);
  }
  return status;
}

int Pool::copy(cuda::Address to, cuda::Address from, std::size_t bytes, Way way) const {
  return bytes == 0 ? cuda::kSuccess : driver().copy(to, from, bytes, streams_[way]);
}

int Pool::sum(Type type, cuda::Address target, std::span<const cuda::Address> sources,
              std::uint64_t count, Way way) const {
  if (count == 0) return cuda::kSuccess;
  SumLaunch launch{};
  for (std::size_t i = 0; i < sources.size(); ++i)
    launch.sources[i] = reinterpret_cast<const void*>(sources[i]);
  launch.target = reinterpret_cast<void*>(target);
  launch.count = static_cast<Int64>(count);
  launch.source_count = static_cast<Bits32>(sources.size());
  launch.type = static_cast<Bits32>(type);
  const std::uint64_t vectors = (count * size_of(type) + kVector - 1) / kVector;
  const auto blocks =
      static_cast<unsigned>(std::clamp<std::uint64_t>(vectors / kThreads, 1, kMostBlocks));
  return kernels_.launch(kSum, blocks, kThreads, streams_[way], &launch);
}

}  // namespace paceline::comm::device
