// SPDX-License-Identifier: Apache-2.0
#include "moves.hpp"

#include <algorithm>
#include <utility>

#include "paceline/comm.h"

namespace paceline::comm::device {

// How pieces are cut into chunks, a part of each piece in each, and how these lie in a slot.
class Moves::Cut {
 public:
  Cut(const Arrays& arrays, std::size_t slot_bytes, const Room& room, std::size_t align)
      : arrays_(arrays),
        room_(room),
        align_(align),
        columns_(slot_bytes / room.pieces / align * align / size()) {}

  std::uint32_t chunks() const {
    return static_cast<std::uint32_t>((arrays_.count + columns_ - 1) / columns_);
  }
  std::uint64_t count(std::uint32_t chunk) const {
    return std::min(columns_, arrays_.count - chunk * columns_);
  }
  Type type() const { return arrays_.type; }
  cuda::Address in(std::uint32_t chunk, std::uint64_t piece) const {
    return arrays_.in + offset(chunk, piece);
  }
  cuda::Address out(std::uint32_t chunk, std::uint64_t piece) const {
    return arrays_.out + offset(chunk, piece);
  }
  // In a slot, from its beginning.
  std::size_t place(std::uint32_t chunk, std::uint64_t piece) const {
    return piece * ((bytes(chunk) + align_ - 1) / align_ * align_);
  }
  std::size_t place_in(std::uint32_t chunk, std::uint64_t piece) const {
    return place(chunk, room_.in + piece);
  }
  std::size_t place_out(std::uint32_t chunk, std::uint64_t piece) const {
    return place(chunk, room_.out + piece);
  }
  std::size_t bytes(std::uint32_t chunk) const { return count(chunk) * size(); }

 private:
  std::size_t size() const { return size_of(arrays_.type); }
  std::uint64_t offset(std::uint32_t chunk, std::uint64_t piece) const {
    return (piece * arrays_.count + chunk * columns_) * size();
  }

  Arrays arrays_;
  Room room_;
  std::size_t align_;
  std::uint64_t columns_;  // elements of a piece in a chunk
};

std::size_t Moves::staging_bytes(const Topology& topology, std::size_t chunk_bytes) {
  // A processor's collective takes several round trips, whatever it carries.
  constexpr std::size_t kChunksAtOnce = 4;
  static_assert(kChunksAtOnce * kLeastChunk >= 2 * PACELINE_COMM_MAX_RANKS * sizeof(std::int64_t));
  return topology.hosts() > 1 ? kChunksAtOnce * chunk_bytes : 0;
}

cuda::Address Moves::own(std::uint32_t slot) const {
  return far() ? reinterpret_cast<cuda::Address>(pool_.staging(slot))
               : pool_.slot(topology_.local, slot);
}

Moves::Cut Moves::cut(const Arrays& arrays, std::uint64_t near_pieces, const Room& far) const {
  // Kernels want addresses that vectors may be read from; processors' collectives pieces without
  // gaps.
  if (topology_.hosts() > 1) return {arrays, pool_.staging_bytes(), far, size_of(arrays.type)};
  return {arrays, pool_.chunk(), {.pieces = near_pieces, .in = 0, .out = 0}, Pool::kAlignment};
}

Move Moves::move(const Cut& cut, std::uint32_t given, std::uint32_t taken, Take near,
                 const Meet& meet) const {
  Move move{.chunks = cut.chunks(), .give = nullptr, .meet = nullptr, .take = std::move(near)};
  move.give = [this, cut, given](std::uint32_t chunk, std::uint32_t slot) {
    std::vector<Copy> copies;
    for (std::uint32_t piece = 0; piece < given; ++piece)
      copies.push_back({.to = own(slot) + cut.place_in(chunk, piece),
                        .from = cut.in(chunk, piece),
                        .bytes = cut.bytes(chunk)});
    return copies;
  };
  if (!far()) return move;
  move.meet = [this, cut, meet](std::uint32_t chunk, std::uint32_t slot) {
    std::byte* const memory = pool_.staging(slot);
    return meet(memory + cut.place_in(chunk, 0), memory + cut.place_out(chunk, 0),
                cut.count(chunk));
  };
  move.take = [this, cut, taken](std::uint32_t chunk, std::uint32_t slot) {
    Taking taking;
    for (std::uint32_t piece = 0; piece < taken; ++piece)
      taking.copies.push_back({.to = cut.out(chunk, piece),
                               .from = own(slot) + cut.place_out(chunk, piece),
                               .bytes = cut.bytes(chunk)});
    return taking;
  };
  return move;
}

// Each rank begins with its next: so processors add around the ring, and no memory is read by all
// at once.
std::vector<cuda::Address> Moves::in_all(const Cut& cut, std::uint32_t chunk, std::uint32_t slot,
                                         std::uint64_t piece) const {
  const auto ranks = static_cast<std::uint32_t>(topology_.mates().size());
  std::vector<cuda::Address> places;
  for (std::uint32_t step = 1; step <= ranks; ++step)
    places.push_back(pool_.slot((topology_.local + step) % ranks, slot) + cut.place(chunk, piece));
  return places;
}

Taking Moves::from_all(const Cut& cut, std::uint32_t chunk, std::uint32_t slot,
                       std::uint64_t piece) const {
  const std::vector<std::uint32_t>& mates = topology_.mates();
  const std::vector<cuda::Address> places = in_all(cut, chunk, slot, piece);
  Taking taking;
  for (std::size_t i = 0; i < places.size(); ++i)
    taking.copies.push_back({.to = cut.out(chunk, mates[(topology_.local + 1 + i) % mates.size()]),
                             .from = places[i],
                             .bytes = cut.bytes(chunk)});
  return taking;
}

Move Moves::broadcast(const Arrays& arrays, std::uint32_t root, const Meet& meet) const {
  const std::vector<std::uint32_t>& mates = topology_.mates();
  const bool gives = topology_.rank == root;
  const Cut cut = this->cut(arrays, 1, {.pieces = 1, .in = 0, .out = 0});
  const auto local = static_cast<std::uint32_t>(std::ranges::find(mates, root) - mates.begin());
  const auto near = [this, cut, gives, local](std::uint32_t chunk, std::uint32_t slot) {
    Taking taking;
    if (!gives)
      taking.copies.push_back(
          {.to = cut.out(chunk, 0), .from = pool_.slot(local, slot), .bytes = cut.bytes(chunk)});
    return taking;
  };
  return move(cut, gives ? 1 : 0, gives ? 0 : 1, near, meet);
}

Move Moves::allgather(const Arrays& arrays, const Meet& meet) const {
  const std::uint32_t ranks = topology_.ranks();
  const Cut cut = this->cut(arrays, 1, {.pieces = ranks, .in = topology_.rank, .out = 0});
  const auto near = [this, cut](std::uint32_t chunk, std::uint32_t slot) {
    return from_all(cut, chunk, slot, 0);
  };
  return move(cut, 1, ranks, near, meet);
}

// Each rank has room for as much of every piece, whatever it is: where another one's lies is known
// without its counts.
Move Moves::alltoall(const Swap& swap, const MeetSwap& meet) const {
  const std::uint32_t ranks = topology_.ranks();
  const std::size_t size = size_of(swap.type);
  const std::uint64_t columns = (far() ? pool_.staging_bytes() / 2 : pool_.chunk()) / ranks / size;
  // A chunk's part of a piece, and where it is in a slot.
  const auto part = [columns](const Part& piece, std::uint32_t chunk) {
    const std::uint64_t begin = std::min(chunk * columns, piece.count);
    return Part{.begin = piece.begin + begin, .count = std::min(columns, piece.count - begin)};
  };
  const auto place = [columns, size](std::uint64_t piece) { return piece * columns * size; };
  Move move{.chunks = static_cast<std::uint32_t>((swap.most + columns - 1) / columns),
            .give = nullptr,
            .meet = nullptr,
            .take = nullptr};
  move.give = [=, this](std::uint32_t chunk, std::uint32_t slot) {
    std::vector<Copy> copies;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Part given = part(swap.given[rank], chunk);
      copies.push_back({.to = own(slot) + place(rank),
                        .from = swap.in + given.begin * size,
                        .bytes = given.count * size});
    }
    return copies;
  };
  move.take = [=, this](std::uint32_t chunk, std::uint32_t slot) {
    Taking taking;
    for (std::uint32_t step = 1; step <= ranks; ++step) {
      // with one host, its place among the mates
      const std::uint32_t one = (topology_.position + step) % ranks;
      const std::uint32_t rank = topology_.order[one];
      const Part taken = part(swap.taken[rank], chunk);
      taking.copies.push_back({.to = swap.out + taken.begin * size,
                               .from = far() ? own(slot) + place(ranks + rank)
                                             : pool_.slot(one, slot) + place(topology_.rank),
                               .bytes = taken.count * size});
    }
    return taking;
  };
  if (!far()) return move;
  move.meet = [=, this](std::uint32_t chunk, std::uint32_t slot) {
    std::vector<Part> given;
    std::vector<Part> taken;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      given.push_back({.begin = rank * columns, .count = part(swap.given[rank], chunk).count});
      taken.push_back({.begin = rank * columns, .count = part(swap.taken[rank], chunk).count});
    }
    return meet(pool_.staging(slot), pool_.staging(slot) + place(ranks), given, taken);
  };
  return move;
}

Move Moves::reduce_scatter(const Arrays& arrays, const Meet& meet) const {
  const std::uint32_t ranks = topology_.ranks();
  const Cut cut =
      this->cut(arrays, ranks, {.pieces = std::uint64_t{ranks} + 1, .in = 0, .out = ranks});
  const auto near = [this, cut](std::uint32_t chunk, std::uint32_t slot) {
    // A kernel reads and writes whole vectors: where the output begins elsewhere, by way of the
    // results' slot.
    const cuda::Address out = cut.out(chunk, 0);
    const bool even = out % Pool::kAlignment == 0;
    const cuda::Address target = even ? out : pool_.result(topology_.local, slot, 0);
    Taking taking;
    taking.sum = {.type = cut.type(),
                  .target = target,
                  .sources = in_all(cut, chunk, slot, topology_.rank),
                  .count = cut.count(chunk)};
    if (!even) taking.copies.push_back({.to = out, .from = target, .bytes = cut.bytes(chunk)});
    return taking;
  };
  return move(cut, ranks, 1, near, meet);
}

}  // namespace paceline::comm::device
