// SPDX-License-Identifier: Apache-2.0
#include "profiler.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "../contract.hpp"
#include "abi.hpp"
#include "base/clock.hpp"

namespace paceline::nccl {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(50);
bool is(const char* name, const char* value) {
  const char* const found = std::getenv(name);
  return found != nullptr && std::strcmp(found, value) == 0;
}

// One rank speaks for all: they have the same NCCL.
void say(const std::string& line) {
  const char* const rank = std::getenv("RANK");
  if (rank == nullptr || std::strcmp(rank, "0") == 0)
    std::fprintf(stderr, "paceline: %s\n", line.c_str());
}

Function function_of(const char* name) {
  const std::string_view text = name == nullptr ? "" : name;
  if (text == "AllReduce") return Function::kAllReduce;
  if (text == "AllGather") return Function::kAllGather;
  if (text == "ReduceScatter") return Function::kReduceScatter;
  if (text == "Broadcast") return Function::kBroadcast;
  if (text == "Reduce") return Function::kReduce;
  return Function::kOther;
}

// Bytes of one element: NCCL's names of types end with their bits, as ncclBfloat16 and
// ncclFloat8e4m3 do. 0 for a name without them.
std::uint64_t bytes_of(const char* datatype) {
  if (datatype == nullptr) return 0;
  const char* at = datatype;
  while (*at != '\0' && (*at < '0' || *at > '9')) ++at;
  std::uint64_t bits = 0;
  for (; *at >= '0' && *at <= '9' && bits < 1000; ++at)
    bits = bits * 10 + static_cast<std::uint64_t>(*at - '0');
  return bits / 8;
}

}  // namespace

Profiler& Profiler::instance() {
  // Not on the heap: NCCL's threads come here first, and memory may be short.
  alignas(Profiler) static std::array<std::byte, sizeof(Profiler)> place;
  static Profiler* const profiler = new (place.data()) Profiler;
  return *profiler;
}

void Profiler::begin(int interface, const void* caller) {
  interface_ = interface;
  if (is(runtime_env::kDisable, "1") || is(runtime_env::kNcclProfiler, "Disabled")) return;
  choice_ = choose(interface, {nccl_version(caller), shared_memory_bytes()});
  if (!choice_.reason.empty()) say(choice_.reason);
  if (choice_.mask == 0) return;
  ::pthread_atfork(nullptr, nullptr,
                   [] { instance().forked_.store(true, std::memory_order_relaxed); });
  start_thread();
}

void Profiler::start_thread() {
  // Signals go to the threads of the training program.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  bool started = true;
  try {
    std::thread([this] {
      for (;;) {
        std::this_thread::sleep_for(kPeriod);
        report(base::monotonic_ns());
      }
    }).detach();
  } catch (const std::exception&) {
    started = false;
    choice_.mask = 0;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) say("NCCL's collectives are not counted: no thread can be started");
}

Context Profiler::open(int interface, const void* caller, std::uint64_t id, int size, int rank,
                       int& mask) {
  mask = 0;
  if (forked_.load(std::memory_order_relaxed)) return 0;
  Context context = 0;
  try {
    std::call_once(begun_, [&] { begin(interface, caller); });
    mask = choice_.mask;
    if (mask == 0) return 0;
    context = communicators_.open(id, static_cast<std::uint32_t>(std::max(size, 0)),
                                  static_cast<std::uint32_t>(std::max(rank, 0)));
    if (context == 0 && !said_full_.exchange(true))
      say("more than " + std::to_string(Communicators::kPlaces) +
          " communicators of NCCL are open: the others are not counted");
  } catch (const std::exception&) {  // no memory: the program continues without the plugin
  }
  return context;
}

void Profiler::close(Context context) {
  if (forked_.load(std::memory_order_relaxed)) return;
  communicators_.close(context);
  report(base::monotonic_ns());
}

Handle Profiler::start_group(Context context) {
  if (forked_.load(std::memory_order_relaxed) || communicators_.find(context) == nullptr) return 0;
  return Pool::kNoPlace;
}

Handle Profiler::start_call(Context context, const Call& call) {
  if (forked_.load(std::memory_order_relaxed)) return 0;
  Communicator* const communicator = communicators_.find(context);
  if (communicator == nullptr) return 0;
  if (call.comm_hash != 0 && communicator->id.load(std::memory_order_relaxed) == 0) {
    communicator->id.store(call.comm_hash, std::memory_order_relaxed);
    communicator->rank.store(static_cast<std::uint32_t>(call.rank), std::memory_order_relaxed);
  }
  const bool kernels = (choice_.mask & static_cast<int>(abi::kKernelChannel)) != 0;
  const Function function = function_of(call.function);
  const std::uint64_t now = base::monotonic_ns();
  Operation operation;
  operation.position = paceline_current_position();
  operation.group = context;
  const std::uint64_t element = bytes_of(call.datatype);
  operation.bytes_known = element != 0;
  operation.bytes = call.count * element;
  // Of these, NCCL gives the part of one rank. Interface 3 does not tell how many there are.
  if (function == Function::kAllGather || function == Function::kReduceScatter) {
    const std::uint32_t size = communicator->size.load(std::memory_order_relaxed);
    operation.bytes *= size;
    operation.bytes_known = operation.bytes_known && size != 0;
  }
  const std::uint32_t channels = kernels ? call.channels : 0;
  if (call.collective) {
    auto& counted = communicator->counted[static_cast<std::size_t>(function)];
    if (!kernels && function != Function::kOther &&
        counted.exchange(call.sequence + 1, std::memory_order_relaxed) == call.sequence + 1)
      communicator->replayed.store(true, std::memory_order_relaxed);
    communicator->last_used_ns.store(now, std::memory_order_relaxed);
    operation.sequence = communicator->enqueued.fetch_add(1, std::memory_order_relaxed) + 1;
    communicator->followed.store(channels != 0, std::memory_order_relaxed);
  }
  const Handle handle = pool_.start(operation, channels, now);
  if (handle == 0) {
    lost_step_.store(operation.position.step, std::memory_order_relaxed);
    lost_.fetch_add(1, std::memory_order_release);
  }
  return handle;
}

Handle Profiler::start_kernel(Handle call, std::uint64_t timer, bool has_timer) {
  return pool_.start_kernel(call, has_timer ? timer : base::monotonic_ns());
}

void Profiler::stop(Handle handle, bool has_timer) {
  pool_.stop(handle, has_timer ? 0 : base::monotonic_ns());
}

}  // namespace paceline::nccl
