// SPDX-License-Identifier: Apache-2.0
#include "comm/pairwise/direct.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/bootstrap/inter_node_links.hpp"
#include "comm/transport/shm/shm_link.hpp"
#include "comm/transport/tcp/tcp_link.hpp"

namespace paceline::comm {
namespace {

// for a peer that has left, of which nothing comes in here
constexpr std::int64_t kLookAgainMs = 500;

std::vector<base::Fd> alone(base::Fd socket) {
  std::vector<base::Fd> flows;
  flows.push_back(std::move(socket));
  return flows;
}

std::uint32_t purpose_of(Channel channel) {
  return channel == Channel::kPair ? kDirectly : kTogether;
}

}  // namespace

Direct::Direct(std::uint32_t rank, std::vector<Card> cards, Doors doors, std::vector<bool> near,
               const Far& far, Watch& watch)
    : rank_(rank),
      cards_(std::move(cards)),
      doors_(std::move(doors)),
      near_(std::move(near)),
      far_(far),
      watch_(watch) {
  for (Senders& links : to_) links.resize(cards_.size());
  for (Receivers& links : from_) links.resize(cards_.size());
}

void Direct::forked() {
  for (const auto* files : {&to_files_, &from_files_})
    for (const int file : *files) ::close(file);
  for (const auto* callers : {&callers_, &local_callers_})
    for (const Caller& caller : *callers) ::close(caller.socket.get());
  for (const base::Fd& door : doors_.tcp) ::close(door.get());
  if (doors_.memory) ::close(doors_.memory.get());
}

std::string Direct::note() const {
  const std::lock_guard lock(mutex_);
  return note_;
}

// False where there is no time left, or all has failed.
bool Direct::await(std::vector<pollfd>& files, std::uint32_t peer) {
  files.push_back({.fd = watch_.abort_fd(), .events = POLLIN, .revents = 0});
  if (!watch_.may_wait(peer)) return false;
  const std::int64_t left =
      std::chrono::duration_cast<std::chrono::milliseconds>(watch_.deadline() - Clock::now())
          .count();
  ::poll(files.data(), files.size(),
         static_cast<int>(std::clamp<std::int64_t>(left, 0, kLookAgainMs)) + 1);
  return !watch_.failed();
}

// Null where this host does not let them: then by TCP.
std::unique_ptr<SendLink> Direct::hand_memory(std::uint32_t peer, Channel channel) {
  errno = ENOENT;  // a door that the peer could not open
  const base::Fd socket = cards_[peer].door.empty() ? base::Fd() : dial_local(cards_[peer].door);
  const base::Fd file = socket ? PairMemory::create() : base::Fd();
  auto memory = file ? PairMemory::map(file) : nullptr;
  const Hello hello = hello_to(cards_[peer], rank_, purpose_of(channel), 0);
  if (memory != nullptr && send_file(socket, file, &hello, sizeof hello))
    return std::make_unique<ShmSender>(std::move(memory), peer, watch_);
  const std::string why = std::strerror(errno);
  tell_first("rank " + std::to_string(rank_) + " sends to rank " + std::to_string(peer) +
             " by TCP: " + why);
  return nullptr;
}

void Direct::tell_first(const std::string& note) {
  const std::lock_guard lock(mutex_);
  if (note_.empty()) note_ = note;
}

bool Direct::may_try(std::uint32_t peer) const {
  return far_.rdma != nullptr && why_no_rdma(cards_, rank_, peer).empty();
}

PairTerms Direct::terms_with(std::uint32_t peer, bool sends) {
  const std::uint32_t from = sends ? rank_ : peer;
  const std::uint32_t to = sends ? peer : rank_;
  return {.rank = rank_,
          .peer = peer,
          .rdma = far_.rdma,
          .rail = (rank_ + peer) % std::min(cards_[rank_].rails, cards_[peer].rails),
          .transport = far_.transport,
          .by_tcp = [this, from, to](const std::string& why) {
            tell_first("rank " + std::to_string(from) + " sends to rank " + std::to_string(to) +
                       " by TCP: " + why);
          }};
}

std::unique_ptr<SendLink> Direct::connect(std::uint32_t peer, Channel channel) {
  // Pairs are many: each has one of the devices.
  const std::size_t endpoint = (rank_ + peer) % cards_[peer].endpoints.size();
  base::Fd socket = dial(cards_[rank_], cards_[peer], endpoint);
  int error = socket ? EINPROGRESS : errno;
  while (error == EINPROGRESS) {
    std::vector<pollfd> files{{.fd = socket.get(), .events = POLLOUT, .revents = 0}};
    if (!await(files, peer)) return nullptr;
    if (files.front().revents != 0)
      error = greet(socket, cards_[peer], rank_, purpose_of(channel), 0);
  }
  if (error != 0) {
    watch_.broken(peer, "cannot connect to " + cards_[peer].endpoints[endpoint].address + ": " +
                            std::strerror(error));
    return nullptr;
  }
  to_files_.push_back(socket.get());
  if (may_try(peer))
    return std::make_unique<PairSender>(std::move(socket), terms_with(peer, true), watch_);
  return std::make_unique<TcpSender>(alone(std::move(socket)), peer, watch_);
}

SendLink* Direct::to(std::uint32_t peer, Channel channel) {
  auto& link = to_[static_cast<std::size_t>(channel)][peer];
  if (link == nullptr && near_[peer]) link = hand_memory(peer, channel);
  if (link == nullptr) link = connect(peer, channel);
  return link.get();
}

void Direct::answer_some(const base::Fd& door, std::vector<Caller>& callers) {
  for (;;) {
    base::Fd socket = door ? answer(door) : base::Fd();
    if (!socket) return;
    // Strangers cannot fill the memory: who has not introduced itself is dropped when too many more
    // come.
    if (callers.size() > 2 * cards_.size() + 64) callers.erase(callers.begin());
    callers.push_back({std::move(socket), {}, 0});
  }
}

// Where the link goes that it asks for; null where nobody waits for it.
std::unique_ptr<ReceiveLink>* Direct::expected(const Hello& hello) {
  if (hello.purpose != kDirectly && hello.purpose != kTogether) return nullptr;
  Receivers& links = from_[static_cast<std::size_t>(
      hello.purpose == kDirectly ? Channel::kPair : Channel::kTogether)];
  const bool good =
      hello.from < links.size() && hello.from != rank_ && links[hello.from] == nullptr;
  return good ? &links[hello.from] : nullptr;
}

void Direct::hear_some() {
  for (Caller& caller : callers_) {
    Hello hello;
    const Heard heard = hear(caller, cards_[rank_], hello);
    if (heard == Heard::kMore) continue;
    base::Fd socket = std::move(caller.socket);
    auto* const link = heard == Heard::kAll ? expected(hello) : nullptr;
    if (link == nullptr) continue;
    from_files_.push_back(socket.get());
    if (may_try(hello.from)) {
      *link =
          std::make_unique<PairReceiver>(std::move(socket), terms_with(hello.from, false), watch_);
    } else {
      *link = std::make_unique<TcpReceiver>(alone(std::move(socket)), hello.from, watch_);
    }
  }
  std::erase_if(callers_, [](const Caller& caller) { return !caller.socket; });
}

void Direct::take_memory() {
  for (Caller& caller : local_callers_) {
    Hello hello;
    errno = EACCES;
    const base::Fd file =
        is_own_user(caller.socket) ? receive_file(caller.socket, &hello, sizeof hello) : base::Fd();
    if (!file && errno == EAGAIN) continue;
    const base::Fd socket = std::move(caller.socket);
    auto* const link = file && is_proper(hello, cards_[rank_]) ? expected(hello) : nullptr;
    if (link == nullptr || !near_[hello.from]) continue;
    auto memory = PairMemory::map(file);
    if (memory != nullptr) {
      *link = std::make_unique<ShmReceiver>(std::move(memory), hello.from, watch_);
    } else {
      watch_.fail(static_cast<int>(rank_),
                  "rank " + std::to_string(rank_) + " cannot map the memory that rank " +
                      std::to_string(hello.from) + " gave: " + std::strerror(errno));
    }
  }
  std::erase_if(local_callers_, [](const Caller& caller) { return !caller.socket; });
}

ReceiveLink* Direct::from(std::uint32_t peer, Channel channel) {
  auto& link = from_[static_cast<std::size_t>(channel)][peer];
  while (link == nullptr) {
    // Before looking: what it has sent before it left may lie at a door.
    const bool left = watch_.left(peer);
    for (const base::Fd& door : doors_.tcp) answer_some(door, callers_);
    answer_some(doors_.memory, local_callers_);
    hear_some();
    take_memory();
    if (link != nullptr) break;
    if (left) {
      watch_.fail(static_cast<int>(peer),
                  "rank " + std::to_string(peer) + " has left the communicator, and sent nothing");
      return nullptr;
    }
    std::vector<pollfd> files{{.fd = doors_.memory.get(), .events = POLLIN, .revents = 0}};
    for (const base::Fd& door : doors_.tcp)
      files.push_back({.fd = door.get(), .events = POLLIN, .revents = 0});
    for (const auto* callers : {&callers_, &local_callers_})
      for (const Caller& caller : *callers)
        files.push_back({.fd = caller.socket.get(), .events = POLLIN, .revents = 0});
    if (!await(files, peer)) return nullptr;
  }
  return link.get();
}

}  // namespace paceline::comm
