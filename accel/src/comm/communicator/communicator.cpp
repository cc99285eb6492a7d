// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator/communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>

#include "comm/bootstrap/share_memory.hpp"
#include "comm/transport/shm/shm_link.hpp"

namespace paceline::comm {

namespace {

// The group of each rank: ranks that share memory have the same. Fills in the plan, as arrange
// does.
struct Place {
  Topology topology;
  std::unique_ptr<Region> region;
  std::string note;
};

std::expected<Place, Error> settle(const Store& store, std::uint32_t rank, Plan& plan,
                                   const std::vector<PeerInfo>& peers, base::Fd& listener,
                                   Clock::time_point deadline) {
  std::vector<std::string> hosts;
  for (const PeerInfo& info : peers) hosts.push_back(info.host);
  const auto apart = [&](std::uint32_t one) { hosts[one] += "/rank-" + std::to_string(one); };
  if (plan.memory == Memory::kTcp)
    for (std::uint32_t one = 0; one < peers.size(); ++one) apart(one);
  Plan tried = plan;
  Place place{.topology = arrange(tried, hosts, rank), .region = nullptr, .note = {}};
  auto shared =
      share_region(store, place.topology, peers, listener,
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

// The same number of connections over each endpoint, since the slowest gets an equal share of a
// stripe.
std::uint32_t flows_over(std::size_t endpoints) {
  // A network often gives one connection less than its whole bandwidth.
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
  // Stop the failure detector first: its thread wakes the members declared after it.
  if (detector_ != nullptr) detector_->stop();
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
  PeerInfo info;
  info.host = options.host;
  info.agreed = std::to_string(options.ranks) + " ranks, " + print_plan(*plan) +
                " heartbeat_timeout_ms=" + std::to_string(options.heartbeat_timeout.count());
  auto rdma = open_rdma_for(plan->transport, info);
  auto listeners = open_listeners(info, options.address);
  if (!listeners) return refuse(listeners.error());
  const bool pinned = plan->algorithm != Algorithm::kAuto;
  auto peers = comm::exchange(named, options.rank, options.ranks, info, deadline);
  if (!peers) return std::unexpected(peers.error());
  if (auto possible = check_transport(plan->transport, *peers); !possible)
    return std::unexpected(possible.error());
  pair_endpoints(*peers);
  const std::vector<Endpoint> endpoints = (*peers)[options.rank].endpoints;
  if (plan->flows == 0) plan->flows = flows_over(endpoints.size());
  auto place = settle(named, options.rank, *plan, *peers, listeners->memory, deadline);
  if (!place) return std::unexpected(place.error());
  if (plan->flows != 0) place->note += note_of(endpoints, listeners->tcp.size());
  std::unique_ptr<Communicator> made(new Communicator(options, std::move(*plan), pinned,
                                                      std::move(place->topology), endpoints.size(),
                                                      std::move(place->note)));
  // Ranks of one host do not need RDMA devices open.
  if (made->topology_.hosts() > 1) made->rdma_ = std::move(rdma);
  if (auto connected = made->connect(*peers, *listeners, std::move(place->region), deadline);
      !connected)
    return std::unexpected(connected.error());
  std::vector<bool> near(options.ranks);
  for (const std::uint32_t mate : made->topology_.mates()) near[mate] = mate != options.rank;
  const Direct::InterNode inter_node{.rdma = made->rdma_.get(), .transport = made->plan_.transport};
  made->direct_ = std::make_unique<Direct>(options.rank, std::move(*peers), std::move(*listeners),
                                           std::move(near), inter_node, *made->detector_);
  // A barrier over the rings, since other ranks may not answer anything else yet.
  if (made->first_barrier() != PACELINE_OK) return std::unexpected(made->error());
  return made;
}

std::expected<void, Error> Communicator::connect(const std::vector<PeerInfo>& peers,
                                                 const Listeners& listeners,
                                                 std::unique_ptr<Region> region,
                                                 Clock::time_point deadline) {
  const bool hierarchical = plan_.algorithm == Algorithm::kHierarchical;
  auto connections =
      connect_ranks(topology_, peers, listeners.tcp, plan_.flows, hierarchical, deadline);
  if (!connections) return std::unexpected(connections.error());
  detector_ = std::make_unique<FailureDetector>(options_.rank, std::move(connections->detector),
                                                options_.heartbeat_timeout);
  region_ = std::move(region);
  if (hierarchical && topology_.mates().size() == 1) {
    region_ = Region::alone(plan_.chunk);
    if (region_ == nullptr)
      return std::unexpected(
          Error{PACELINE_ESYSTEM, -1, std::string("memory for chunks: ") + std::strerror(errno)});
  }
  return make_rings(std::move(*connections), peers, deadline);
}

std::expected<void, Error> Communicator::make_rings(Connections connections,
                                                    const std::vector<PeerInfo>& peers,
                                                    Clock::time_point deadline) {
  const std::uint32_t next = at(topology_.position + 1);
  const std::uint32_t previous = at(topology_.position + ranks() - 1);
  std::array<Hop, 4> hops{
      {{.peer = next, .sends = true, .flows = std::move(connections.to_next)},
       {.peer = previous, .sends = false, .flows = std::move(connections.from_previous)},
       {.peer = 0, .sends = true, .flows = std::move(connections.channel_to_next)},
       {.peer = 0, .sends = false, .flows = std::move(connections.channel_from_previous)}}};
  auto& [to_next, from_previous, channel_to_next, channel_from_previous] = hops;
  if (channel_to_next.is_inter_node()) {
    channel_to_next.peer = comm::channel_next(topology_);
    channel_from_previous.peer = comm::channel_previous(topology_);
  }
  if (auto settled = agree_on_hops(hops, options_.rank, peers, rdma_.get(), plan_.transport,
                                   *detector_, deadline);
      !settled)
    return settled;
  if (plan_.transport != Transport::kTcp) ways_ = describe_hops(hops, options_.rank, rdma_.get());
  descriptors_ = files_of(hops, rdma_.get());
  if (ranks() > 1) {
    std::unique_ptr<SendLink> sender;
    std::unique_ptr<ReceiveLink> receiver;
    const auto& mates = topology_.mates();
    if (to_next.is_inter_node()) {
      sender = make_sender(std::move(to_next), *detector_);
    } else {
      sender = std::make_unique<ShmSender>(region_->pipe(topology_.local), next, *detector_);
    }
    if (from_previous.is_inter_node()) {
      receiver = make_receiver(std::move(from_previous), *detector_);
    } else {
      const auto place = std::find(mates.begin(), mates.end(), previous) - mates.begin();
      receiver = std::make_unique<ShmReceiver>(region_->pipe(static_cast<std::uint32_t>(place)),
                                               previous, *detector_);
    }
    ring_ = std::make_unique<Ring>(std::move(sender), std::move(receiver), *detector_);
  }
  if (channel_to_next.is_inter_node())
    channel_ = std::make_unique<Ring>(make_sender(std::move(channel_to_next), *detector_),
                                      make_receiver(std::move(channel_from_previous), *detector_),
                                      *detector_);
  if (plan_.algorithm == Algorithm::kHierarchical)
    stage_ = std::make_unique<HostStage>(topology_, *region_, channel_.get(), *detector_);
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
  if (!detector_->failed()) return {};
  const Failure failure = detector_->failure();
  return {PACELINE_COMM_EPEER, failure.rank, failure.text};
}

void Communicator::give_up(const std::string& why) { detector_->give_up(why); }

void Communicator::forked() {
  for (const int file : descriptors_) ::close(file);
  descriptors_.clear();
  direct_->forked();
  detector_->forked();
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
      // The peers are in this call and would wait for this rank.
      give_up(error.what());
      return PACELINE_ESYSTEM;
    }
  });
}

std::uint64_t Communicator::start_all_reduce(std::byte* data, std::uint64_t count, Type type) {
  return start(Kind::kAllReduce, count, type, 0, [this, data, count, type](const Call& call) {
    return sum_up(call, data, count, type);
  });
}

std::uint64_t Communicator::start_coded_all_reduce(float* data, std::uint64_t count,
                                                   const Coding& coding, float* residual) {
  // The coding goes into the call even where it changes nothing, because all ranks must ask for the
  // same.
  return start(Kind::kAllReduce, count, Type::kF32, coding.id(),
               [this, data, count, coding, residual](const Call& call) {
                 if (topology_.hosts() == 1)
                   return sum_up(call, reinterpret_cast<std::byte*>(data), count, Type::kF32);
                 return sum_coded(call, data, count, coding, residual);
               });
}

std::uint64_t Communicator::residual_count(std::uint64_t count) const {
  if (topology_.hosts() == 1) return 0;
  // The plan's way is fixed here, because a residual is laid out by chunks.
  return stage_ != nullptr ? stage_->residual_count(count, plan_.chunk) : count;
}

bool Communicator::sum_coded(const Call& call, float* data, std::uint64_t count,
                             const Coding& coding, float* residual) {
  if (stage_ != nullptr) {
    const CodedRing ring(coding, topology_.hosts(), topology_.group);
    return stage_->all_reduce_coded(call, ring, data, count, plan_.chunk, residual);
  }
  const CodedRing ring(coding, ranks(), topology_.position);
  constexpr std::uint64_t kMost =
      64UL << 20;  // values at a time, to limit the memory for what goes around
  std::vector<std::byte> buffer(ring.bytes(std::min(count, kMost)));
  for (std::uint64_t at = 0; at < count; at += kMost) {
    const std::uint64_t some = std::min(kMost, count - at);
    std::vector<Step> steps;
    float* const lost = residual + at * coding.residuals();
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
  if (!detector_->begin(call, Clock::now() + options_.timeout)) return PACELINE_COMM_EPEER;
  stripe(0);
  // Compare calls even when the count is 0, so that mismatched ranks are found.
  const bool done = count == 0 || work(call);
  detector_->end();
  return done ? PACELINE_OK : PACELINE_COMM_EPEER;
}

bool Communicator::sum_up(const Call& call, std::byte* data, std::uint64_t count, Type type) {
  return sum_as(way_of(plan_, count * size_of(type)), call, data, count, type);
}

void Communicator::stripe(std::uint32_t flows) {
  for (Ring* const ring : {ring_.get(), channel_.get()})
    if (ring != nullptr) ring->stripe(flows);
}

bool Communicator::sum_as(const Way& way, const Call& call, std::byte* data, std::uint64_t count,
                          Type type) {
  stripe(way.flows);
  if (way.algorithm == Algorithm::kHierarchical)
    return stage_->all_reduce(call, type, data, count, way.chunk);
  if (way.algorithm == Algorithm::kDoubling) return sum_doubling(call, data, count, type);
  if (way.algorithm == Algorithm::kTree) return sum_tree(call, data, count, type);
  std::vector<Step> steps;
  add_all_reduce(steps, data, count, size_of(type), ranks(), topology_.position);
  return ring_->run(call, type, steps);
}

int Communicator::all_reduce(std::byte* data, std::uint64_t count, Type type) {
  return call(Kind::kAllReduce, count, type, 0,
              [&](const Call& call) { return sum_up(call, data, count, type); });
}

int Communicator::first_barrier() {
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

}  // namespace paceline::comm
