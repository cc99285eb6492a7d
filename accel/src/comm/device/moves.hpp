// SPDX-License-Identifier: Apache-2.0
// What a rank copies in each collective of memory of GPUs but the sums of all: chunk by chunk, into
// a slot what others are to have, and out of slots what is its own. Inside a host the slots are
// those of all ranks' pools. Between hosts they are pinned memory of this rank alone, and the
// processors' collective of the same name goes from one to the other. Nothing is done here:
// DeviceStage does it.
//
// Ownership: moves keep addresses of the caller's arrays and the pool, and outlive neither.
// Threads: values. Nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "../plan.hpp"
#include "../ring.hpp"
#include "pool.hpp"

namespace paceline::comm::device {

// The caller's, as comm.h has them: `count` elements are a piece, or all where there are no pieces.
struct Arrays {
  Type type;
  cuda::Address in;
  cuda::Address out;
  std::uint64_t count;
};

// An alltoall's: the piece for each rank, and of each, in elements.
struct Swap {
  Type type;
  cuda::Address in;
  cuda::Address out;
  std::vector<Part> given;
  std::vector<Part> taken;
  std::uint64_t most;  // elements of any piece of any rank
};

struct Copy {
  cuda::Address to;
  cuda::Address from;
  std::size_t bytes;
};

// target = sources[0] + sources[1] + …, as Pool::sum has it.
struct Sum {
  Type type;
  cuda::Address target;
  std::vector<cuda::Address> sources;
  std::uint64_t count;
};

struct Taking {
  std::optional<Sum> sum;  // before the copies
  std::vector<Copy> copies;
};

// Each is asked for a chunk of the call and the number of its slots. A rank that has nothing to
// give or to take of a chunk answers so.
struct Move {
  std::uint32_t chunks;
  std::function<std::vector<Copy>(std::uint32_t chunk, std::uint32_t slot)> give;
  std::function<bool(std::uint32_t chunk, std::uint32_t slot)>
      meet;  // between the two, with the other hosts; may be empty
  std::function<Taking(std::uint32_t chunk, std::uint32_t slot)> take;
};

class Moves {
 public:
  // A collective of processors on `count` elements of each piece, in pinned memory; false where it
  // has failed.
  using Meet = std::function<bool(std::byte* in, std::byte* out, std::uint64_t count)>;
  // The same of pieces that may differ.
  using MeetSwap = std::function<bool(std::byte* in, std::byte* out, const std::vector<Part>& given,
                                      const std::vector<Part>& taken)>;

  // Bytes of pinned memory for each chunk under way: enough that every rank's piece has an element
  // of any type, in and out.
  static std::size_t staging_bytes(const Topology& topology, std::size_t chunk_bytes);

  Moves(const Topology& topology, const Pool& pool) : topology_(topology), pool_(pool) {}

  // `meet` is used between hosts alone.
  Move broadcast(const Arrays& arrays, std::uint32_t root, const Meet& meet) const;
  Move allgather(const Arrays& arrays, const Meet& meet) const;
  Move reduce_scatter(const Arrays& arrays, const Meet& meet) const;
  Move alltoall(const Swap& swap, const MeetSwap& meet) const;

 private:
  class Cut;
  // Of a slot, in pieces: how many it has, and the first of those that are given and of those that
  // are taken.
  struct Room {
    std::uint64_t pieces;
    std::uint64_t in;
    std::uint64_t out;
  };
  using Take = std::function<Taking(std::uint32_t chunk, std::uint32_t slot)>;

  Cut cut(const Arrays& arrays, std::uint64_t near_pieces, const Room& far) const;
  // `given` and `taken`: pieces of this rank's arrays. `near`: what is taken inside a host.
  Move move(const Cut& cut, std::uint32_t given, std::uint32_t taken, Take near,
            const Meet& meet) const;
  // A piece of the slots of all ranks of the host, this rank's last; and their way out.
  std::vector<cuda::Address> in_all(const Cut& cut, std::uint32_t chunk, std::uint32_t slot,
                                    std::uint64_t piece) const;
  Taking from_all(const Cut& cut, std::uint32_t chunk, std::uint32_t slot,
                  std::uint64_t piece) const;
  cuda::Address own(std::uint32_t slot) const;
  bool far() const { return topology_.hosts() > 1; }

  const Topology& topology_;
  const Pool& pool_;
};

}  // namespace paceline::comm::device
