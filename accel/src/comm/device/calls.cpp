// SPDX-License-Identifier: Apache-2.0
// The communicator's calls for memory of GPUs: whether all ranks can is agreed by collectives of
// the processors' memory, and so is told by all alike.
#include <algorithm>
#include <array>
#include <vector>

#include "../communicator.hpp"
#include "device_stage.hpp"
#include "table.hpp"

namespace paceline::comm {
namespace {

// A device moves a chunk in less time than its host needs to hear of it. With several hosts the
// rings' parts, and so the bits, hang on the size.
constexpr std::size_t kChunksAtOnce = 4;

void refuse(device::PoolCard& card, const std::string& why) {
  why.copy(card.refusal.data(), card.refusal.size() - 1);
}

struct EndOfPool {
  std::unique_ptr<device::Pool>& pool;
  const Watch& watch;
  ~EndOfPool() { device::end_by(Clock::now() + watch.silence(), std::move(pool)); }
};

std::string first_refusal(const std::vector<device::PoolCard>& cards) {
  for (std::uint32_t rank = 0; rank < cards.size(); ++rank)
    if (cards[rank].refusal[0] != '\0') return rank_name(rank) + ": " + cards[rank].refusal.data();
  return {};
}

}  // namespace

std::expected<void, Error> Communicator::open_device(int device, const std::string& folder) {
  const auto refused = [](const std::string& why) {
    return std::unexpected(Error{PACELINE_EDEVICE, -1, why});
  };
  if (device_ != nullptr)
    return std::unexpected(Error{PACELINE_EINVAL, -1, "this communicator has a device already"});
  if (stage_ == nullptr && ranks() > 1)
    return refused(
        "allreduces of this communicator go around one ring: GPUs need algorithm=hierarchical in "
        "the plan");
  if (region_ == nullptr) region_ = Region::alone(0);
  if (region_ == nullptr)
    return std::unexpected(Error{PACELINE_ESYSTEM, -1, "no memory for counters"});
  const auto tell_all = [&](const device::PoolCard& card, std::vector<device::PoolCard>& all) {
    static_assert(sizeof(device::PoolCard) % sizeof(std::int64_t) == 0);
    return allgather(reinterpret_cast<const std::byte*>(&card),
                     reinterpret_cast<std::byte*>(all.data()), sizeof card / sizeof(std::int64_t),
                     Type::kI64);
  };
  std::vector<device::PoolCard> cards(ranks());
  device::PoolCard card;
  std::unique_ptr<device::Pool> pool;
  const EndOfPool unless_taken{pool, *watch_};
  if (topology_.mates().size() > device::kMostSources) {
    refuse(card, "it has " + std::to_string(topology_.mates().size()) +
                     " ranks on its host: there may be " + std::to_string(device::kMostSources));
  } else {
    const std::size_t chunk = plan_.chunk * (topology_.hosts() == 1 ? kChunksAtOnce : 1);
    if (auto made =
            device::Pool::make(device, folder, device::DeviceStage::size_for(topology_, chunk))) {
      pool = std::move(*made);
      card = pool->card();
    } else {
      refuse(card, made.error());
    }
  }
  if (tell_all(card, cards) != PACELINE_OK) return std::unexpected(error());
  if (const std::string why = first_refusal(cards); !why.empty()) return refused(why);
  std::vector<device::PoolCard> near;
  for (const std::uint32_t mate : topology_.mates()) near.push_back(cards[mate]);
  card = {};
  if (auto mapped = pool->map(near, topology_.local); !mapped) refuse(card, mapped.error());
  if (tell_all(card, cards) != PACELINE_OK) return std::unexpected(error());
  if (const std::string why = first_refusal(cards); !why.empty()) {
    pool->unmap();
    // Nobody frees what another one still maps.
    if (barrier() != PACELINE_OK) pool->keep_memory();
    return refused(why);
  }
  auto lane = make_device_lane(*pool);
  if (!lane) {
    pool->keep_memory();
    // And what a trial left to do uses the rest.
    if (!pool->is_idle(Clock::now() + watch_->silence())) static_cast<void>(pool.release());
    return std::unexpected(lane.error());
  }
  const std::lock_guard lock(mutex_);
  const std::size_t bytes = pool->all_bytes();
  ways_ += " # " + std::to_string(bytes) + " bytes of the GPU " + near[topology_.local].pci.data();
  device_ = std::make_unique<device::DeviceStage>(topology_, *region_, *watch_, std::move(pool),
                                                  std::move(*lane));
  return {};
}

bool Communicator::do_on_device(const Call& call, const device::Arrays& arrays, cuda::Event event) {
  const Type type = arrays.type;
  const auto root = static_cast<std::uint32_t>(call.root);
  const device::Moves moves(topology_, device_->pool());
  switch (off_device(call.kind)) {
    case Kind::kBroadcast:
      return device_->move(call,
                           moves.broadcast(arrays, root,
                                           [&](std::byte*, std::byte* data, std::uint64_t count) {
                                             return pass_on(call, data, count, type, root);
                                           }),
                           event);
    case Kind::kAllgather:
      return device_->move(call,
                           moves.allgather(arrays,
                                           [&](std::byte*, std::byte* out, std::uint64_t count) {
                                             return gather_pieces(call, out, count, type);
                                           }),
                           event);
    case Kind::kReduceScatter:
      return device_->move(
          call,
          moves.reduce_scatter(arrays,
                               [&](const std::byte* in, std::byte* out, std::uint64_t count) {
                                 return scatter_columns(call, in, out, count, type);
                               }),
          event);
    case Kind::kReduce:
      return device_->allreduce(call, type, arrays.out, arrays.count, event,
                                topology_.rank == root);
    default: return device_->allreduce(call, type, arrays.out, arrays.count, event, true);
  }
}

bool Communicator::tell_counts(const Call& call, device::Swap& swap) {
  const std::uint32_t n = ranks();
  std::vector<std::uint64_t> counts(std::size_t{n} * n);  // row r: what rank r gives to each
  std::ranges::transform(swap.given, counts.begin() + std::ptrdiff_t{topology_.rank} * n,
                         &Part::count);
  if (!gather_pieces(call, reinterpret_cast<std::byte*>(counts.data()), n, Type::kI64))
    return false;
  for (std::uint32_t one = 0; one < n; ++one) {
    const std::uint64_t told = counts[std::size_t{one} * n + topology_.rank];
    if (told == swap.taken[one].count) continue;
    watch_->fail(static_cast<int>(one), rank_name(one) + " sends " + std::to_string(told) + " " +
                                            name_of(swap.type) + " to " +
                                            rank_name(topology_.rank) + ", which receives " +
                                            std::to_string(swap.taken[one].count));
    return false;
  }
  swap.most = *std::ranges::max_element(counts);
  return true;
}

bool Communicator::swap_on_device(const Call& call, device::Swap swap, cuda::Event event) {
  const bool differ = call.root != 0;
  if (differ && !tell_counts(call, swap)) return false;
  if (swap.most == 0) return true;
  const device::Moves moves(topology_, device_->pool());
  const auto meet = [&](const std::byte* in, std::byte* out, const std::vector<Part>& given,
                        const std::vector<Part>& taken) {
    Pieces<const std::byte> from{.data = in, .begins = {}, .counts = {}};
    Pieces<std::byte> to{.data = out, .begins = {}, .counts = {}};
    for (std::uint32_t one = 0; one < ranks(); ++one) {
      from.begins.push_back(given[one].begin);
      from.counts.push_back(given[one].count);
      to.begins.push_back(taken[one].begin);
      to.counts.push_back(taken[one].count);
    }
    keep_own(from, to, swap.type);
    return swap_all(call, from, to);
  };
  return device_->move(call, moves.alltoall(swap, meet), event);
}

std::expected<std::uint64_t, int> Communicator::start_on_device(Kind kind,
                                                                const device::Arrays& arrays,
                                                                std::uint32_t root,
                                                                cuda::Stream stream) {
  return start_in(
      stream, kind, arrays.count, arrays.type, root,
      {.to = arrays.out, .from = arrays.in, .bytes = arrays.count * size_of(arrays.type)},
      [this, arrays](const Call& call, cuda::Event event) {
        return do_on_device(call, arrays, event);
      });
}

std::expected<std::uint64_t, int> Communicator::start_swap_on_device(const device::Swap& swap,
                                                                     bool equal,
                                                                     cuda::Stream stream) {
  const std::uint64_t own = swap.given[topology_.rank].count;
  return start_in(stream, Kind::kAlltoall, equal ? own : 1, swap.type, equal ? 0 : 1,
                  {.to = swap.out, .from = swap.in, .bytes = own * size_of(swap.type)},
                  [this, swap](const Call& call, cuda::Event event) {
                    return swap_on_device(call, swap, event);
                  });
}

std::expected<std::uint64_t, int> Communicator::start_in(
    cuda::Stream stream, Kind kind, std::uint64_t count, Type type, std::uint64_t root,
    const device::Copy& alone, const std::function<bool(const Call&, cuda::Event)>& work) {
  if (device_ == nullptr) return std::unexpected(PACELINE_EINVAL);
  if (const int code = device_->check(stream); code != PACELINE_OK) return std::unexpected(code);
  if (ranks() == 1 && alone.to != alone.from && alone.bytes > 0 && !device_->copy(alone, stream))
    return std::unexpected(PACELINE_EDEVICE);
  const auto event = device_->record(stream);
  if (!event) return std::unexpected(PACELINE_EDEVICE);
  const std::uint64_t ticket =
      start_all(on_device(kind), count, type, root,
                [work, event = *event](const Call& call) { return work(call, event); });
  device_->remember(ticket, *event);
  return ticket;
}

int Communicator::wait_device(std::uint64_t ticket, cuda::Stream stream) {
  if (device_ == nullptr) return PACELINE_EINVAL;
  if (const int code = device_->check(stream); code != PACELINE_OK) return code;
  const int code = wait(ticket);
  const int joined = device_->join(ticket, stream, code == PACELINE_OK);
  return code != PACELINE_OK ? code : joined;
}

DeviceUse Communicator::device_use() const {
  if (device_ == nullptr) return {};
  return {.pool_bytes = device_->pool_bytes(), .stream = device_->stream()};
}

}  // namespace paceline::comm
