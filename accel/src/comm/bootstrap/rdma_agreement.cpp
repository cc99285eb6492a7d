// SPDX-License-Identifier: Apache-2.0
#include "comm/bootstrap/rdma_agreement.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace paceline::comm {
namespace {

// Enough for an empty message there and back, with one or two packets lost and sent again.
constexpr std::chrono::seconds kTrial{5};

// What each end sends to the other, three times. Little-endian, as the whole protocol.
struct Word {
  std::array<char, 16> magic{'p', 'a', 'c', 'e', 'l', 'i', 'n', 'e',
                             '-', 'r', 'd', 'm', 'a', '-', '1', '\0'};
  std::array<char, 232> refusal{};  // empty: continue
  std::uint32_t nics = 0;
  std::uint32_t zero = 0;
  std::array<QueuePairAddress, kMostNics> addresses{};
};
static_assert(sizeof(Word) == 256 + sizeof(QueuePairAddress) * kMostNics);

class Agreement {
 public:
  Agreement(const base::Fd& connection, std::uint32_t peer, const Attempt& wanted,
            FailureDetector& detector, Clock::time_point deadline)
      : connection_(connection),
        peer_(peer),
        wanted_(wanted),
        detector_(detector),
        deadline_(deadline) {}
  std::expected<Agreed, Error> run();

 private:
  void prepare();
  void connect();
  void attempt();
  bool attempt(NicQueue& nic, Clock::time_point until);
  std::expected<void, Error> swap();
  std::expected<void, Error> read(Word& word);
  std::unexpected<Error> lost(const std::string& why);
  void refuse(const std::string& why) {
    if (agreed_.refusal.empty()) agreed_.refusal = why;
  }
  bool refused() const { return !agreed_.refusal.empty(); }

  const base::Fd& connection_;
  const std::uint32_t peer_;
  const Attempt& wanted_;
  FailureDetector& detector_;
  const Clock::time_point deadline_;
  Agreed agreed_;
  Word theirs_;
};

std::unexpected<Error> Agreement::lost(const std::string& why) {
  detector_.connection_broke(peer_, why);
  const Failure failure = detector_.failure();
  return std::unexpected(Error{PACELINE_COMM_EPEER, failure.rank, failure.text});
}

std::expected<void, Error> Agreement::read(Word& word) {
  std::size_t got = 0;
  while (got < sizeof word) {
    // Ask before reading: a peer may send its refusal and then leave, which is no lost peer.
    const bool failed = detector_.failed();
    const ssize_t some = ::recv(connection_.get(), reinterpret_cast<std::byte*>(&word) + got,
                                sizeof word - got, MSG_DONTWAIT);
    if (some > 0) {
      got += static_cast<std::size_t>(some);
      continue;
    }
    if (some == 0) return lost("closed by that side");
    if (errno != EAGAIN && errno != EINTR) return lost(std::strerror(errno));
    if (failed) return lost("");
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    if (left <= 0)
      return std::unexpected(
          Error{PACELINE_COMM_EPEER, static_cast<int>(peer_),
                rank_name(peer_) +
                    " has not said in the time that timeout_ms allows whether it goes by RDMA"});
    std::array<pollfd, 2> files{{{.fd = connection_.get(), .events = POLLIN, .revents = 0},
                                 {.fd = detector_.abort_fd(), .events = POLLIN, .revents = 0}}};
    ::poll(files.data(), files.size(),
           static_cast<int>(std::min<std::int64_t>(left, 1'000'000)) + 1);
  }
  return {};
}

// Both ends send their state, so that a refusal of one makes both use TCP.
std::expected<void, Error> Agreement::swap() {
  Word mine;
  agreed_.refusal.copy(mine.refusal.data(), mine.refusal.size() - 1);
  mine.nics = static_cast<std::uint32_t>(agreed_.nics.size());
  for (std::size_t nic = 0; nic < agreed_.nics.size(); ++nic)
    mine.addresses[nic] = agreed_.nics[nic]->address();
  // The send buffer of a connection that has carried nothing else has room for this.
  const ssize_t sent = ::send(connection_.get(), &mine, sizeof mine, MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(sizeof mine)) return lost(std::strerror(sent < 0 ? errno : EIO));
  if (auto done = read(theirs_); !done) return done;
  theirs_.refusal.back() = '\0';
  if (theirs_.magic != mine.magic) return lost("it speaks another protocol");
  if (theirs_.refusal[0] != '\0') refuse(rank_name(peer_) + ": " + theirs_.refusal.data());
  return {};
}

void Agreement::prepare() {
  for (const std::size_t nic : wanted_.nics) {
    auto made = wanted_.rdma.make_queue(nic, wanted_.sends, wanted_.slot_bytes);
    if (!made) return refuse(made.error());
    agreed_.nics.push_back(std::move(*made));
  }
}

void Agreement::connect() {
  if (agreed_.nics.size() != theirs_.nics)
    return refuse(rank_name(peer_) + " has another number of nics");
  for (std::size_t nic = 0; nic < agreed_.nics.size(); ++nic)
    if (const std::string why = agreed_.nics[nic]->connect(theirs_.addresses[nic]); !why.empty())
      return refuse(why);
}

bool Agreement::attempt(NicQueue& nic, Clock::time_point until) {
  nic.look();
  while (nic.arrived() == 0 && nic.broken().empty() && !detector_.failed() && Clock::now() < until)
    nic.wait(until, detector_.abort_fd());
  return nic.arrived() > 0;
}

// The receiver answers the sender's empty messages as any message: with a free slot.
void Agreement::attempt() {
  const auto until = std::min(deadline_, Clock::now() + kTrial);
  if (wanted_.sends)
    for (const auto& nic : agreed_.nics) nic->send(0);
  for (std::size_t i = 0; i < agreed_.nics.size(); ++i) {
    const auto& nic = agreed_.nics[i];
    if (!attempt(*nic, until))
      return refuse(!nic->broken().empty()
                        ? nic->broken()
                        : "nothing came through " + wanted_.rdma.name(wanted_.nics[i]) + " in " +
                              std::to_string(kTrial.count()) + " s");
    if (wanted_.sends) continue;
    nic->receive_again();
    nic->send(0);
  }
}

std::expected<Agreed, Error> Agreement::run() {
  prepare();
  auto done = swap();
  if (done && !refused()) {
    connect();
    done = swap();
  }
  if (done && !refused()) {
    attempt();
    done = swap();
  }
  if (!done) return std::unexpected(done.error());
  if (refused()) agreed_.nics.clear();
  return std::move(agreed_);
}

}  // namespace

std::expected<Agreed, Error> agree(const base::Fd& connection, std::uint32_t peer,
                                   const Attempt& wanted, FailureDetector& detector,
                                   Clock::time_point deadline) {
  return Agreement(connection, peer, wanted, detector, deadline).run();
}

}  // namespace paceline::comm
