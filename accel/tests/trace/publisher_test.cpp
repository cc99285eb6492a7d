// SPDX-License-Identifier: Apache-2.0
// The hand-over, with a receiver that is absent, comes, goes and comes again. Time is told, no
// thread is started.
#include "publisher.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "ring_reader.hpp"

namespace {

using paceline::trace::Publisher;
using paceline::trace::RingWriter;

constexpr std::uint64_t kSecond = 1'000'000'000;

struct Folder {
  Folder() {
    if (::mkdtemp(path) == nullptr) std::abort();
  }
  ~Folder() {
    ::unlink(socket().c_str());
    ::rmdir(path);
  }
  std::string socket() const { return std::string(path) + "/telemetry"; }
  char path[32] = "/tmp/paceline-test-XXXXXX";
};

class Receiver {
 public:
  explicit Receiver(const std::string& path) {
    fd_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ::unlink(path.c_str());
    if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        ::listen(fd_, 8) != 0)
      std::abort();
  }
  ~Receiver() { close(); }
  void close() {
    for (int* fd : {&connection_, &ring_, &fd_}) {
      if (*fd >= 0) ::close(*fd);
      *fd = -1;
    }
  }
  std::optional<paceline_ring_offer> take() {
    connection_ = ::accept(fd_, nullptr, nullptr);
    if (connection_ < 0) return std::nullopt;
    paceline_ring_offer offer{};
    iovec part{&offer, sizeof(offer)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (::recvmsg(connection_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) !=
        static_cast<ssize_t>(sizeof(offer)))
      return std::nullopt;
    const cmsghdr* rights = CMSG_FIRSTHDR(&message);
    if (rights != nullptr) std::memcpy(&ring_, CMSG_DATA(rights), sizeof(ring_));
    return offer;
  }
  int ring() const { return ring_; }

 private:
  int fd_ = -1;
  int connection_ = -1;
  int ring_ = -1;
};

struct Rank {
  explicit Rank(const std::string& socket) {
    identity.world_rank = 5;
    identity.local_rank = 1;
    identity.pid = 4242;
    identity.ring_epoch = 2;
    identity.attempt = 3;
    int error = 0;
    ring = RingWriter::open(identity, error);
    publisher = std::make_unique<Publisher>(*ring, identity, socket);
  }
  paceline_ring_header identity{};
  std::unique_ptr<RingWriter> ring;
  std::unique_ptr<Publisher> publisher;
};

CASE(a_ring_is_offered_with_its_identity) {
  const Folder folder;
  Receiver receiver(folder.socket());
  Rank rank(folder.socket());
  rank.publisher->tend_socket(kSecond);
  CHECK(rank.publisher->offered());
  const auto offer = receiver.take();
  if (!CHECK(offer.has_value())) return;
  CHECK_EQ(offer->magic, PACELINE_OFFER_MAGIC);
  CHECK_EQ(offer->size, 64U);
  CHECK_EQ(offer->world_rank, 5);
  CHECK_EQ(offer->local_rank, 1);
  CHECK_EQ(offer->pid, 4242U);
  CHECK_EQ(offer->ring_epoch, 2U);
  CHECK_EQ(offer->attempt, 3U);
  paceline_step_record record{};
  record.step = 8;
  rank.publisher->take(record);
  rank.publisher->drain();
  void* memory = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, receiver.ring(), 0);
  if (!CHECK(memory != MAP_FAILED)) return;
  const auto seen =
      paceline::check::read_record(static_cast<std::byte*>(memory), PACELINE_RING_CAPACITY, 0);
  if (!CHECK(seen.has_value())) return;
  CHECK_EQ(seen->step, 8U);
  CHECK_EQ(seen->attempt, 3U);
  CHECK_EQ(seen->ring_epoch, 2U);
  CHECK(seen->rss_mib > 0 && (seen->valid & PACELINE_VALID_RSS_MIB) != 0);
  CHECK_EQ(seen->lost_events, 0U);
}

CASE(an_absent_receiver_is_tried_once_a_second) {
  const Folder folder;
  Rank rank(folder.socket());
  rank.publisher->tend_socket(10 * kSecond);
  CHECK(!rank.publisher->offered());
  Receiver receiver(folder.socket());
  rank.publisher->tend_socket(10 * kSecond + kSecond / 2);
  CHECK(!rank.publisher->offered());
  rank.publisher->tend_socket(11 * kSecond);
  CHECK(rank.publisher->offered());
  CHECK(receiver.take().has_value());
}

CASE(the_same_ring_is_offered_again_after_the_connection_broke) {
  const Folder folder;
  Rank rank(folder.socket());
  {
    Receiver first(folder.socket());
    rank.publisher->tend_socket(kSecond);
    CHECK(first.take().has_value());
  }
  Receiver second(folder.socket());
  rank.publisher->tend_socket(3 * kSecond);
  const auto offer = second.take();
  CHECK(offer.has_value() && offer->ring_epoch == 2);
  CHECK(rank.publisher->offered());
}

CASE(a_socket_path_too_long_is_never_offered) {
  Rank rank(std::string(300, 'x'));
  rank.publisher->tend_socket(kSecond);
  CHECK(!rank.publisher->offered());
}

// The records of a ring that was not filled, in order.
std::vector<paceline_step_record> records_of(const RingWriter& ring) {
  constexpr std::size_t kBytes =
      PACELINE_HEADER_BYTES + std::size_t{PACELINE_RING_CAPACITY} * PACELINE_RECORD_BYTES;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, ring.fd(), 0);
  if (memory == MAP_FAILED) std::abort();
  std::vector<paceline_step_record> records;
  for (std::uint64_t i = 0; i < ring.published(); ++i) {
    const auto record =
        paceline::check::read_record(static_cast<std::byte*>(memory), PACELINE_RING_CAPACITY, i);
    if (!record) std::abort();
    records.push_back(*record);
  }
  ::munmap(memory, kBytes);
  return records;
}

CASE(an_amendment_waits_for_the_record_of_its_step) {
  Rank rank("");
  paceline_step_record facts{};
  facts.step = 2;
  facts.ring_epoch = 2;
  facts.valid = PACELINE_VALID_KERNELS;
  facts.kernels = 77;
  rank.publisher->amend(facts);
  paceline_step_record step{};
  step.kind = PACELINE_KIND_STEP;
  step.step = 1;
  rank.publisher->take(step);
  rank.publisher->drain();
  CHECK_EQ(rank.ring->published(), 1U);
  step.step = 2;
  rank.publisher->take(step);
  rank.publisher->drain();
  rank.publisher->drain();
  const auto records = records_of(*rank.ring);
  if (!CHECK(records.size() == 3U)) return;
  CHECK_EQ(records[1].step, 2U);
  CHECK_EQ(records[1].kind, PACELINE_KIND_STEP);
  const paceline_step_record& amendment = records[2];
  CHECK_EQ(amendment.kind, PACELINE_KIND_AMENDMENT);
  CHECK_EQ(amendment.version, PACELINE_RECORD_VERSION);
  CHECK_EQ(amendment.bytes, PACELINE_RECORD_BYTES);
  CHECK_EQ(amendment.step, 2U);
  CHECK_EQ(amendment.attempt, 3U);
  CHECK_EQ(amendment.ring_epoch, 2U);
  CHECK_EQ(amendment.valid, PACELINE_VALID_KERNELS);
  CHECK_EQ(amendment.kernels, 77U);
}

CASE(amendments_that_do_not_fit_are_counted_not_waited_for) {
  Rank rank("");
  paceline_step_record facts{};
  facts.step = 1;
  for (int i = 0; i < 300; ++i) rank.publisher->amend(facts);  // the queue holds 256
  paceline_step_record step{};
  step.step = 1;
  rank.publisher->take(step);
  rank.publisher->drain();
  const auto records = records_of(*rank.ring);
  if (!CHECK(records.size() == 257U)) return;
  CHECK_EQ(records[0].lost_events, 44U);
}

CASE(amendments_of_steps_that_never_come_have_a_bound) {
  Rank rank("");
  paceline_step_record facts{};
  facts.step = 9;
  for (int i = 0; i < 1000; ++i) {
    rank.publisher->amend(facts);
    rank.publisher->drain();
  }
  paceline_step_record step{};
  step.step = 9;
  rank.publisher->take(step);
  rank.publisher->drain();
  const auto records = records_of(*rank.ring);
  if (!CHECK(records.size() == 513U)) return;
  CHECK_EQ(records[0].lost_events, 488U);
}

CASE(threads_may_amend_together) {
  Rank rank("");
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&rank, i] {
      paceline_step_record facts{};
      facts.step = 1;
      facts.kernels = i;
      for (int n = 0; n < 50; ++n) rank.publisher->amend(facts);
    });
  }
  paceline_step_record step{};
  step.step = 1;
  rank.publisher->take(step);
  rank.publisher->drain();
  for (std::thread& thread : threads) thread.join();
  rank.publisher->drain();
  CHECK_EQ(rank.ring->published(), 201U);
}

CASE(steps_that_do_not_fit_are_counted_not_waited_for) {
  Rank rank("");
  paceline_step_record record{};
  for (std::uint64_t i = 0; i < 300; ++i) {
    record.step = i;
    rank.publisher->take(record);
  }
  rank.publisher->drain();
  CHECK_EQ(rank.ring->published(), 256U);
  rank.publisher->take(record);
  rank.publisher->drain();
  void* memory = ::mmap(nullptr, PACELINE_HEADER_BYTES + 512 * PACELINE_RECORD_BYTES, PROT_READ,
                        MAP_SHARED, rank.ring->fd(), 0);
  if (!CHECK(memory != MAP_FAILED)) return;
  const auto seen =
      paceline::check::read_record(static_cast<std::byte*>(memory), PACELINE_RING_CAPACITY, 256);
  CHECK(seen.has_value() && seen->lost_events == 44 &&
        (seen->valid & PACELINE_VALID_LOST_EVENTS) != 0);
}

}  // namespace
