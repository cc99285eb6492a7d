// SPDX-License-Identifier: Apache-2.0
#include "direct.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>

namespace paceline::comm {
namespace {

constexpr std::int64_t kLookAgainMs = 500;  // for a peer that has left, of which nothing comes in here

std::vector<Fd> alone(Fd socket) {
  std::vector<Fd> flows;
  flows.push_back(std::move(socket));
  return flows;
}

}  // namespace

Direct::Direct(std::uint32_t rank, std::vector<Card> cards, Fd door, Watch& watch)
    : rank_(rank),
      cards_(std::move(cards)),
      door_(std::move(door)),
      watch_(watch),
      to_(cards_.size()),
      from_(cards_.size()) {}

void Direct::forked() {
  for (const auto* files : {&to_files_, &from_files_})
    for (const int file : *files) ::close(file);
  for (const Caller& caller : callers_) ::close(caller.socket.get());
  ::close(door_.get());
}

// False where there is no time left, or all has failed.
bool Direct::await(std::vector<pollfd>& files, std::uint32_t peer) {
  files.push_back({.fd = watch_.abort_fd(), .events = POLLIN, .revents = 0});
  const std::int64_t left =
      std::chrono::duration_cast<std::chrono::milliseconds>(watch_.deadline() - Clock::now()).count();
  if (left <= 0) {
    watch_.late(peer);
    return false;
  }
  ::poll(files.data(), files.size(), static_cast<int>(std::min(left, kLookAgainMs)) + 1);
  return !watch_.failed();
}

SendLink* Direct::to(std::uint32_t peer) {
  if (to_[peer] != nullptr) return to_[peer].get();
  Fd socket = dial(cards_[peer]);
  int error = socket ? EINPROGRESS : errno;
  while (error == EINPROGRESS) {
    std::vector<pollfd> files{{.fd = socket.get(), .events = POLLOUT, .revents = 0}};
    if (!await(files, peer)) return nullptr;
    if (files.front().revents != 0) error = greet(socket, cards_[peer], rank_, kDirectly, 0);
  }
  if (error != 0) {
    watch_.broken(peer, std::string("cannot connect to ") + cards_[peer].address + ": " + std::strerror(error));
    return nullptr;
  }
  to_files_.push_back(socket.get());
  to_[peer] = std::make_unique<TcpSender>(alone(std::move(socket)), peer, watch_);
  return to_[peer].get();
}

void Direct::answer_some() {
  for (;;) {
    Fd socket = answer(door_);
    if (!socket) return;
    // Strangers cannot fill the memory: who has not introduced itself is dropped when too many more come.
    if (callers_.size() > cards_.size() + 64) callers_.erase(callers_.begin());
    callers_.push_back({std::move(socket), {}, 0});
  }
}

void Direct::hear_some() {
  for (Caller& caller : callers_) {
    Hello hello;
    const Heard heard = hear(caller, cards_[rank_], hello);
    if (heard == Heard::kMore) continue;
    Fd socket = std::move(caller.socket);
    const bool expected =
        hello.purpose == kDirectly && hello.from < from_.size() && hello.from != rank_ && from_[hello.from] == nullptr;
    if (heard == Heard::kStranger || !expected) continue;
    from_files_.push_back(socket.get());
    from_[hello.from] = std::make_unique<TcpReceiver>(alone(std::move(socket)), hello.from, watch_);
  }
  std::erase_if(callers_, [](const Caller& caller) { return !caller.socket; });
}

ReceiveLink* Direct::from(std::uint32_t peer) {
  while (from_[peer] == nullptr) {
    // Before looking: what it has sent before it left may lie at the door.
    const bool left = watch_.left(peer);
    answer_some();
    hear_some();
    if (from_[peer] != nullptr) break;
    if (left) {
      watch_.fail(static_cast<int>(peer),
                  "rank " + std::to_string(peer) + " has left the communicator, and sent nothing");
      return nullptr;
    }
    std::vector<pollfd> files{{.fd = door_.get(), .events = POLLIN, .revents = 0}};
    for (const Caller& caller : callers_) files.push_back({.fd = caller.socket.get(), .events = POLLIN, .revents = 0});
    if (!await(files, peer)) return nullptr;
  }
  return from_[peer].get();
}

}  // namespace paceline::comm
