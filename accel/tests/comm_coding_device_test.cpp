// SPDX-License-Identifier: Apache-2.0
// The codes' kernels and their host's side without a GPU: whole grids on a fake driver that runs
// the kernels' own source as C++ (device/), against coding.cpp, bit for bit.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "coding.hpp"
#include "device/fake.hpp"
#include "paceline/coding_device.h"

namespace coding_device_cases {

using paceline::comm::Codec;
using paceline::comm::coded_bytes;
using paceline::comm::Coding;
using paceline::device_test::FakeCuda;

constexpr std::array<Codec, 4> kCodecs{Codec::kF16, Codec::kBf16, Codec::kInt8, Codec::kOneBit};
constexpr std::array<std::uint64_t, 12> kCounts{1,   5,    31,   32,   255,  256,
                                                257, 1023, 1024, 1025, 2049, 9001};

std::string open_coding(FakeCuda& cuda, int device = 0) {
  std::array<char, 512> why{};
  const int status =
      paceline_coding_device_open(device, cuda.folder().c_str(), why.data(), why.size());
  if ((status == PACELINE_OK) != (why[0] == '\0'))
    return "the code and the reason contradict each other";
  return why.data();
}

const std::vector<std::string> kModules{"coding-cuda13-sm_90.cubin"};

// Gradients of all sizes: blocks of nothing, beyond fp16's range, far below it, not finite.
std::vector<float> gradients(std::uint64_t count, unsigned seed, bool wild) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t block = i / 1024;
    values[i] = normal(random);
    if (!wild) continue;
    if (block == 1) values[i] = -0.0F;
    if (block == 2) values[i] *= 1e5F;
    if (block == 3) values[i] *= 1e-33F;
    if (i % 1500 == 1499 && block != 1) values[i] = std::numeric_limits<float>::infinity();
    if (i % 4001 == 4000) values[i] = std::numeric_limits<float>::quiet_NaN();
  }
  return values;
}

// What steps before have lost: of nothing, nothing.
std::vector<float> rests(const std::vector<float>& values) {
  std::vector<float> rest = gradients(values.size(), 99, false);
  for (std::size_t i = 0; i < rest.size(); ++i)
    if (values[i] == 0) rest[i] = values[i];
  return rest;
}

paceline_coding_device_call call_of(Codec codec, std::uint64_t count, std::uint64_t arrays) {
  paceline_coding_device_call call{};
  call.size = sizeof call;
  call.codec = static_cast<std::uint32_t>(codec);
  call.stream = reinterpret_cast<void*>(std::uintptr_t{77});
  call.count = count;
  call.arrays = arrays;
  return call;
}

// The same bits; a NaN is one whatever its payload.
bool same(const std::vector<float>& ours, const std::vector<float>& theirs) {
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (std::memcmp(&ours[i], &theirs[i], sizeof(float)) != 0 &&
        !(std::isnan(ours[i]) && std::isnan(theirs[i])))
      return false;
  return ours.size() == theirs.size();
}

struct Coded {
  std::vector<std::byte> codes;  // and a byte beyond
  std::vector<float> rest;
};

Coded by_processor(Codec codec, const std::vector<float>& values, std::uint64_t arrays) {
  const std::uint64_t count = values.size() / arrays;
  const std::size_t bytes = coded_bytes({.codec = codec}, count);
  Coded coded{std::vector<std::byte>(bytes * arrays + 1, std::byte{0x5a}), rests(values)};
  for (std::size_t i = 0; i < arrays; ++i)
    paceline::comm::encode({.codec = codec}, &values[i * count], &coded.rest[i * count],
                           &coded.codes[i * bytes], count);
  return coded;
}

Coded by_kernel(Codec codec, std::vector<float> values, std::uint64_t arrays) {
  const std::uint64_t count = values.size() / arrays;
  const std::size_t bytes = coded_bytes({.codec = codec}, count);
  Coded coded{std::vector<std::byte>(bytes * arrays + 1, std::byte{0x5a}), rests(values)};
  paceline_coding_device_call call = call_of(codec, count, arrays);
  call.values = values.data();
  call.rest = coded.rest.data();
  call.codes = coded.codes.data();
  CHECK_EQ(paceline_coding_device_encode(&call), PACELINE_OK);
  return coded;
}

CASE(comm_coding_on_a_device_makes_the_processors_bytes_and_rests) {
  FakeCuda cuda(kModules);
  CHECK(open_coding(cuda).empty());
  for (const Codec codec : kCodecs) {
    for (const std::uint64_t count : kCounts) {
      for (const std::uint64_t arrays : {1U, 3U}) {
        const bool wild = count > 1000;
        const std::vector<float> values =
            gradients(count * arrays, static_cast<unsigned>(count), wild);
        const Coded theirs = by_processor(codec, values, arrays);
        const Coded ours = by_kernel(codec, values, arrays);
        // Halves of what is not a number have a payload.
        const bool halves = codec == Codec::kF16 || codec == Codec::kBf16;
        if (!(halves && wild)) CHECK(ours.codes == theirs.codes);
        CHECK(same(ours.rest, theirs.rest));
        CHECK(ours.codes.back() == std::byte{0x5a});
      }
    }
  }
  CHECK(!cuda.uneven());
}

CASE(comm_coding_on_a_device_decodes_and_adds_up_as_processors_do) {
  FakeCuda cuda(kModules);
  CHECK(open_coding(cuda).empty());
  for (const Codec codec : kCodecs) {
    for (const std::uint64_t count : kCounts) {
      const Coding coding{.codec = codec};
      const std::size_t bytes = coded_bytes(coding, count);
      constexpr std::uint32_t kSources = 3;
      const Coded coded =
          by_processor(codec, gradients(count * kSources, 7, count > 1000), kSources);
      paceline_coding_device_call call = call_of(codec, count, 1);
      call.codes = const_cast<std::byte*>(coded.codes.data());
      for (const bool onto : {false, true}) {
        std::vector<float> theirs = gradients(count, 3, false);
        std::vector<float> ours = theirs;
        for (std::size_t i = 0; i < kSources; ++i) {
          const std::byte* const code = &coded.codes[i * bytes];
          if (i == 0 && !onto)
            paceline::comm::decode(coding, code, theirs.data(), count);
          else
            paceline::comm::decode_add(coding, code, theirs.data(), count);
        }
        call.sources = kSources;
        call.flags = onto ? PACELINE_CODING_ONTO : 0;
        call.values = ours.data();
        CHECK_EQ(paceline_coding_device_decode(&call), PACELINE_OK);
        CHECK(same(ours, theirs));
      }
      // Each on its own.
      std::vector<float> theirs(count * kSources);
      for (std::size_t i = 0; i < kSources; ++i)
        paceline::comm::decode(coding, &coded.codes[i * bytes], &theirs[i * count], count);
      std::vector<float> ours(theirs.size(), 77.0F);
      call.arrays = kSources;
      call.sources = 1;
      call.flags = 0;
      call.values = ours.data();
      CHECK_EQ(paceline_coding_device_decode(&call), PACELINE_OK);
      CHECK(same(ours, theirs));
    }
  }
  CHECK(!cuda.uneven());
}

CASE(comm_coding_is_opened_while_another_thread_captures_a_graph) {
  FakeCuda cuda(kModules);
  cuda.set("captured elsewhere", 1);
  CHECK(open_coding(cuda).empty());
  CHECK_EQ(cuda.capture_mode(), 0);
}

CASE(comm_coding_on_a_device_is_one_launch_on_the_callers_stream) {
  FakeCuda cuda(kModules);
  CHECK(open_coding(cuda).empty());
  cuda.forget();
  by_kernel(Codec::kInt8, gradients(3 * 2049, 1, false), 3);
  CHECK(cuda.log() == "cuLaunchKernel paceline_coding_encode_int8 6 256 stream 77 contexts 1\n");
  cuda.set("cuLaunchKernel", 1);
  std::vector<float> values(5);
  std::vector<float> rest(5);
  std::vector<std::byte> codes(10);
  paceline_coding_device_call call = call_of(Codec::kF16, 5, 1);
  call.values = values.data();
  call.rest = rest.data();
  call.codes = codes.data();
  CHECK_EQ(paceline_coding_device_encode(&call), PACELINE_EDEVICE);
  cuda.set("cuLaunchKernel", 0);
  // Nothing to do is no launch.
  cuda.forget();
  call.count = 0;
  CHECK_EQ(paceline_coding_device_encode(&call), PACELINE_OK);
  CHECK(cuda.log().empty());
}

CASE(comm_coding_on_a_device_refuses_what_makes_no_sense) {
  FakeCuda cuda(kModules);
  std::vector<float> values(8);
  std::vector<float> rest(8);
  std::vector<std::byte> codes(32);
  const auto answer = [&](bool encodes, auto&& spoil) {
    paceline_coding_device_call call = call_of(Codec::kF16, 5, 1);
    call.values = values.data();
    call.rest = rest.data();
    call.codes = codes.data();
    call.sources = encodes ? 0 : 1;
    spoil(call);
    return encodes ? paceline_coding_device_encode(&call) : paceline_coding_device_decode(&call);
  };
  // A device that is not opened.
  CHECK_EQ(answer(true, [](auto&) {}), PACELINE_EDEVICE);
  CHECK(open_coding(cuda).empty());
  CHECK(open_coding(cuda, 64).find("64") != std::string::npos);
  CHECK_EQ(paceline_coding_device_open(0, nullptr, nullptr, 0), PACELINE_EINVAL);
  cuda.forget();
  for (const bool encodes : {true, false}) {
    CHECK_EQ(answer(encodes, [](auto& call) { call.size = 8; }), PACELINE_EINVAL);
    CHECK_EQ(answer(encodes, [](auto& call) { call.device = -1; }), PACELINE_EINVAL);
    CHECK_EQ(answer(encodes, [](auto& call) { call.codec = PACELINE_COMM_CODEC_TOP_K; }),
             PACELINE_EINVAL);
    CHECK_EQ(answer(encodes, [](auto& call) { call.codec = 0; }), PACELINE_EINVAL);
    CHECK_EQ(answer(encodes, [](auto& call) { call.flags = 2; }), PACELINE_EINVAL);
    CHECK_EQ(answer(encodes, [](auto& call) { call.values = nullptr; }), PACELINE_EINVAL);
    CHECK_EQ(answer(encodes, [&](auto& call) { call.codes = codes.data() + 1; }), PACELINE_EINVAL);
    CHECK_EQ(answer(encodes, [](auto& call) { call.arrays = 1ULL << 31; }), PACELINE_EINVAL);
    CHECK_EQ(answer(encodes, [](auto& call) { call.count = 1ULL << 49; }), PACELINE_EINVAL);
    CHECK_EQ(answer(encodes, [&](auto& call) { call.sources = encodes ? 1 : 0; }), PACELINE_EINVAL);
  }
  CHECK_EQ(answer(true, [](auto& call) { call.rest = nullptr; }), PACELINE_EINVAL);
  CHECK_EQ(answer(true, [](auto& call) { call.flags = PACELINE_CODING_ONTO; }), PACELINE_EINVAL);
  CHECK_EQ(paceline_coding_device_encode(nullptr), PACELINE_EINVAL);
  CHECK(cuda.log().empty());
}

}  // namespace coding_device_cases
