// SPDX-License-Identifier: Apache-2.0
#include "communicator.hpp"

#include <algorithm>
#include <cstring>

#include "share.hpp"
#include "shm_link.hpp"
#include "tcp_link.hpp"

namespace paceline::comm {

Communicator::Communicator(const Options& options, Plan plan, Topology topology)
    : options_(options), plan_(std::move(plan)), topology_(std::move(topology)) {}

Communicator::~Communicator() {
  // The watch's thread wakes members of the others: it ends before they do.
  if (watch_ != nullptr) watch_->stop();
}

std::expected<std::unique_ptr<Communicator>, Error> Communicator::create(const Options& options,
                                                                         const paceline_comm_store& store) {
  const auto deadline = Clock::now() + options.timeout;
  auto plan = parse_plan(options.plan, options.ranks);
  if (!plan) return std::unexpected(Error{PACELINE_EINVAL, -1, plan.error()});
  Card card{.host = options.host, .address = options.address, .nonce = {}, .door = {}, .agreed = {}};
  card.agreed = std::to_string(options.ranks) + " ranks, " + print_plan(*plan) +
                " flows=" + std::to_string(options.flows) + " silence_ms=" + std::to_string(options.silence.count());
  auto doors = open_doors(card);
  if (!doors) return std::unexpected(doors.error());
  auto cards = exchange({store, options.name}, options.rank, options.ranks, card, deadline);
  if (!cards) return std::unexpected(cards.error());
  std::vector<std::string> hosts;
  for (const Card& one : *cards) hosts.push_back(one.host);
  Topology topology = arrange(*plan, hosts, options.rank);
  std::unique_ptr<Communicator> made(new Communicator(options, std::move(*plan), std::move(topology)));
  if (auto connected = made->connect(std::move(*cards), *doors, deadline); !connected)
    return std::unexpected(connected.error());
  if (made->barrier() != PACELINE_OK) return std::unexpected(made->error());
  return made;
}

std::expected<void, Error> Communicator::connect(std::vector<Card> cards, const Doors& doors,
                                                 Clock::time_point deadline) {
  const bool hierarchical = plan_.algorithm == Algorithm::kHierarchical;
  auto wires = meet(topology_, cards, doors.tcp, options_.flows, hierarchical, deadline);
  if (!wires) return std::unexpected(wires.error());
  watch_ = std::make_unique<Watch>(options_.rank, std::move(wires->watch), options_.silence);
  if (hierarchical || topology_.mates().size() > 1) {
    auto region = share_region(topology_, cards, doors.memory, hierarchical ? plan_.chunk : 0, *watch_, deadline);
    if (!region) return std::unexpected(region.error());
    region_ = std::move(*region);
  }
  return make_rings(std::move(*wires));
}

std::expected<void, Error> Communicator::make_rings(Wires wires) {
  const std::uint32_t next = at(topology_.position + 1);
  const std::uint32_t previous = at(topology_.position + ranks() - 1);
  if (ranks() > 1) {
    std::unique_ptr<SendLink> sender;
    std::unique_ptr<ReceiveLink> receiver;
    const auto& mates = topology_.mates();
    if (!wires.to_next.empty()) {
      sender = std::make_unique<TcpSender>(std::move(wires.to_next), next, *watch_);
    } else {
      sender = std::make_unique<ShmSender>(*region_, topology_.local, next, *watch_);
    }
    if (!wires.from_previous.empty()) {
      receiver = std::make_unique<TcpReceiver>(std::move(wires.from_previous), previous, *watch_);
    } else {
      const auto place = std::find(mates.begin(), mates.end(), previous) - mates.begin();
      receiver = std::make_unique<ShmReceiver>(*region_, static_cast<std::uint32_t>(place), previous, *watch_);
    }
    ring_ = std::make_unique<Ring>(std::move(sender), std::move(receiver), *watch_);
  }
  if (!wires.lane_to_next.empty())
    lane_ = std::make_unique<Ring>(
        std::make_unique<TcpSender>(std::move(wires.lane_to_next), lane_next(topology_), *watch_),
        std::make_unique<TcpReceiver>(std::move(wires.lane_from_previous), lane_previous(topology_), *watch_), *watch_);
  if (plan_.algorithm == Algorithm::kHierarchical)
    stage_ = std::make_unique<HostStage>(topology_, *region_, lane_.get(), *watch_, plan_.chunk);
  return {};
}

std::string Communicator::plan() const {
  std::string text = print_plan(plan_);
  return text;
}

Error Communicator::error() const {
  if (!watch_->failed()) return {};
  const Failure failure = watch_->failure();
  return {PACELINE_COMM_EPEER, failure.rank, failure.text};
}

template <typename Work>
int Communicator::call(Kind kind, std::uint64_t count, Type type, std::uint64_t root, const Work& work) {
  const std::lock_guard lock(mutex_);
  const Call call{
      .sequence = ++sequence_, .kind = kind, .type = static_cast<std::uint32_t>(type), .count = count, .root = root};
  if (ranks() == 1) return PACELINE_OK;
  if (!watch_->begin(call, Clock::now() + options_.timeout)) return PACELINE_COMM_EPEER;
  // Nothing to move is no reason not to notice that others have.
  const bool done = count == 0 || work(call);
  watch_->end();
  return done ? PACELINE_OK : PACELINE_COMM_EPEER;
}

bool Communicator::sum_up(const Call& call, std::byte* data, std::uint64_t count, Type type) {
  if (stage_ != nullptr) return stage_->allreduce(call, type, data, count);
  std::vector<Step> steps;
  add_allreduce(steps, data, count, size_of(type), ranks(), topology_.position);
  return ring_->run(call, type, steps);
}

int Communicator::allreduce(std::byte* data, std::uint64_t count, Type type) {
  return call(Kind::kAllreduce, count, type, 0, [&](const Call& call) { return sum_up(call, data, count, type); });
}

int Communicator::barrier() {
  std::int32_t one = 1;
  return call(Kind::kBarrier, 1, Type::kI32, 0,
              [&](const Call& call) { return sum_up(call, reinterpret_cast<std::byte*>(&one), 1, Type::kI32); });
}

// A few columns of every piece at a time: what passes through this rank needs memory.
bool Communicator::scatter_columns(const Call& call, const std::byte* in, std::byte* out, std::uint64_t count,
                                   Type type) {
  const std::size_t size = size_of(type);
  const std::uint32_t n = ranks();
  constexpr std::uint64_t kLeast = 1024;
  const std::uint64_t most = std::max(kLeast, 4 * plan_.chunk / n / size);
  std::vector<std::byte> passing((n - 1) * std::min(most, count) * size);
  for (std::uint64_t begin = 0; begin < count; begin += most) {
    const std::uint64_t columns = std::min(most, count - begin);
    const auto piece = [&](std::uint32_t position) { return in + (at(position) * count + begin) * size; };
    std::vector<Step> steps;
    // The piece of position p starts at its next, and is whole at p.
    for (std::uint32_t s = 0; s + 1 < n; ++s) {
      std::byte* const scratch = passing.data() + s * columns * size;
      steps.push_back({.out = s == 0 ? piece(topology_.position + n - 1) : scratch - columns * size,
                       .out_bytes = columns * size,
                       .after = static_cast<std::int64_t>(s) - 1,
                       .in = s + 2 == n ? out + begin * size : scratch,
                       .over = -1,
                       .in_bytes = columns * size,
                       .own = piece(topology_.position + 2 * n - 2 - s),
                       .gate = 0});
    }
    if (!ring_->run(call, type, steps)) return false;
  }
  return true;
}

int Communicator::reduce_scatter(const std::byte* in, std::byte* out, std::uint64_t count, Type type) {
  if (ranks() == 1 && count > 0) std::memcpy(out, in, count * size_of(type));
  return call(Kind::kReduceScatter, count, type, 0,
              [&](const Call& call) { return scatter_columns(call, in, out, count, type); });
}

bool Communicator::gather(const Call& call, std::byte* out, std::uint64_t count, Type type) {
  const std::size_t bytes = count * size_of(type);
  const std::uint32_t n = ranks();
  std::vector<Step> steps;
  for (std::uint32_t s = 0; s + 1 < n; ++s)
    steps.push_back({.out = out + at(topology_.position + n - s) * bytes,
                     .out_bytes = bytes,
                     .after = static_cast<std::int64_t>(s) - 1,
                     .in = out + at(topology_.position + n - s - 1) * bytes,
                     .over = -1,
                     .in_bytes = bytes,
                     .own = nullptr,
                     .gate = 0});
  return ring_->run(call, type, steps);
}

int Communicator::allgather(const std::byte* in, std::byte* out, std::uint64_t count, Type type) {
  const std::size_t bytes = count * size_of(type);
  std::byte* const place = out + topology_.rank * bytes;
  if (bytes > 0 && in != place) std::memmove(place, in, bytes);
  return call(Kind::kAllgather, count, type, 0, [&](const Call& call) { return gather(call, out, count, type); });
}

int Communicator::broadcast(std::byte* data, std::uint64_t count, Type type, std::uint32_t root) {
  return call(Kind::kBroadcast, count, type, root, [&](const Call& call) {
    const std::size_t bytes = count * size_of(type);
    const bool first = topology_.rank == root;
    const bool last = at(topology_.position + 1) == root;
    const Step step{.out = data,
                    .out_bytes = last ? 0 : bytes,
                    .after = first ? -1 : 0,
                    .in = data,
                    .over = -1,
                    .in_bytes = first ? 0 : bytes,
                    .own = nullptr,
                    .gate = 0};
    return ring_->run(call, type, {step});
  });
}

}  // namespace paceline::comm
