// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator/communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>

#include "comm/bootstrap/share_memory.hpp"
#include "comm/plan/tune.hpp"
#include "comm/transport/shm/shm_link.hpp"

namespace paceline::comm {

namespace {

// The places where ranks are: those that share memory have the same. Fills in the plan, as arrange
// does.
struct Place {
  Topology topology;
  std::unique_ptr<Region> region;
  std::string note;
};

std::expected<Place, Error> settle(const Store& store, std::uint32_t rank, Plan& plan,
                                   const std::vector<Card>& cards, base::Fd& door,
                                   Clock::time_point deadline) {
  std::vector<std::string> hosts;
  for (const Card& card : cards) hosts.push_back(card.host);
  const auto apart = [&](std::uint32_t one) { hosts[one] += "/rank-" + std::to_string(one); };
  if (plan.memory == Memory::kTcp)
    for (std::uint32_t one = 0; one < cards.size(); ++one) apart(one);
  Plan tried = plan;
  Place place{.topology = arrange(tried, hosts, rank), .region = nullptr, .note = {}};
  auto shared =
      share_region(store, place.topology, cards, door,
                   tried.algorithm == Algorithm::kHierarchical ? tried.chunk : 0, deadline);
  if (!shared) return std::unexpected(shared.error());
  place.region = std::move(shared->region);
  for (const auto& group : place.topology.groups) {
    const auto refused = std::ranges::find_if(
        group, [&](std::uint32_t one) { return !shared->refusals[one].empty(); });
    if (refused == group.end()) continue;
    for (const std::uint32_t one : group) apart(one);
    place.note += " # rank " + std::to_string(*refused) +
                  " shares no memory, nor do others of its host: " + shared->refusals[*refused];
  }
  place.topology = arrange(plan, hosts, rank);
  return place;
}

std::expected<Plan, Error> planned(const Options& options) {
  auto plan = parse_plan(options.plan, options.ranks);
  if (!plan) return std::unexpected(Error{PACELINE_EINVAL, -1, plan.error()});
  if (plan->flows != 0 && options.flows != 0 && plan->flows != options.flows)
    return std::unexpected(Error{PACELINE_EINVAL, -1,
                                 "flows: " + std::to_string(options.flows) +
                                     " where the plan says flows=" + std::to_string(plan->flows) +
                                     ": give one of them"});
  if (plan->flows == 0) plan->flows = options.flows;
  return std::move(*plan);
}

// As many over each: the slowest has its share of a stripe like the others.
std::uint32_t flows_over(std::size_t endpoints) {
  // what a network gives one connection is often less than what it has
  constexpr std::size_t kLeast = 4;
  return static_cast<std::uint32_t>(
      std::min<std::size_t>((kLeast + endpoints - 1) / endpoints * endpoints, kMostFlows));
}

std::string note_of(const std::vector<Endpoint>& endpoints, std::size_t own) {
  std::string note;
  if (endpoints.size() > 1) {
    note +=
        " # flows go over " + std::to_string(endpoints.size()) + " addresses of each rank, here";
    for (const Endpoint& one : endpoints) note += " " + one.address;
  }
  if (own > endpoints.size())
    note += " # " + std::to_string(endpoints.size()) + " of " + std::to_string(own) +
            " addresses used: others are also another host's, or a rank has fewer";
  return note;
}

}  // namespace

Communicator::Communicator(const Options& options, Plan plan, bool pinned, Topology topology,
                           std::size_t endpoints, std::string note)
    : options_(options),
      plan_(std::move(plan)),
      pinned_(pinned),
      note_(std::move(note)),
      topology_(std::move(topology)),
      endpoints_(endpoints) {}

Communicator::~Communicator() {
  if (!queue_.idle()) give_up("it left while collectives were under way");
  queue_.drain();
  // The watch's thread wakes members of the others: it ends before they do.
  if (watch_ != nullptr) watch_->stop();
}

std::expected<std::unique_ptr<Communicator>, Error> Communicator::create(
    const Options& options, const paceline_comm_store& store) {
  const auto deadline = Clock::now() + options.timeout;
  const Store named{store, options.name};
  const auto refuse = [&](Error why) {
    comm::refuse(named, options.rank, why.text);
    return std::unexpected(std::move(why));
  };
  auto plan = planned(options);
  if (!plan) return refuse(plan.error());
  Card card;
  card.host = options.host;
  card.agreed = std::to_string(options.ranks) + " ranks, " + print_plan(*plan) +
                " silence_ms=" + std::to_string(options.silence.count());
  auto rdma = open_for_card(plan->transport, card);
  auto doors = open_doors(card, options.address);
  if (!doors) return refuse(doors.error());
  const bool pinned = plan->algorithm != Algorithm::kAuto;
  auto cards = comm::exchange(named, options.rank, options.ranks, card, deadline);
  if (!cards) return std::unexpected(cards.error());
  if (auto possible = check_transport(plan->transport, *cards); !possible)
    return std::unexpected(possible.error());
  pair_endpoints(*cards);
  const std::vector<Endpoint> endpoints = (*cards)[options.rank].endpoints;
  if (plan->flows == 0) plan->flows = flows_over(endpoints.size());
  auto place = settle(named, options.rank, *plan, *cards, doors->memory, deadline);
  if (!place) return std::unexpected(place.error());
  if (plan->flows != 0) place->note += note_of(endpoints, doors->tcp.size());
  std::unique_ptr<Communicator> made(new Communicator(options, std::move(*plan), pinned,
                                                      std::move(place->topology), endpoints.size(),
                                                      std::move(place->note)));
  // Ranks of one host have no use for open devices.
  if (made->topology_.hosts() > 1) made->rdma_ = std::move(rdma);
  if (auto connected = made->connect(*cards, *doors, std::move(place->region), deadline);
      !connected)
    return std::unexpected(connected.error());
  std::vector<bool> near(options.ranks);
  for (const std::uint32_t mate : made->topology_.mates()) near[mate] = mate != options.rank;
  const Direct::Far far{.rdma = made->rdma_.get(), .transport = made->plan_.transport};
  made->direct_ = std::make_unique<Direct>(options.rank, std::move(*cards), std::move(*doors),
                                           std::move(near), far, *made->watch_);
  // Over the rings: others may not be where they answer for anything else.
  if (made->meet_all() != PACELINE_OK) return std::unexpected(made->error());
  return made;
}

std::expected<void, Error> Communicator::connect(const std::vector<Card>& cards, const Doors& doors,
                                                 std::unique_ptr<Region> region,
                                                 Clock::time_point deadline) {
  const bool hierarchical = plan_.algorithm == Algorithm::kHierarchical;
  auto wires = meet(topology_, cards, doors.tcp, plan_.flows, hierarchical, deadline);
  if (!wires) return std::unexpected(wires.error());
  watch_ = std::make_unique<Watch>(options_.rank, std::move(wires->watch), options_.silence);
  region_ = std::move(region);
  if (hierarchical && topology_.mates().size() == 1) {
    region_ = Region::alone(plan_.chunk);
    if (region_ == nullptr)
      return std::unexpected(
          Error{PACELINE_ESYSTEM, -1, std::string("memory for chunks: ") + std::strerror(errno)});
  }
  return make_rings(std::move(*wires), cards, deadline);
}

std::expected<void, Error> Communicator::make_rings(Wires wires, const std::vector<Card>& cards,
                                                    Clock::time_point deadline) {
  const std::uint32_t next = at(topology_.position + 1);
  const std::uint32_t previous = at(topology_.position + ranks() - 1);
  std::array<Hop, 4> hops{
      {{.peer = next, .sends = true, .flows = std::move(wires.to_next)},
       {.peer = previous, .sends = false, .flows = std::move(wires.from_previous)},
       {.peer = 0, .sends = true, .flows = std::move(wires.lane_to_next)},
       {.peer = 0, .sends = false, .flows = std::move(wires.lane_from_previous)}}};
  auto& [to_next, from_previous, lane_to_next, lane_from_previous] = hops;
  if (lane_to_next.is_far()) {
    lane_to_next.peer = comm::lane_next(topology_);
    lane_from_previous.peer = comm::lane_previous(topology_);
  }
  if (auto settled =
          settle_hops(hops, options_.rank, cards, rdma_.get(), plan_.transport, *watch_, deadline);
      !settled)
    return settled;
  if (plan_.transport != Transport::kTcp) ways_ = describe_hops(hops, options_.rank, rdma_.get());
  descriptors_ = files_of(hops, rdma_.get());
  if (ranks() > 1) {
    std::unique_ptr<SendLink> sender;
    std::unique_ptr<ReceiveLink> receiver;
    const auto& mates = topology_.mates();
    if (to_next.is_far()) {
      sender = make_sender(std::move(to_next), *watch_);
    } else {
      sender = std::make_unique<ShmSender>(region_->pipe(topology_.local), next, *watch_);
    }
    if (from_previous.is_far()) {
      receiver = make_receiver(std::move(from_previous), *watch_);
    } else {
      const auto place = std::find(mates.begin(), mates.end(), previous) - mates.begin();
      receiver = std::make_unique<ShmReceiver>(region_->pipe(static_cast<std::uint32_t>(place)),
                                               previous, *watch_);
    }
    ring_ = std::make_unique<Ring>(std::move(sender), std::move(receiver), *watch_);
  }
  if (lane_to_next.is_far())
    lane_ = std::make_unique<Ring>(make_sender(std::move(lane_to_next), *watch_),
                                   make_receiver(std::move(lane_from_previous), *watch_), *watch_);
  if (plan_.algorithm == Algorithm::kHierarchical)
    stage_ = std::make_unique<HostStage>(topology_, *region_, lane_.get(), *watch_);
  return {};
}

std::string Communicator::plan() const {
  const std::string pairs = direct_ == nullptr ? "" : direct_->note();
  const std::lock_guard lock(mutex_);
  return print_plan(plan_) + note_ + ways_ + (pairs.empty() ? "" : " # " + pairs);
}

std::string Communicator::shape() const {
  std::string text;
  for (const auto& group : topology_.groups)
    text += (text.empty() ? "" : ",") + std::to_string(group.size());
  return endpoints_ > 1 ? text + "/" + std::to_string(endpoints_) : text;
}

Error Communicator::error() const {
  if (!watch_->failed()) return {};
  const Failure failure = watch_->failure();
  return {PACELINE_COMM_EPEER, failure.rank, failure.text};
}

void Communicator::give_up(const std::string& why) { watch_->give_up(why); }

void Communicator::forked() {
  for (const int file : descriptors_) ::close(file);
  descriptors_.clear();
  direct_->forked();
  watch_->forked();
}

template <typename Work>
int Communicator::call(Kind kind, std::uint64_t count, Type type, std::uint64_t root,
                       const Work& work) {
  queue_.drain();
  return call_now(kind, count, type, root, work);
}

int Communicator::call_all(Kind kind, std::uint64_t count, Type type, std::uint64_t root,
                           const std::function<bool(const Call&)>& work) {
  return call(kind, count, type, root, work);
}

template <typename Work>
std::uint64_t Communicator::start(Kind kind, std::uint64_t count, Type type, std::uint64_t root,
                                  const Work& work) {
  return queue_.add([this, kind, count, type, root, work]() -> int {
    try {
      return call_now(kind, count, type, root, work);
    } catch (const std::exception& error) {
      // Peers are in this call, and would wait for this rank.
      give_up(error.what());
      return PACELINE_ESYSTEM;
    }
  });
}

std::uint64_t Communicator::start_allreduce(std::byte* data, std::uint64_t count, Type type) {
  return start(Kind::kAllreduce, count, type, 0, [this, data, count, type](const Call& call) {
    return sum_up(call, data, count, type);
  });
}

std::uint64_t Communicator::start_coded_allreduce(float* data, std::uint64_t count,
                                                  const Coding& coding, float* rest) {
  // Also told where it makes no difference: what ranks mean to do must be the same.
  return start(Kind::kAllreduce, count, Type::kF32, coding.id(),
               [this, data, count, coding, rest](const Call& call) {
                 if (topology_.hosts() == 1)
                   return sum_up(call, reinterpret_cast<std::byte*>(data), count, Type::kF32);
                 return sum_coded(call, data, count, coding, rest);
               });
}

std::uint64_t Communicator::rest_count(std::uint64_t count) const {
  if (topology_.hosts() == 1) return 0;
  // Never by choice: a rest lies where the chunks are.
  return stage_ != nullptr ? stage_->rest_count(count, plan_.chunk) : count;
}

bool Communicator::sum_coded(const Call& call, float* data, std::uint64_t count,
                             const Coding& coding, float* rest) {
  if (stage_ != nullptr) {
    const CodedRing ring(coding, topology_.hosts(), topology_.group);
    return stage_->allreduce_coded(call, ring, data, count, plan_.chunk, rest);
  }
  const CodedRing ring(coding, ranks(), topology_.position);
  constexpr std::uint64_t kMost = 64UL << 20;  // values at a time: what goes around needs memory
  std::vector<std::byte> buffer(ring.bytes(std::min(count, kMost)));
  for (std::uint64_t at = 0; at < count; at += kMost) {
    const std::uint64_t some = std::min(kMost, count - at);
    std::vector<Step> steps;
    float* const lost = rest + at * coding.rests();
    ring.begin(data + at, lost, buffer.data(), some);
    ring.add_steps(steps, data + at, lost, buffer.data(), some, 0);
    if (!ring_->run(call, Type::kF32, steps)) return false;
    ring.end(buffer.data(), data + at, some);
  }
  return true;
}

int Communicator::wait(std::uint64_t ticket) {
  int code = PACELINE_OK;
  return queue_.wait(ticket, code) ? code : PACELINE_EINVAL;
}

template <typename Work>
int Communicator::call_now(Kind kind, std::uint64_t count, Type type, std::uint64_t root,
                           const Work& work) {
  const std::lock_guard lock(mutex_);
  const Call call{.sequence = ++sequence_,
                  .kind = kind,
                  .type = static_cast<std::uint32_t>(type),
                  .count = count,
                  .root = root};
  if (ranks() == 1) return PACELINE_OK;
  if (!watch_->begin(call, Clock::now() + options_.timeout)) return PACELINE_COMM_EPEER;
  stripe(0);
  // Nothing to move is no reason not to notice that others have.
  const bool done = count == 0 || work(call);
  watch_->end();
  return done ? PACELINE_OK : PACELINE_COMM_EPEER;
}

bool Communicator::sum_up(const Call& call, std::byte* data, std::uint64_t count, Type type) {
  return sum_as(way_of(plan_, count * size_of(type)), call, data, count, type);
}

void Communicator::stripe(std::uint32_t flows) {
  for (Ring* const ring : {ring_.get(), lane_.get()})
    if (ring != nullptr) ring->stripe(flows);
}

bool Communicator::sum_as(const Way& way, const Call& call, std::byte* data, std::uint64_t count,
                          Type type) {
  stripe(way.flows);
  if (way.algorithm == Algorithm::kHierarchical)
    return stage_->allreduce(call, type, data, count, way.chunk);
  if (way.algorithm == Algorithm::kDoubling) return sum_doubling(call, data, count, type);
  if (way.algorithm == Algorithm::kTree) return sum_tree(call, data, count, type);
  std::vector<Step> steps;
  add_allreduce(steps, data, count, size_of(type), ranks(), topology_.position);
  return ring_->run(call, type, steps);
}

int Communicator::allreduce(std::byte* data, std::uint64_t count, Type type) {
  return call(Kind::kAllreduce, count, type, 0,
              [&](const Call& call) { return sum_up(call, data, count, type); });
}

std::optional<std::vector<Choice>> Communicator::measure(std::chrono::milliseconds budget) {
  std::vector<Way> candidates;
  for (const Algorithm one : {Algorithm::kFlat, Algorithm::kDoubling, Algorithm::kTree})
    candidates.push_back({.algorithm = one, .chunk = plan_.chunk});
  for (std::uint64_t chunk = plan_.chunk;
       stage_ != nullptr && chunk >= std::max(plan_.chunk / 16, kLeastChunk) && chunk % 64 == 0;
       chunk /= 4)
    candidates.push_back({.algorithm = Algorithm::kHierarchical, .chunk = chunk});
  std::vector<std::uint32_t> fewer;
  for (std::uint32_t flows = plan_.flows / 2; flows > 0; flows /= 2) fewer.push_back(flows);
  std::vector<float> data(kLargestTrial / sizeof(float));
  return choose(
      candidates, fewer, budget, [&](const Way& way, std::uint64_t bytes) -> std::optional<double> {
        // Small ones are over before a clock is sure of it.
        const int times = static_cast<int>(std::clamp<std::uint64_t>((256UL << 10) / bytes, 1, 6));
        if (barrier() != PACELINE_OK) return std::nullopt;
        const auto begin = Clock::now();
        for (int i = 0; i < times; ++i) {
          const auto once = [&](const Call& call) {
            return sum_as(way, call, reinterpret_cast<std::byte*>(data.data()),
                          bytes / sizeof(float), Type::kF32);
          };
          if (call(Kind::kAllreduce, bytes / sizeof(float), Type::kF32, 0, once) != PACELINE_OK)
            return std::nullopt;
        }
        double seconds = std::chrono::duration<double>(Clock::now() - begin).count() / times;
        if (allreduce(reinterpret_cast<std::byte*>(&seconds), 1, Type::kF64) != PACELINE_OK)
          return std::nullopt;
        return seconds / ranks();
      });
}

std::expected<std::string, int> Communicator::tune(const std::string& known,
                                                   std::chrono::milliseconds budget) {
  if (ranks() == 1) return "0:flat";
  if (pinned_ && stage_ == nullptr) {
    const std::lock_guard lock(mutex_);
    return print_choices(plan_.choices.empty()
                             ? std::vector<Choice>{{0, {plan_.algorithm, plan_.chunk, 0}}}
                             : plan_.choices);
  }
  // What rank 0 knows, all use, or all measure.
  constexpr std::size_t kMost = 1024;
  std::array<char, kMost> told{};
  known.copy(told.data(), kMost - 1);
  if (const int code =
          broadcast(reinterpret_cast<std::byte*>(told.data()), kMost / 8, Type::kI64, 0);
      code != 0)
    return std::unexpected(code);
  std::optional<std::vector<Choice>> choices;
  if (auto parsed = parse_choices(told.data(), plan_.chunk); parsed && can_go(plan_, *parsed))
    choices = std::move(*parsed);
  if (!choices) choices = measure(budget);
  if (!choices) return std::unexpected(PACELINE_COMM_EPEER);
  const std::lock_guard lock(mutex_);
  plan_.choices = std::move(*choices);
  return print_choices(plan_.choices);
}

int Communicator::meet_all() {
  const Way way{stage_ != nullptr ? Algorithm::kHierarchical : Algorithm::kFlat, plan_.chunk, 0};
  std::int32_t one = 1;
  return call(Kind::kBarrier, 1, Type::kI32, 0, [&](const Call& call) {
    return sum_as(way, call, reinterpret_cast<std::byte*>(&one), 1, Type::kI32);
  });
}

int Communicator::barrier() {
  std::int32_t one = 1;
  return call(Kind::kBarrier, 1, Type::kI32, 0, [&](const Call& call) {
    return sum_up(call, reinterpret_cast<std::byte*>(&one), 1, Type::kI32);
  });
}

// A few columns of every piece at a time: what passes through this rank needs memory.
bool Communicator::scatter_columns(const Call& call, const std::byte* in, std::byte* out,
                                   std::uint64_t count, Type type) {
  const std::size_t size = size_of(type);
  const std::uint32_t n = ranks();
  constexpr std::uint64_t kLeast = 1024;
  const std::uint64_t most = std::max(kLeast, 4 * plan_.chunk / n / size);
  std::vector<std::byte> passing((n - 1) * std::min(most, count) * size);
  for (std::uint64_t begin = 0; begin < count; begin += most) {
    const std::uint64_t columns = std::min(most, count - begin);
    const auto piece = [&](std::uint32_t position) {
      return in + (at(position) * count + begin) * size;
    };
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

int Communicator::reduce_scatter(const std::byte* in, std::byte* out, std::uint64_t count,
                                 Type type) {
  if (ranks() == 1 && count > 0) std::memcpy(out, in, count * size_of(type));
  return call(Kind::kReduceScatter, count, type, 0,
              [&](const Call& call) { return scatter_columns(call, in, out, count, type); });
}

bool Communicator::gather_parts(const Call& call, std::byte* out,
                                const std::vector<std::uint64_t>& ends) {
  const std::uint32_t n = ranks();
  std::vector<Step> steps;
  for (std::uint32_t s = 0; s + 1 < n; ++s) {
    const std::uint32_t sent = at(topology_.position + n - s);
    const std::uint32_t got = at(topology_.position + n - s - 1);
    steps.push_back({.out = out + ends[sent],
                     .out_bytes = ends[sent + 1] - ends[sent],
                     .after = static_cast<std::int64_t>(s) - 1,
                     .in = out + ends[got],
                     .over = -1,
                     .in_bytes = ends[got + 1] - ends[got],
                     .own = nullptr,
                     .gate = 0});
  }
  return ring_->run(call, Type::kI32, steps);
}

bool Communicator::gather_pieces(const Call& call, std::byte* out, std::uint64_t count, Type type) {
  std::vector<std::uint64_t> ends(ranks() + 1);
  for (std::uint32_t rank = 0; rank <= ranks(); ++rank) ends[rank] = rank * count * size_of(type);
  return gather_parts(call, out, ends);
}

int Communicator::allgather(const std::byte* in, std::byte* out, std::uint64_t count, Type type) {
  const std::size_t bytes = count * size_of(type);
  std::byte* const place = out + topology_.rank * bytes;
  if (bytes > 0 && in != place) std::memmove(place, in, bytes);
  return call(Kind::kAllgather, count, type, 0,
              [&](const Call& call) { return gather_pieces(call, out, count, type); });
}

bool Communicator::pass_on(const Call& call, std::byte* data, std::uint64_t count, Type type,
                           std::uint32_t root) {
  const std::size_t bytes = count * size_of(type);
  if (is_small(way_of(plan_, bytes).algorithm))
    return broadcast_tree(call, data, bytes, position_of(root));
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
}

int Communicator::broadcast(std::byte* data, std::uint64_t count, Type type, std::uint32_t root) {
  return call(Kind::kBroadcast, count, type, root,
              [&](const Call& call) { return pass_on(call, data, count, type, root); });
}

std::uint32_t Communicator::position_of(std::uint32_t rank) const {
  return static_cast<std::uint32_t>(std::ranges::find(topology_.order, rank) -
                                    topology_.order.begin());
}

// Around the ring once, from the root's next to the root; what passes through a rank needs memory.
bool Communicator::reduce_ring(const Call& call, std::byte* data, std::uint64_t count, Type type,
                               std::uint32_t root) {
  const std::size_t size = size_of(type);
  const std::uint64_t most = std::max<std::uint64_t>(1, 4 * plan_.chunk / size);
  const bool first = at(topology_.position + ranks() - 1) == root;
  const bool last = topology_.rank == root;
  std::vector<std::byte> passing(first || last ? 0 : std::min(most, count) * size);
  for (std::uint64_t begin = 0; begin < count; begin += most) {
    const std::uint64_t bytes = std::min(most, count - begin) * size;
    std::byte* const own = data + begin * size;
    std::byte* const sum = first || last ? own : passing.data();
    const Step step{.out = sum,
                    .out_bytes = last ? 0 : bytes,
                    .after = first ? -1 : 0,
                    .in = sum,
                    .over = -1,
                    .in_bytes = first ? 0 : bytes,
                    .own = own,
                    .gate = 0};
    if (!ring_->run(call, type, {step})) return false;
  }
  return true;
}

int Communicator::reduce(std::byte* data, std::uint64_t count, Type type, std::uint32_t root) {
  return call(Kind::kReduce, count, type, root, [&](const Call& call) {
    const std::size_t bytes = count * size_of(type);
    if (!is_small(way_of(plan_, bytes).algorithm))
      return reduce_ring(call, data, count, type, root);
    if (topology_.rank == root) return reduce_tree(call, data, count, type, topology_.position);
    std::vector<std::byte> sums(data, data + bytes);
    return reduce_tree(call, sums.data(), count, type, position_of(root));
  });
}

}  // namespace paceline::comm
