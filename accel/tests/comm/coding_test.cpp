// SPDX-License-Identifier: Apache-2.0
// Coded arrays: what a code loses is in the residual, every rank gets the same bits, and in the end
// all that was sent arrives.
#include "comm/codec/coding.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "check.hpp"
#include "comm/world.hpp"

namespace {

using paceline::comm::Codec;
using paceline::comm::coded_bytes;
using paceline::comm::Coding;
using paceline::comm_test::Member;
using paceline::comm_test::World;

constexpr std::array<Coding, 6> kCodings{Coding{.codec = Codec::kF16},
                                         Coding{.codec = Codec::kBf16},
                                         Coding{.codec = Codec::kInt8},
                                         Coding{.codec = Codec::kTopK, .keep = 250'000},
                                         Coding{.codec = Codec::kTopK, .keep = 1},
                                         Coding{.codec = Codec::kOneBit}};

std::vector<float> drawn(uint32_t seed, uint64_t count, float size = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

float largest(const std::vector<float>& values, std::size_t begin, std::size_t end) {
  float most = 0;
  for (std::size_t i = begin; i < std::min(end, values.size()); ++i)
    most = std::max(most, std::fabs(values[i]));
  return most;
}

// Returns the most that one value may lose.
float bound(Codec codec, const std::vector<float>& values, std::size_t i) {
  const std::size_t block = i / 256 * 256;
  switch (codec) {
    case Codec::kF16: return std::fabs(values[i]) / 2048 + 3e-8F;
    case Codec::kBf16: return std::fabs(values[i]) / 256;
    case Codec::kInt8: return largest(values, block, block + 256) / 254 * 1.0001F;
    default: return std::numeric_limits<float>::infinity();
  }
}

// Decodes, and checks that the code is as long as coded_bytes() says.
std::vector<float> through(const Coding& coding, const std::vector<float>& values,
                           std::vector<float>& residual) {
  const std::size_t size = coded_bytes(coding, values.size());
  std::vector<std::byte> coded(size + 1, std::byte{0x5a});
  paceline::comm::encode(coding, values.data(), residual.data(), coded.data(), values.size());
  CHECK(coded[size] == std::byte{0x5a});
  std::vector<float> decoded(values.size(), 77.0F);
  paceline::comm::decode(coding, coded.data(), decoded.data(), values.size());
  return decoded;
}

}  // namespace

CASE(comm_coding_loses_no_more_than_it_may_and_keeps_what_it_lost) {
  for (const Coding& coding : kCodings) {
    for (const uint64_t count : {0U, 1U, 2U, 255U, 256U, 257U, 1023U, 1024U, 1025U, 9001U}) {
      const std::vector<float> values = drawn(static_cast<uint32_t>(count), count);
      std::vector<float> residual(count);
      const std::vector<float> decoded = through(coding, values, residual);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        wrong += std::fabs(residual[i]) > bound(coding.codec, values, i) ? 1 : 0;
        wrong += std::fabs(decoded[i] + residual[i] - values[i]) > 1e-6F ? 1 : 0;
      }
      CHECK_EQ(wrong, 0U);
      // With a keep of one in a million only the largest is sent.
      if (coding.keep == 1 && count > 0) {
        const auto there =
            std::count_if(decoded.begin(), decoded.end(), [](float value) { return value != 0; });
        CHECK_EQ(there, 1);
        CHECK(largest(decoded, 0, count) == largest(values, 0, count));
      }
    }
  }
}

CASE(comm_coding_delivers_late_what_it_lost) {
  constexpr uint64_t kCount = 3001;
  for (const Coding& coding : kCodings) {
    if (coding.keep == 1) continue;
    std::vector<float> residual(kCount);
    std::vector<double> sent(kCount);
    std::vector<double> meant(kCount);
    for (uint32_t step = 0; step < 40; ++step) {
      const std::vector<float> values = drawn(step, kCount);
      const std::vector<float> decoded = through(coding, values, residual);
      for (std::size_t i = 0; i < kCount; ++i) {
        sent[i] += decoded[i];
        meant[i] += values[i];
      }
    }
    double worst = 0;
    for (std::size_t i = 0; i < kCount; ++i)
      worst = std::max(worst, std::abs(meant[i] - sent[i] - residual[i]));
    CHECK(worst < 1e-4);
    // The residual must stay bounded.
    CHECK(largest(residual, 0, kCount) < 25.0F);
  }
}

CASE(comm_coding_of_what_is_not_finite_or_out_of_range) {
  const float infinite = std::numeric_limits<float>::infinity();
  for (const Coding& coding : kCodings) {
    for (const float bad : {infinite, -infinite, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values = drawn(3, 2000);
      values[1500] = bad;
      std::vector<float> residual(values.size());
      const std::vector<float> decoded = through(coding, values, residual);
      CHECK(!std::isfinite(decoded[1500]));
      CHECK(std::isfinite(decoded[5]));
      // The next step must not be affected.
      CHECK(std::all_of(residual.begin(), residual.end(),
                        [](float value) { return std::isfinite(value); }));
      // More such values than are sent.
      std::fill(values.begin(), values.end(), bad);
      const std::vector<float> spoiled = through(coding, values, residual);
      CHECK(std::any_of(spoiled.begin(), spoiled.end(),
                        [](float value) { return !std::isfinite(value); }));
      CHECK(std::all_of(residual.begin(), residual.end(),
                        [](float value) { return std::isfinite(value); }));
      values = drawn(4, 2000);
      const std::vector<float> next = through(coding, values, residual);
      CHECK(
          std::all_of(next.begin(), next.end(), [](float value) { return std::isfinite(value); }));
    }
  }
  // A value out of fp16's range arrives in several steps.
  std::vector<float> residual(1);
  CHECK_EQ(through(kCodings[0], {100'000.0F}, residual)[0], 65504.0F);
  CHECK_EQ(through(kCodings[0], {0.0F}, residual)[0], 34496.0F);
  // Too small for a scale, so it is kept until it has grown.
  std::vector<float> tiny(1);
  CHECK_EQ(through(kCodings[2], {1e-35F}, tiny)[0], 0.0F);
  CHECK_EQ(tiny[0], 1e-35F);
}

namespace {

bool holds(bool good, const std::string& what) {
  if (!good) std::cerr << "failed: " << what << "\n";
  return good;
}

struct Coded {
  paceline_comm* comm;
  Coding coding;
  std::vector<float> residual;

  Coded(Member& member, const Coding& how, uint64_t count) : comm(member.comm), coding(how) {
    uint64_t size = 0;
    paceline_comm_residual_count(comm, count, &size);
    residual.resize(size * how.residuals());
  }
  int sum(std::vector<float>& data) {
    uint64_t ticket = 0;
    const int code = paceline_comm_all_reduce_coded_start(
        comm, data.data(), data.size(), static_cast<uint32_t>(coding.codec),
        coding.keep | coding.momentum << 20, residual.data(), residual.size(), &ticket);
    return code == PACELINE_OK ? paceline_comm_wait(comm, ticket) : code;
  }
};

// Sends three steps of gradients, then steps of zeros in which the residual arrives.
bool arrives(Member& member, const Coding& coding, uint64_t count) {
  const std::string what =
      std::string(paceline::comm::name_of(coding.codec)) + " of " + std::to_string(count);
  Coded coded(member, coding, count);
  std::vector<double> got(count);
  std::vector<double> meant(count);
  bool good = true;
  for (uint32_t step = 0; step < 12; ++step) {
    std::vector<float> data(count);
    for (uint32_t rank = 0; step < 3 && rank < member.ranks; ++rank) {
      const std::vector<float> one = drawn(step * 100 + rank, count);
      for (std::size_t i = 0; i < count; ++i) meant[i] += one[i];
      if (rank == member.rank) data = one;
    }
    good = holds(coded.sum(data) == PACELINE_OK, what + " ends") && good;
    std::vector<float> all(count * member.ranks);
    paceline_comm_all_gather(member.comm, data.data(), all.data(), count, PACELINE_COMM_F32);
    for (uint32_t rank = 0; rank < member.ranks; ++rank)
      good = holds(count == 0 || std::memcmp(all.data() + rank * count, data.data(),
                                             count * sizeof(float)) == 0,
                   what + " is the same on all ranks") &&
             good;
    for (std::size_t i = 0; i < count; ++i) got[i] += data[i];
  }
  double worst = 0;
  double late = 0;
  for (std::size_t i = 0; i < count; ++i) {
    worst = std::max(worst, std::abs(got[i] - meant[i]));
    late += meant[i] - got[i];
  }
  // The residuals of all ranks together.
  double kept = 0;
  for (const float value : coded.residual) kept += value;
  paceline_comm_all_reduce(member.comm, &kept, 1, PACELINE_COMM_F64);
  good = holds(std::abs(late - kept) < 1e-3 + 1e-6 * static_cast<double>(count),
               what + ": nothing is gone") &&
         good;
  const bool drains = coding.codec != Codec::kOneBit && coding.keep != 1;
  return holds(!drains || worst < 1e-4, what + " has arrived but for " + std::to_string(worst)) &&
         good;
}

bool all_arrive(Member& member) {
  bool good = true;
  for (const Coding& coding : kCodings)
    for (const uint64_t count : {0U, 1U, 7U, 9001U}) good = arrives(member, coding, count) && good;
  return arrives(member, kCodings[2], 70'001) && good;
}

}  // namespace

CASE(comm_coded_sums_are_alike_on_all_ranks_and_all_arrives) {
  const std::vector<std::vector<int>> shapes{
      {0, 1}, {0, 0, 1, 1, 1}, {0, 1, 2}, {0, 0, 1, 2, 2, 1}, {0, 0, 0}};
  for (const std::vector<int>& hosts : shapes)
    for (const char* plan : {"algorithm=hierarchical chunk=16384", "algorithm=flat"})
      CHECK_EQ(World::run({.hosts = hosts, .plan = plan}, all_arrive), 0);
}

CASE(comm_coding_of_what_momentum_has_gathered) {
  // The rule of coding.hpp, one value at a time.
  constexpr std::size_t kCount = 999;
  constexpr Coding kDeep{.codec = Codec::kDgc, .keep = 100'000, .momentum = 900};
  std::vector<float> residual(2 * kCount);
  std::vector<float> v(kCount);
  std::vector<float> u(kCount);
  for (uint32_t step = 0; step < 6; ++step) {
    const auto values = drawn(step, kCount);
    const auto sent = through(kDeep, values, residual);
    for (std::size_t i = 0; i < kCount; ++i) {
      u[i] = 0.9F * u[i] + values[i];
      v[i] += u[i];
    }
    auto order = v;
    std::ranges::sort(order, std::greater<>(), [](float value) { return std::fabs(value); });
    std::size_t some = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      const bool goes = std::fabs(v[i]) >= std::fabs(order[99]);
      CHECK(std::fabs(sent[i] - (goes ? v[i] : 0.0F)) <= 1e-5F);
      if (goes) v[i] = u[i] = 0.0F;
      some += goes ? 1 : 0;
      CHECK(std::fabs(residual[i] - v[i]) <= 1e-5F &&
            std::fabs(residual[kCount + i] - u[i]) <= 1e-5F);
    }
    CHECK_EQ(some, 100U);
  }
  // A value that is not finite leaves no residual with either code.
  const auto spoilt =
      through(kDeep, std::vector<float>(kCount, std::numeric_limits<float>::infinity()), residual);
  CHECK(!std::isfinite(spoilt[0]));
  for (const float value : residual) CHECK_EQ(value, 0.0F);
}

CASE(comm_coded_sums_with_momentum_are_top_k_where_it_is_none) {
  const auto body = [](Member& member) {
    bool good = true;
    for (const uint64_t count : {1U, 9001U}) {
      Coded top(member, {.codec = Codec::kTopK, .keep = 50'000}, count);
      Coded deep(member, {.codec = Codec::kDgc, .keep = 50'000}, count);
      for (uint32_t step = 0; step < 4; ++step) {
        auto one = drawn(step * 10 + member.rank, count);
        auto two = one;
        good = holds(top.sum(one) == PACELINE_OK && (deep.sum(two) == PACELINE_OK) && one == two,
                     "the same sums") &&
               good;
      }
    }
    return good;
  };
  for (const char* plan : {"algorithm=hierarchical chunk=16384", "algorithm=flat"})
    CHECK_EQ(World::run({.hosts = {0, 0, 1, 1, 1}, .plan = plan}, body), 0);
}

CASE(comm_coded_sums_that_differ_are_named) {
  const auto body = [](Member& member) {
    constexpr uint64_t kCount = 5000;
    std::vector<float> data(kCount, 1.0F);
    Coded coded(member, kCodings[member.rank == 1 ? 2 : 0], kCount);
    uint64_t ticket = 0;
    struct Wrong {
      uint32_t codec;
      uint32_t keep;
      uint64_t size;
    };
    const std::vector<Wrong> wrong{{9, 0, coded.residual.size()},
                                   {4, 0, coded.residual.size()},
                                   {1, 0, coded.residual.size() + 1}};
    for (const Wrong& one : wrong)
      if (paceline_comm_all_reduce_coded_start(member.comm, data.data(), kCount, one.codec,
                                               one.keep, coded.residual.data(), one.size,
                                               &ticket) != PACELINE_EINVAL)
        return false;
    const bool failed = coded.sum(data) == PACELINE_COMM_EPEER;
    const std::string why = member.why();
    return holds(failed && why.find("as fp16") != std::string::npos &&
                     why.find("as int8") != std::string::npos,
                 why);
  };
  CHECK_EQ(World::run({.hosts = {0, 1}, .plan = ""}, body), 0);
}

CASE(comm_coded_sums_on_one_host_are_exact) {
  const auto body = [](Member& member) {
    std::vector<float> data = drawn(member.rank, 5000);
    std::vector<float> exact = data;
    Coded coded(member, kCodings[3], data.size());
    paceline_comm_all_reduce(member.comm, exact.data(), exact.size(), PACELINE_COMM_F32);
    return coded.residual.empty() && coded.sum(data) == PACELINE_OK && data == exact;
  };
  CHECK_EQ(World::run({.hosts = {0, 0, 0}, .plan = ""}, body), 0);
}

CASE(comm_columns_become_orthonormal_and_zeros_stay) {
  for (const auto& [rows, columns] :
       {std::pair<std::size_t, std::size_t>{1, 1}, {3, 2}, {257, 5}, {1024, 4}}) {
    std::vector<float> matrix = drawn(11, rows * columns);
    // The second column is almost the first, so rounding would leave it not orthogonal.
    for (std::size_t row = 0; columns > 1 && row < rows; ++row)
      matrix[row * columns + 1] = matrix[row * columns] + 1e-3F * matrix[row * columns + 1];
    // The last of more columns than rows becomes zero.
    for (std::size_t row = 0; columns > 2 && row < rows; ++row)
      matrix[row * columns + columns - 1] = 0.0F;
    const std::vector<float> given = matrix;
    CHECK_EQ(paceline_comm_orthonormalize(matrix.data(), rows, columns), PACELINE_OK);
    const auto dot = [&](std::size_t a, std::size_t b) {
      double sum = 0;
      for (std::size_t row = 0; row < rows; ++row)
        sum += static_cast<double>(matrix[row * columns + a]) * matrix[row * columns + b];
      return sum;
    };
    for (std::size_t a = 0; a < columns; ++a)
      for (std::size_t b = 0; b <= a; ++b) {
        const bool nothing = columns > 2 && a + 1 == columns;
        CHECK(std::abs(dot(a, b) - (a == b && !nothing ? 1.0 : 0.0)) < 1e-6);
      }
    // The first column only changes its length.
    const float scale = given[0] / matrix[0];
    for (std::size_t row = 0; row < rows; ++row)
      CHECK(std::abs(matrix[row * columns] * scale - given[row * columns]) <
            1e-5F * std::abs(scale));
  }
  std::vector<float> broken{1.0F, std::numeric_limits<float>::infinity()};
  CHECK_EQ(paceline_comm_orthonormalize(broken.data(), 2, 1), PACELINE_OK);
  CHECK(std::isnan(broken[0]) || std::isnan(broken[1]));
  CHECK_EQ(paceline_comm_orthonormalize(nullptr, 0, 4), PACELINE_OK);
  CHECK_EQ(paceline_comm_orthonormalize(nullptr, 1, 4), PACELINE_EINVAL);
  CHECK_EQ(paceline_comm_orthonormalize(broken.data(), UINT64_MAX / 4, 64), PACELINE_EINVAL);
}
