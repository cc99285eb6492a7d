// SPDX-License-Identifier: Apache-2.0
#include "direct_lane.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

namespace paceline::comm::device {
namespace {

constexpr std::size_t kWidest = 8;                 // bytes of an element
constexpr std::chrono::microseconds kLooking{10};  // as rail_queue.cpp has it
constexpr std::chrono::milliseconds kLookForThoseWhoLeft{500};

}  // namespace

std::expected<std::unique_ptr<DirectLane>, std::string> DirectLane::make(Pool& pool, Terms terms) {
  if (const std::string& why = terms.rdma.settings().no_gpudirect; !why.empty())
    return std::unexpected(why);
  if (terms.ranks.size() > kMostDirectHosts)
    return std::unexpected("there are " + std::to_string(terms.ranks.size()) +
                           " hosts: GPUDirect goes between " + std::to_string(kMostDirectHosts));
  const cuda::Current current = pool.current();
  auto writes = RdmaWrites::of(pool.driver(), pool.device(),
                               terms.alone ? cuda::kToOwner : cuda::kToAllDevices);
  if (!writes) return std::unexpected(writes.error());
  std::unique_ptr<DirectLane> made(new DirectLane(pool, std::move(terms), *writes));
  if (const std::string why = made->prepare(); !why.empty()) return std::unexpected(why);
  return made;
}

std::string DirectLane::prepare() {
  for (std::uint32_t i = 1; i < hosts(); ++i)
    peers_.push_back({.host = (terms_.position + i) % hosts()});
  wake_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake_) return std::string("eventfd: ") + std::strerror(errno);
  std::vector<std::string> names;
  for (std::size_t rail = 0; rail < terms_.rdma.rails(); ++rail)
    names.push_back(terms_.rdma.name(rail));
  auto nearest = nearest_rails("/", pool_.pci(), names,
                               {.most = kMostDirectRails,
                                .most_distant = terms_.rdma.settings().most_distant,
                                .first = terms_.lane});
  if (!nearest) return nearest.error();
  rail_numbers_ = std::move(*nearest);
  slot_bytes_ = Pool::room_of(pool_.shard() / hosts() + kWidest);
  const std::size_t inbox_bytes =
      Pool::allocated(kDepth * peers_.size() * slot_bytes_ + Pool::kAlignment);
  const auto inbox = pool_.allocate_more(inbox_bytes);
  if (!inbox) return inbox.error();
  inbox_ = *inbox;
  std::array<Fd, 2> files;
  const std::array<DeviceRange, 2> ranges{writes_.range_of(pool_.base(), pool_.bytes(), files[0]),
                                          writes_.range_of(inbox_, inbox_bytes, files[1])};
  for (const std::size_t rail : rail_numbers_) {
    auto made = terms_.rdma.make_messages(rail, ranges, kPhases * peers_.size(), kDepth);
    if (!made) return made.error();
    rails_.push_back(std::move(*made));
  }
  return "";
}

DirectLane::~DirectLane() { worker_.wait(); }

PeerAddresses DirectLane::addresses(std::uint32_t host) const {
  const std::size_t peer = (host + hosts() - terms_.position - 1) % hosts();
  PeerAddresses all{};
  for (std::size_t rail = 0; rail < rails_.size(); ++rail)
    for (const Phase phase : {kParts, kSums})
      all[rail][phase] = rails_[rail]->address(pair_of(peer, phase));
  return all;
}

std::string DirectLane::connect(std::size_t rails, std::span<const PeerAddresses> peers) {
  rails_.resize(std::min(rails, rails_.size()));
  rail_numbers_.resize(rails_.size());
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    for (std::uint64_t chunk = 0; chunk < kDepth; ++chunk)
      rails_[chunk % rails_.size()]->receive(pair_of(peer, kParts),
                                             {.address = inbox(peer, chunk), .bytes = slot_bytes_});
    for (std::size_t rail = 0; rail < rails_.size(); ++rail)
      for (const Phase phase : {kParts, kSums})
        if (std::string why =
                rails_[rail]->connect(pair_of(peer, phase), peers[peers_[peer].host][rail][phase]);
            !why.empty())
          return why;
  }
  for (const auto& rail : rails_)
    if (rail->fault()) return rail->fault()->why;
  return "";
}

std::string DirectLane::names() const {
  std::string text;
  for (const std::size_t rail : rail_numbers_)
    text += (text.empty() ? "" : "+") + terms_.rdma.name(rail);
  return text;
}

std::vector<int> DirectLane::files() const {
  std::vector<int> all{wake_.get()};
  for (const auto& rail : rails_) all.push_back(rail->file());
  return all;
}

void DirectLane::wake() const {
  const std::uint64_t one = 1;
  // It is full only where nobody has looked for 2^64 - 1 of them.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void DirectLane::open(std::uint32_t chunks) {
  opened_.store(chunks, std::memory_order_release);
  wake();
}

void DirectLane::landed(std::uint32_t number) {
  summed_.store(number + 1, std::memory_order_release);
  wake();
}

void DirectLane::begin(Stage& stage, Work work) {
  stage_ = &stage;
  work_ = std::move(work);
  opened_.store(0);
  summed_.store(0);
  sent_.store(0);
  compared_.store(false);
  behind_.store(nullptr);
  added_ = returned_ = finished_ = 0;
}

std::string DirectLane::attempt(Stage& stage, Work work, Clock::time_point until) {
  begin(stage, std::move(work));
  attempting_ = true;
  until_ = until;
  compared_.store(true);
  run();
  attempting_ = false;
  if (trouble_.empty() && !is_done()) trouble_ = "it came to no end";
  first_ += work_.chunks;
  return trouble_;
}

void DirectLane::start(Stage& stage, Work work) {
  begin(stage, std::move(work));
  until_ = terms_.watch.deadline();
  // Where calls differ, two ranks at least find that the one before them calls another, and send no
  // part: nobody gets all, so nobody adds any up.
  terms_.ring.start(work_.call, work_.type, {Step{}},
                    {.sent = {}, .received = [this](std::uint64_t /*steps*/) {
                       compared_.store(true, std::memory_order_release);
                       wake();
                     }});
  worker_.start([this] {
    try {
      run();
    } catch (const std::exception& error) {
      give_up(error.what());
    }
  });
}

void DirectLane::finish() {
  worker_.wait();
  terms_.ring.finish();
  first_ += work_.chunks;
}

void DirectLane::run() {
  const cuda::Current current = pool_.current();
  while (!stopped_ && !terms_.watch.failed() && !is_done()) {
    const bool some = turn();
    // However much there was to do.
    if (!stopped_ && !is_lost() && !some) wait();
  }
}

bool DirectLane::turn() {
  bool some = look();
  if (compared_.load(std::memory_order_acquire)) some = send_parts() || some;
  some = add() || some;
  some = send_sums() || some;
  return end() || some;
}

bool DirectLane::look() {
  bool some = false;
  for (const auto& rail : rails_) some = rail->look() || some;
  if (!some) return false;
  // Message k of a pair goes by rail k mod rails, and is the one after k / rails there.
  const auto follow = [&](std::uint64_t& count, std::size_t pair, auto counter) {
    while (((*rails_[count % rails_.size()]).*counter)(pair) > count / rails_.size()) ++count;
  };
  std::uint64_t delivered = first_ + work_.chunks;
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    for (const Phase phase : {kParts, kSums}) {
      follow(peers_[peer].arrived[phase], pair_of(peer, phase), &Messages::arrived);
      follow(peers_[peer].delivered[phase], pair_of(peer, phase), &Messages::delivered);
      delivered = std::min(delivered, peers_[peer].delivered[phase]);
    }
  }
  const std::uint64_t sent = std::max(delivered, first_) - first_;
  if (sent_.exchange(sent, std::memory_order_release) != sent) stage_->ring();
  return true;
}

DirectLane::Piece DirectLane::piece_of(const Shard& shard, std::uint32_t host) const {
  const Part part = part_of(shard.count, hosts(), host);
  const std::size_t size = size_of(work_.type);
  return {
      .address = shard.result + part.begin * size, .bytes = part.count * size, .count = part.count};
}

bool DirectLane::have_all(std::uint32_t number, Phase phase) const {
  return std::ranges::all_of(
      peers_, [&](const Peer& peer) { return peer.arrived[phase] > first_ + number; });
}

bool DirectLane::has_fault() const {
  return std::ranges::any_of(rails_, [](const auto& rail) { return rail->fault().has_value(); });
}

bool DirectLane::send_parts() {
  if (has_fault()) return false;
  bool some = false;
  const std::uint64_t opened = first_ + opened_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    // There is a place for it: this shard's memory was free when the sums of kDepth chunks before
    // had come, and their senders posted it before them.
    for (; peer.offered < opened; ++peer.offered) {
      const Piece piece =
          piece_of(work_.shard(static_cast<std::uint32_t>(peer.offered - first_)), peer.host);
      Messages& rail = *rails_[peer.offered % rails_.size()];
      rail.receive(pair_of(i, kSums), piece.memory());
      // What is sent says that its answer has a place.
      if (rail.fault()) return false;
      // Behind as many bytes that the kernel finds the elements in the inbox as far from an aligned
      // address as they are here.
      const std::size_t off = piece.count == 0 ? 0 : piece.address % Pool::kAlignment;
      rail.send(pair_of(i, kParts), {.address = padding(), .bytes = off}, piece.memory());
      some = true;
    }
  }
  return some;
}

bool DirectLane::add() {
  if (added_ == opened_.load(std::memory_order_acquire) || !have_all(added_, kParts)) return false;
  const Piece own = piece_of(work_.shard(added_), terms_.position);
  stopped_ = !stage_->good(writes_.flush(cuda::kToOwner), "cuFlushGPUDirectRDMAWrites");
  // As around a ring: halves are rounded after each host's.
  const bool rounds = work_.type == Type::kF16 || work_.type == Type::kBf16;
  const std::size_t most = rounds ? 1 : peers_.size();
  for (std::size_t peer = 0; peer < peers_.size() && !stopped_;) {
    std::vector<cuda::Address> sources{own.address};
    for (std::size_t end = std::min(peer + most, peers_.size()); peer < end; ++peer)
      sources.push_back(inbox(peer, first_ + added_) + own.address % Pool::kAlignment);
    stopped_ = !stage_->good(pool_.sum(work_.type, own.address, sources, own.count, Pool::kRaising),
                             "cuLaunchKernel");
  }
  if (!stopped_) stage_->expect_raised(added_);
  ++added_;
  return true;
}

bool DirectLane::send_sums() {
  if (has_fault() || returned_ == summed_.load(std::memory_order_acquire)) return false;
  const std::uint64_t chunk = first_ + returned_;
  const Piece own = piece_of(work_.shard(returned_), terms_.position);
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    Messages& next = *rails_[(chunk + kDepth) % rails_.size()];
    next.receive(pair_of(peer, kParts), {.address = inbox(peer, chunk), .bytes = slot_bytes_});
    // What is sent says that its answer has a place.
    if (next.fault()) return false;
    rails_[chunk % rails_.size()]->send(pair_of(peer, kSums), own.memory());
  }
  ++returned_;
  return true;
}

bool DirectLane::end() {
  if (finished_ == returned_ || !have_all(finished_, kSums)) return false;
  const int scope = terms_.alone ? cuda::kToOwner : cuda::kToAllDevices;
  stopped_ = stopped_ || !stage_->good(writes_.flush(scope), "cuFlushGPUDirectRDMAWrites");
  if (!stopped_) stage_->finished(work_.base + finished_ + 1);
  ++finished_;
  return true;
}

bool DirectLane::is_done() const {
  if (finished_ != work_.chunks) return false;
  // Who has left has got all that it waited for.
  return std::ranges::all_of(peers_, [&](const Peer& peer) {
    return std::ranges::min(peer.delivered) == first_ + work_.chunks ||
           terms_.watch.left(terms_.ranks[peer.host]);
  });
}

const DirectLane::Peer* DirectLane::behind() const {
  // Who is furthest behind: others may lack something because they wait for it.
  const auto last = [&](Phase phase) {
    return &*std::ranges::min_element(peers_, {},
                                      [&](const Peer& peer) { return peer.arrived[phase]; });
  };
  if (added_ < opened_.load(std::memory_order_acquire) && !have_all(added_, kParts))
    return last(kParts);
  if (finished_ < returned_ && !have_all(finished_, kSums)) return last(kSums);
  if (finished_ < work_.chunks) return nullptr;
  return &*std::ranges::min_element(
      peers_, {}, [](const Peer& peer) { return std::ranges::min(peer.delivered); });
}

std::optional<std::uint32_t> DirectLane::awaited() const {
  const Peer* const peer = behind_.load(std::memory_order_acquire);
  if (peer == nullptr) return std::nullopt;
  return terms_.ranks[peer->host];
}

void DirectLane::lose(const Peer& peer, const std::string& why) {
  stopped_ = true;
  const std::uint32_t rank = terms_.ranks[peer.host];
  if (attempting_) {
    trouble_ = "rank " + std::to_string(rank) + ": " + why;
  } else {
    terms_.watch.broken(rank, why);
  }
}

void DirectLane::give_up(const std::string& why) {
  stopped_ = true;
  if (attempting_) {
    trouble_ = why;
  } else {
    terms_.watch.give_up(why);
  }
}

bool DirectLane::is_lost() {
  if (is_done()) return false;
  for (const auto& rail : rails_) {
    const auto& fault = rail->fault();
    if (!fault) continue;
    if (fault->pair) {
      lose(peers_[*fault->pair / kPhases], fault->why);
    } else {
      give_up(fault->why);
    }
    return true;
  }
  if (Clock::now() < until_) return false;
  stopped_ = true;
  const Peer* const peer = behind();
  if (!attempting_) {
    // What this rank has not come to may be for others to give: the watch knows whom the stage
    // waits for.
    terms_.watch.late(terms_.ranks[peer == nullptr ? terms_.position : peer->host]);
  } else if (peer == nullptr) {
    trouble_ = "its own GPU did not come to it in time";
  } else {
    lose(*peer, "nothing came through memory of the GPU");
  }
  return true;
}

void DirectLane::wait() {
  const auto begin = Clock::now();
  do {
    if (look()) return;
  } while (Clock::now() - begin < kLooking);
  for (const auto& rail : rails_) rail->listen();
  // What came before that would wake nobody, and a rail that has failed wakes nobody either.
  if (look() || has_fault()) return;
  behind_.store(behind(), std::memory_order_release);
  std::vector<pollfd> files{{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                            {.fd = terms_.watch.abort_fd(), .events = POLLIN, .revents = 0}};
  for (const auto& rail : rails_)
    files.push_back({.fd = rail->file(), .events = POLLIN, .revents = 0});
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - begin);
  if (finished_ == work_.chunks) left = std::min(left, kLookForThoseWhoLeft);
  ::poll(files.data(), files.size(),
         static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000)) + 1);
  std::uint64_t rings = 0;
  if (files[0].revents != 0) {
    [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &rings, sizeof rings);
  }
  for (std::size_t rail = 0; rail < rails_.size(); ++rail)
    if (files[rail + 2].revents != 0) rails_[rail]->heard();
}

}  // namespace paceline::comm::device
