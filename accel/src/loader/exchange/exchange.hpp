// SPDX-License-Identifier: Apache-2.0
// The room exchange passes batches and messages between a training process and its loader's workers
// in shared memory. Every accelerated DataLoader uses it (`acceleration.loader` of a job, or
// `paceline.loader.DataLoader` and `accelerate`). copier.hpp copies batches out of the memory for
// `pin_memory=True`.
//
// An Exchange is one loader as one of its processes sees it: the region, and how far this process
// is with each message. The C ABI exports its functions.
//
// Ownership: owns the region. Threads: one thread at a time calls collect, and any thread of the
// maker calls tell. Each worker's functions, claim among them, are called by one thread of that
// worker. Any thread calls release. Forked children use nothing that locks. Failure: bad_alloc
// only.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "loader/exchange/messages.hpp"
#include "loader/exchange/region.hpp"

namespace paceline::loader {

class Exchange {
 public:
  explicit Exchange(std::unique_ptr<Region> region);

  const Region& region() const { return *region_; }

  std::uint32_t claim(std::uint32_t worker, std::uint64_t avoid);
  void release(std::uint32_t worker, std::uint32_t slot);

  // Called by the maker.
  void tell(std::uint32_t worker, const void* data, std::uint64_t size);
  base::Wake collect(std::int64_t timeout_ns, std::uint32_t& worker, std::string*& message);
  // Called by workers.
  base::Wake hear(std::uint32_t worker, std::int64_t timeout_ns, std::string*& message);
  base::Wake answer(std::uint32_t worker, const void* data, std::uint64_t size,
                    std::int64_t timeout_ns, std::uint64_t& sent);

 private:
  struct Outbox {
    std::string bytes;  // framed messages
    std::size_t sent = 0;
  };
  struct Side {  // the state of one worker's streams in this process
    Outbox outbox;
    Inbox from_worker;
    Inbox from_maker;
    std::string heard;
  };
  void flush(std::uint32_t worker);  // the caller holds outboxes_

  std::unique_ptr<Region> region_;
  std::mutex outboxes_;  // a loader may be shut down while another thread waits in collect
  std::vector<Side> sides_;
  std::string collected_;
  std::uint32_t next_ = 0;
};

}  // namespace paceline::loader
