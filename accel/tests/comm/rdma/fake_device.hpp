// SPDX-License-Identifier: Apache-2.0
// The devices behind fake_verbs.cpp, and how messages get from one queue pair to another: through
// memory that the process which loads this library and all that it forks share.
//
// Ownership: the objects of the verbs belong to the caller of fake_verbs.cpp, which deletes them.
// Threads: any; no lock is shared between processes, because a stopped rank would hold it. Failure:
// as a device reports it, by errno or by the status of a completion.
#pragma once

#include <infiniband/verbs.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <vector>

namespace paceline::fake_verbs {

constexpr std::size_t kEnds = 256;
constexpr std::size_t kChannels = 128;
constexpr std::size_t kMessages = 16;
constexpr std::size_t kMessageBytes = 128UL * 1024;
constexpr std::size_t kMostDevices = 4;
constexpr std::uint32_t kFirstNumber = 100;

// A queue pair's end. Its peer alone writes what comes in, and its owner reads it.
struct End {
  std::atomic<bool> used;
  std::atomic<bool> ready;  // to receive
  std::size_t channel;
  std::atomic<std::uint64_t> receives;     // posted by the owner
  std::atomic<std::uint64_t> came, taken;  // messages that the peer wrote and the owner read
  std::uint32_t peer;                      // the queue pair number of the other end
  std::array<std::uint32_t, kMessages> sizes;
  std::array<std::array<char, kMessageBytes>, kMessages> messages;
};

struct Listener {
  std::atomic<bool> used;
  std::atomic<bool> armed;
};

template <typename T>
T* share(std::size_t count) {
  void* const memory = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<T*>(memory);
}

struct Shared {
  Shared() {
    for (int& event : events) event = eventfd(0, EFD_NONBLOCK);
  }
  End* ends = share<End>(kEnds);
  Listener* listeners = share<Listener>(kChannels);
  std::atomic<int>* dropped = share<std::atomic<int>>(1);
  std::array<int, kChannels> events{};
};

extern const Shared kShared;

// What the test has set for this process; 0 if nothing.
int told(const char* name);
void set(const char* name, int value);
// Whether the test lets a step succeed. If not, errno is what the test has set for it.
bool goes(const char* name);
int messages_sent(std::size_t device);

struct Device : ibv_device {};
extern std::array<Device, kMostDevices> devices;

struct Context : ibv_context {
  std::size_t device;
};

struct Channel : ibv_comp_channel {
  std::size_t number;
};

struct Pair;
struct Queue : ibv_cq {
  std::vector<Pair*> pairs;
  std::mutex mutex;
  std::deque<ibv_wc> done;
};

struct Region {
  std::uint64_t begin;
  std::size_t bytes;
};

ibv_mr* add_region(ibv_pd* domain, const Region& region);
void remove_region(ibv_mr* region);

struct Pair : ibv_qp {
  std::size_t end;
  std::deque<ibv_recv_wr> receives;
  std::deque<ibv_sge> places;
  int untold = 0;  // sent messages with data whose completion the owner has not read
};

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad);
int poll_cq(ibv_cq* cq, int most, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited);

}  // namespace paceline::fake_verbs
