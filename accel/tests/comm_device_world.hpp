// SPDX-License-Identifier: Apache-2.0
// Ranks with memory of GPUs, for tests: those of comm_world.hpp on the fake driver of device/.
// Ownership, threads and failure as there.
#pragma once

#include <algorithm>
#include <random>

#include "comm_world.hpp"
#include "device/fake.hpp"
#include "kernels.hpp"
#include "paceline/comm_device.h"
#include "sum.hpp"

namespace paceline::comm_device_test {

using comm::size_of;
using comm::Type;
using comm_test::Member;
using comm_test::Shape;
using comm_test::wait_for_all;
using comm_test::World;
using device_test::FakeCuda;

inline const std::vector<std::string> kModules{"comm-cuda13-sm_90.cubin"};
// Small chunks: of a few thousand elements there are several, and slots are used again.
inline const std::string kSmall = "algorithm=hierarchical chunk=4096";

inline bool expect(bool good, const std::string& what) {
  if (!good) std::cerr << "failed: " << what << "\n";
  return good;
}

inline std::string open_error(Member& member, const FakeCuda& cuda, int device = 0,
                              paceline_comm_device* used = nullptr) {
  std::array<char, 1024> why{};
  const int code = paceline_comm_device_open(member.comm, device, cuda.folder().c_str(), used,
                                             why.data(), why.size());
  if (code == PACELINE_OK) return "";
  return code == PACELINE_EDEVICE ? why.data() : "code " + std::to_string(code) + ": " + why.data();
}

// Real numbers, whose sums are another in another order.
inline std::vector<std::byte> numbers(uint32_t type, uint64_t count, uint32_t rank) {
  std::mt19937 random(rank + 1);
  std::normal_distribution<float> normal;
  const auto& kernels = paceline::optim::best_kernels();
  std::vector<std::byte> bytes(count * size_of(Type{type}));
  for (uint64_t i = 0; i < count; ++i) {
    const float single = normal(random);
    const double wide = static_cast<double>(single) / 3;
    const auto whole = static_cast<int32_t>(random());
    const int64_t large = int64_t{whole} << 30;
    uint16_t half = 0;
    if (type == PACELINE_COMM_F16) kernels.to_f16(&single, &half, 1);
    if (type == PACELINE_COMM_BF16) kernels.to_bf16(&single, &half, 1);
    const void* from = type == PACELINE_COMM_F32   ? static_cast<const void*>(&single)
                       : type == PACELINE_COMM_F64 ? static_cast<const void*>(&wide)
                       : type == PACELINE_COMM_I32 ? static_cast<const void*>(&whole)
                       : type == PACELINE_COMM_I64 ? static_cast<const void*>(&large)
                                                   : static_cast<const void*>(&half);
    std::memcpy(bytes.data() + i * size_of(Type{type}), from, size_of(Type{type}));
  }
  return bytes;
}

// The stream that results were written in stays.
inline constexpr int kKnownStreams = 1;

inline bool all_given_back(FakeCuda& cuda) { return cuda.counts() == kKnownStreams; }

inline const std::vector<uint32_t> kTypes{PACELINE_COMM_F32,  PACELINE_COMM_F64, PACELINE_COMM_F16,
                                          PACELINE_COMM_BF16, PACELINE_COMM_I32, PACELINE_COMM_I64};

// Opens, does `body`, and has everything given back.
inline int run_on_devices(const Shape& shape, FakeCuda& cuda,
                          const std::function<bool(Member&)>& body) {
  return World::run(shape, [&](Member& member) {
    const std::string why = open_error(member, cuda);
    const bool good = expect(why.empty(), why) && body(member);
    paceline_comm_destroy(member.comm);
    member.comm = nullptr;
    return expect(all_given_back(cuda),
                  std::to_string(cuda.counts()) + " things of the driver are left") &&
           good;
  });
}

inline bool fails_by(Member& member, int code, int32_t culprit, const std::string& words) {
  int32_t named = -1;
  const std::string why = member.why(&named);
  return expect(code == PACELINE_COMM_EPEER, "code " + std::to_string(code)) &&
         expect(named == culprit && why.find(words) != std::string::npos, why);
}

// A sum whose input comes late in a stream, and whose result is read in that stream.
struct Sum {
  std::vector<std::byte> given;
  std::vector<std::byte> data;
  std::vector<std::byte> seen;
  uint64_t ticket = 0;

  Sum(uint32_t type, uint64_t count, uint32_t rank)
      : given(numbers(type, count, rank)), data(given.size()), seen(given.size()) {}

  int start(Member& member, FakeCuda& cuda, void* stream, uint32_t type) {
    cuda.write(stream, data.data(), given);
    return paceline_comm_device_allreduce_start(
        member.comm, data.data(), data.size() / size_of(Type{type}), type, stream, &ticket);
  }
  int wait(Member& member, FakeCuda& cuda, void* stream) {
    const int code = paceline_comm_device_wait(member.comm, ticket, stream);
    if (code == PACELINE_OK) cuda.copy(stream, seen.data(), data.data(), data.size());
    return code;
  }
};

// Several at once, then all of them read.
inline bool sums_as_processors(Member& member, FakeCuda& cuda, const std::vector<uint32_t>& types,
                               const std::vector<uint64_t>& counts) {
  void* const stream = cuda.stream();
  std::vector<Sum> sums;
  for (const uint32_t type : types)
    for (const uint64_t count : counts) sums.emplace_back(type, count, member.rank);
  bool good = true;
  for (std::size_t i = 0; i < sums.size(); ++i)
    good = good && sums[i].start(member, cuda, stream, types[i / counts.size()]) == PACELINE_OK;
  for (Sum& sum : sums) good = good && sum.wait(member, cuda, stream) == PACELINE_OK;
  cuda.finish(stream);
  cuda.destroy(stream);
  if (!expect(good, "start and wait")) return false;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const uint32_t type = types[i / counts.size()];
    std::vector<std::byte> wanted = sums[i].given;
    if (paceline_comm_allreduce(member.comm, wanted.data(), counts[i % counts.size()], type) !=
        PACELINE_OK)
      return false;
    good = expect(sums[i].seen == wanted, std::string(name_of(Type{type})) + " " +
                                              std::to_string(counts[i % counts.size()]) +
                                              " of rank " + std::to_string(member.rank)) &&
           good;
  }
  return good && expect(!cuda.uneven(), "barriers");
}

// What a call that failed was given is in use until then.
inline bool ended(Member& member, bool good) {
  paceline_comm_destroy(member.comm);
  member.comm = nullptr;
  return good;
}

// One rank's device stops in a call, with more chunks than there are slots: all name that rank,
// wherever it is. `ready`: of a rank with its device; `call`: starts something on a stream and
// waits for it.
struct Hanging {
  Shape shape;
  uint32_t culprit;
  std::function<bool(const Member&)> ready;
  std::function<int(Member&, void* stream)> call;
};

inline int ranks_that_name_another(FakeCuda& cuda, const Hanging& hanging) {
  Shape shape = hanging.shape;
  shape.silence_ms = 2000;
  shape.timeout_ms = 4000;
  // Before the first chunk is given, and when those are taken out that find a place.
  std::array<World, 2> worlds;
  for (const bool given : {false, true})
    worlds[given ? 1 : 0].start(shape, [&, given](Member& member) {
      paceline_comm_device used{
          .size = sizeof used, .reserved = 0, .pool_bytes = 0, .stream = nullptr};
      if (!expect(open_error(member, cuda, 0, &used).empty(), "open")) return false;
      if (hanging.ready && !hanging.ready(member)) return false;
      wait_for_all(member);
      void* const stream = cuda.stream();
      if (member.rank == hanging.culprit) cuda.hang(given ? used.stream : stream);
      const std::string words =
          "rank " + std::to_string(hanging.culprit) + " lives but has not done its part";
      const bool good = fails_by(member, hanging.call(member, stream),
                                 static_cast<int32_t>(hanging.culprit), words);
      return good;
    });
  return worlds[0].finish() + worlds[1].finish();
}

// Until the communicator's thread has given its device something that it is to be told of.
inline void begun(FakeCuda& cuda) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (cuda.log().find("cuLaunchHostFunc") == std::string::npos &&
         std::chrono::steady_clock::now() < until)
    ::usleep(500);
}

}  // namespace paceline::comm_device_test
