// SPDX-License-Identifier: Apache-2.0
#include "direct_trial.hpp"

#include <algorithm>
#include <memory>

#include "landing.hpp"

namespace paceline::comm::device {
namespace {

constexpr std::size_t kMostBytes = 1UL << 20;  // of a shard

// Chunks and elements of an attempt. What is small goes another way in some RDMA devices'
// libraries.
struct Round {
  std::uint32_t first;  // chunk's number, for its content
  std::uint64_t count;
};

// Numbers that nobody else has left there.
std::uint32_t number_of(std::uint32_t salt, std::uint32_t chunk, std::uint64_t index) {
  const auto mixed = (salt + (std::uint64_t{chunk} << 32) + index) * 0x9e3779b97f4a7c15U;
  return static_cast<std::uint32_t>(mixed >> 32);
}

class Trial final : public Lane::Stage {
 public:
  Trial(DirectLane& lane, Pool& pool, std::uint32_t local)
      : lane_(lane), pool_(pool), local_(local) {}
  std::string run(const Round& round, std::span<const std::uint32_t> salts, std::uint32_t position,
                  Clock::time_point until);
  // Whether no stream comes to here any more; where one may, this object stays, and tells nobody.
  bool is_settled(Clock::time_point until) {
    if (landing_.settle(until)) return true;
    landing_.forget();
    return false;
  }

  bool good(int status, const char* call) override {
    if (status != cuda::kSuccess && why_.empty())
      why_ = std::string(call) + ": " + pool_.driver().error_name(status);
    return status == cuda::kSuccess;
  }
  void expect_raised(std::uint32_t number) override { expect(kRaised, number, Pool::kRaising); }
  void finished(std::uint32_t /*chunks*/) override {}
  void ring() override {}

 private:
  enum Kind : std::uint32_t { kGiven, kRaised, kRead, kKinds };

  void expect(Kind kind, std::uint32_t number, Pool::Way way) {
    Landing::Mark& mark = marks_[kind * kDepth + number];
    mark = {.landing = nullptr, .kind = kind, .number = number, .count = 0};
    good(landing_.expect(pool_.driver(), pool_.stream(way), mark), "cuLaunchHostFunc");
  }
  void landed(const Landing::Mark& mark) {
    if (mark.kind == kGiven) lane_.open(mark.number + 1);
    if (mark.kind == kRaised) lane_.landed(mark.number);
  }
  cuda::Address result(std::uint32_t number) const { return pool_.result(local_, number, 0); }
  std::uint32_t* host(std::uint32_t number) const {
    return reinterpret_cast<std::uint32_t*>(pool_.host_result(number));
  }
  void copy(cuda::Address to, cuda::Address from, std::uint64_t count, Pool::Way way) {
    good(pool_.copy(to, from, count * sizeof(std::uint32_t), way), "cuMemcpyAsync");
  }

  DirectLane& lane_;
  Pool& pool_;
  const std::uint32_t local_;
  std::string why_;
  std::array<Landing::Mark, kKinds * kDepth> marks_;
  Landing landing_{[this](const Landing::Mark& mark) { landed(mark); }};
};

std::string Trial::run(const Round& round, std::span<const std::uint32_t> salts,
                       std::uint32_t position, Clock::time_point until) {
  const auto [first, count] = round;
  const cuda::Current current = pool_.current();
  for (std::uint32_t number = 0; number < kDepth; ++number) {
    for (std::uint64_t i = 0; i < count; ++i)
      host(number)[i] = number_of(salts[position], first + number, i);
    copy(result(number), reinterpret_cast<cuda::Address>(host(number)), count, Pool::kAdding);
    expect(kGiven, number, Pool::kAdding);
  }
  if (!why_.empty()) return why_;
  const auto shard = [this, count = count](std::uint32_t number) {
    return Shard{.begin = 0, .count = count, .result = result(number)};
  };
  const std::string lost = lane_.attempt(
      *this, {.call = {}, .type = Type::kI32, .base = 0, .chunks = kDepth, .shard = shard}, until);
  if (why_.empty()) why_ = lost;
  if (!why_.empty()) return why_;
  for (std::uint32_t number = 0; number < kDepth; ++number)
    copy(reinterpret_cast<cuda::Address>(host(number)), result(number), count, Pool::kRaising);
  expect(kRead, 0, Pool::kRaising);
  if (!why_.empty()) return why_;
  if (!landing_.settle(until)) return "its GPU did not read its own memory in time";
  for (std::uint32_t number = 0; number < kDepth; ++number) {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint32_t sum = 0;
      for (const std::uint32_t salt : salts) sum += number_of(salt, first + number, i);
      if (host(number)[i] != sum)
        return "what came through memory of its GPU by " + lane_.names() + " is not what was sent";
    }
  }
  return "";
}

}  // namespace

std::string try_lane(DirectLane& lane, Pool& pool, std::span<const std::uint32_t> salts,
                     std::uint32_t position, std::uint32_t local, Clock::time_point until) {
  const std::uint64_t most = std::min((pool.shard() - Pool::kAlignment) / sizeof(std::uint32_t),
                                      kMostBytes / sizeof(std::uint32_t));
  auto trial = std::make_unique<Trial>(lane, pool, local);
  std::string why = trial->run({.first = 0, .count = most}, salts, position, until);
  // An element of each host's.
  if (why.empty())
    why = trial->run({.first = kDepth, .count = salts.size()}, salts, position, until);
  // A stream cannot be taken back: what it uses must stay, and no call may use it before. A driver
  // that refuses to wait refuses the calls too.
  if (!trial->is_settled(until)) {
    const cuda::Current current = pool.current();
    static_cast<void>(pool.join_ways());
    static_cast<void>(trial.release());
  }
  return why;
}

}  // namespace paceline::comm::device
