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

// Of an empty message there and one back, with a lost packet or two sent again.
constexpr std::chrono::seconds kTrial{5};

// What each end tells the other, three times. Little-endian, as all of the protocol.
struct Word {
  std::array<char, 16> magic{'p', 'a', 'c', 'e', 'l', 'i', 'n', 'e',
                             '-', 'r', 'd', 'm', 'a', '-', '1', '\0'};
  std::array<char, 232> refusal{};  // empty: goes on
  std::uint32_t rails = 0;
  std::uint32_t zero = 0;
  std::array<RailAddress, kMostRails> addresses{};
};
static_assert(sizeof(Word) == 256 + sizeof(RailAddress) * kMostRails);

class Agreement {
 public:
  Agreement(const base::Fd& connection, std::uint32_t peer, const Attempt& wanted, Watch& watch,
            Clock::time_point deadline)
      : connection_(connection), peer_(peer), wanted_(wanted), watch_(watch), deadline_(deadline) {}
  std::expected<Agreed, Error> run();

 private:
  void prepare();
  void connect();
  void attempt();
  bool attempt(RailQueue& rail, Clock::time_point until);
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
  Watch& watch_;
  const Clock::time_point deadline_;
  Agreed agreed_;
  Word theirs_;
};

std::unexpected<Error> Agreement::lost(const std::string& why) {
  watch_.broken(peer_, why);
  const Failure failure = watch_.failure();
  return std::unexpected(Error{PACELINE_COMM_EPEER, failure.rank, failure.text});
}

std::expected<void, Error> Agreement::read(Word& word) {
  std::size_t got = 0;
  while (got < sizeof word) {
    // Asked first: a peer that has said its word, refused and left since is none that was lost.
    const bool failed = watch_.failed();
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
                                 {.fd = watch_.abort_fd(), .events = POLLIN, .revents = 0}}};
    ::poll(files.data(), files.size(),
           static_cast<int>(std::min<std::int64_t>(left, 1'000'000)) + 1);
  }
  return {};
}

// Both tell how far they are: a refusal of either is then one of both.
std::expected<void, Error> Agreement::swap() {
  Word mine;
  agreed_.refusal.copy(mine.refusal.data(), mine.refusal.size() - 1);
  mine.rails = static_cast<std::uint32_t>(agreed_.rails.size());
  for (std::size_t rail = 0; rail < agreed_.rails.size(); ++rail)
    mine.addresses[rail] = agreed_.rails[rail]->address();
  // A connection that has carried nothing else takes so little at once.
  const ssize_t sent = ::send(connection_.get(), &mine, sizeof mine, MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(sizeof mine)) return lost(std::strerror(sent < 0 ? errno : EIO));
  if (auto done = read(theirs_); !done) return done;
  theirs_.refusal.back() = '\0';
  if (theirs_.magic != mine.magic) return lost("it speaks another protocol");
  if (theirs_.refusal[0] != '\0') refuse(rank_name(peer_) + ": " + theirs_.refusal.data());
  return {};
}

void Agreement::prepare() {
  for (const std::size_t rail : wanted_.rails) {
    auto made = wanted_.rdma.make_queue(rail, wanted_.sends, wanted_.slot_bytes);
    if (!made) return refuse(made.error());
    agreed_.rails.push_back(std::move(*made));
  }
}

void Agreement::connect() {
  if (agreed_.rails.size() != theirs_.rails)
    return refuse(rank_name(peer_) + " has another number of rails");
  for (std::size_t rail = 0; rail < agreed_.rails.size(); ++rail)
    if (const std::string why = agreed_.rails[rail]->connect(theirs_.addresses[rail]); !why.empty())
      return refuse(why);
}

bool Agreement::attempt(RailQueue& rail, Clock::time_point until) {
  rail.look();
  while (rail.arrived() == 0 && rail.broken().empty() && !watch_.failed() && Clock::now() < until)
    rail.wait(until, watch_.abort_fd());
  return rail.arrived() > 0;
}

// The sender's empty messages are answered as all messages are: with a free slot.
void Agreement::attempt() {
  const auto until = std::min(deadline_, Clock::now() + kTrial);
  if (wanted_.sends)
    for (const auto& rail : agreed_.rails) rail->send(0);
  for (std::size_t i = 0; i < agreed_.rails.size(); ++i) {
    const auto& rail = agreed_.rails[i];
    if (!attempt(*rail, until))
      return refuse(!rail->broken().empty()
                        ? rail->broken()
                        : "nothing came through " + wanted_.rdma.name(wanted_.rails[i]) + " in " +
                              std::to_string(kTrial.count()) + " s");
    if (wanted_.sends) continue;
    rail->receive_again();
    rail->send(0);
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
  if (refused()) agreed_.rails.clear();
  return std::move(agreed_);
}

}  // namespace

std::expected<Agreed, Error> agree(const base::Fd& connection, std::uint32_t peer,
                                   const Attempt& wanted, Watch& watch,
                                   Clock::time_point deadline) {
  return Agreement(connection, peer, wanted, watch, deadline).run();
}

}  // namespace paceline::comm
