// SPDX-License-Identifier: Apache-2.0
// The exported functions (comm.h): arguments checked, then one call. No exception leaves.
#include "comm/communicator/c_abi.hpp"

#include <utility>

#include "comm/codec/orthonormal.hpp"

namespace comm_core = paceline::comm;
using comm_core::copy_text;
using comm_core::fits;
using comm_core::guarded;

namespace {

// Why the options cannot be used; empty if they can.
std::string unusable(const paceline_comm_options& given, const paceline_comm_store* store) {
  if (given.size != sizeof given) return "options: size: made for another version of comm.h";
  if (store == nullptr || store->set == nullptr || store->get == nullptr)
    return "store: set and get are needed";
  if (given.ranks == 0 || given.ranks > PACELINE_COMM_MAX_RANKS)
    return "ranks: " + std::to_string(given.ranks) + ": use 1 to " +
           std::to_string(PACELINE_COMM_MAX_RANKS);
  if (given.rank >= given.ranks)
    return "rank: " + std::to_string(given.rank) + ": use 0 to " + std::to_string(given.ranks - 1);
  if (given.flows > 16) return "flows: " + std::to_string(given.flows) + ": use 1 to 16";
  if (given.heartbeat_timeout_ms < 0 ||
      (given.heartbeat_timeout_ms > 0 && given.heartbeat_timeout_ms < 100))
    return "heartbeat_timeout_ms: " + std::to_string(given.heartbeat_timeout_ms) +
           ": use at least 100";
  if (given.timeout_ms < 0)
    return "timeout_ms: " + std::to_string(given.timeout_ms) + ": use 1 or more";
  if (given.name == nullptr || *given.name == '\0') return "name: give the communicator one";
  for (const char* text : {given.name, given.host, given.address, given.plan})
    if (text != nullptr && (std::strlen(text) > 8000 || std::strchr(text, '\n') != nullptr))
      return "options: '" + std::string(text, std::min<std::size_t>(std::strlen(text), 40)) +
             "…': no line feed, at most 8000 bytes";
  return "";
}

std::string text_or_none(const char* text) { return text == nullptr ? "" : text; }

// Starts a call of all ranks. A rank that cannot take part fails the communicator, because the
// others would wait for it.
template <typename Work>
int together(paceline_comm* comm, const char* what, bool usable, const Work& work) {
  const auto refused = [&] {
    comm->it->give_up(std::string(what) +
                      " with arguments that make no sense: counts, type, root or buffers");
    return PACELINE_EINVAL;
  };
  if (comm != nullptr && !usable)
    return guarded(comm, true, [&](comm_core::Communicator&) { return refused(); });
  return guarded(comm, usable, [&](comm_core::Communicator& it) {
    const int code = work(it);
    return code == PACELINE_EINVAL ? refused() : code;
  });
}

// Lays the pieces out one behind the other. False if their total is larger than memory.
template <typename Byte>
bool laid_out(comm_core::Pieces<Byte>& pieces, const uint64_t* counts, std::uint32_t ranks,
              std::uint32_t dtype) {
  std::uint64_t at = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    pieces.begins.push_back(at);
    pieces.counts.push_back(counts[rank]);
    if (!fits(counts[rank], dtype, 1) || !fits(at + counts[rank], dtype, 1)) return false;
    at += counts[rank];
  }
  return pieces.data != nullptr || at == 0;
}

int swap_pieces(comm_core::Communicator& it, comm_core::Pieces<const std::byte> in,
                const uint64_t* in_counts, comm_core::Pieces<std::byte> out,
                const uint64_t* out_counts, std::uint32_t dtype, bool equal) {
  if (!laid_out(in, in_counts, it.ranks(), dtype) || !laid_out(out, out_counts, it.ranks(), dtype))
    return PACELINE_EINVAL;
  if (in_counts[it.rank()] != out_counts[it.rank()]) return PACELINE_EINVAL;
  return it.all_to_all(in, out, comm_core::Type{dtype}, equal);
}

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

extern "C" {

int paceline_comm_create(const struct paceline_comm_options* options,
                         const struct paceline_comm_store* store, struct paceline_comm** comm,
                         char* error, uint64_t error_capacity) {
  if (options == nullptr || comm == nullptr) return PACELINE_EINVAL;
  try {
    if (const std::string why = unusable(*options, store); !why.empty()) {
      copy_text(why, error, error_capacity);
      return PACELINE_EINVAL;
    }
    comm_core::Options made;
    made.rank = options->rank;
    made.ranks = options->ranks;
    made.name = options->name;
    made.host = text_or_none(options->host);
    made.address = text_or_none(options->address);
    made.plan = text_or_none(options->plan);
    if (options->flows != 0) made.flows = options->flows;
    if (options->heartbeat_timeout_ms != 0)
      made.heartbeat_timeout = std::chrono::milliseconds(options->heartbeat_timeout_ms);
    if (options->timeout_ms != 0) made.timeout = std::chrono::milliseconds(options->timeout_ms);
    auto created = comm_core::Communicator::create(made, *store);
    if (!created) {
      copy_text(created.error().text, error, error_capacity);
      return created.error().code;
    }
    *comm = new paceline_comm{.it = std::move(*created), .sparse = {}};
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    copy_text("out of memory", error, error_capacity);
  } catch (const std::system_error& failure) {
    copy_text(failure.what(), error, error_capacity);
  }
  return PACELINE_ESYSTEM;
}

void paceline_comm_destroy(struct paceline_comm* comm) { delete comm; }

int paceline_comm_all_reduce(struct paceline_comm* comm, void* data, uint64_t count,
                             uint32_t dtype) {
  const bool usable = (data != nullptr || count == 0) && fits(count, dtype, 1);
  return together(comm, "all_reduce", usable, [&](comm_core::Communicator& it) {
    return it.all_reduce(bytes_of(data), count, comm_core::Type{dtype});
  });
}

int paceline_comm_reduce_scatter(struct paceline_comm* comm, const void* in, void* out,
                                 uint64_t count, uint32_t dtype) {
  const bool usable = ((in != nullptr && out != nullptr) || count == 0) &&
                      fits(count, dtype, PACELINE_COMM_MAX_RANKS);
  return together(comm, "reduce_scatter", usable, [&](comm_core::Communicator& it) {
    return it.reduce_scatter(bytes_of(in), bytes_of(out), count, comm_core::Type{dtype});
  });
}

int paceline_comm_all_gather(struct paceline_comm* comm, const void* in, void* out, uint64_t count,
                             uint32_t dtype) {
  const bool usable = ((in != nullptr && out != nullptr) || count == 0) &&
                      fits(count, dtype, PACELINE_COMM_MAX_RANKS);
  return together(comm, "all_gather", usable, [&](comm_core::Communicator& it) {
    return it.all_gather(bytes_of(in), bytes_of(out), count, comm_core::Type{dtype});
  });
}

int paceline_comm_broadcast(struct paceline_comm* comm, void* data, uint64_t count, uint32_t dtype,
                            uint32_t root) {
  const bool usable = (data != nullptr || count == 0) && fits(count, dtype, 1) && comm != nullptr &&
                      root < comm->it->ranks();
  return together(comm, "broadcast", usable, [&](comm_core::Communicator& it) {
    return it.broadcast(bytes_of(data), count, comm_core::Type{dtype}, root);
  });
}

int paceline_comm_reduce(struct paceline_comm* comm, void* data, uint64_t count, uint32_t dtype,
                         uint32_t root) {
  const bool usable = (data != nullptr || count == 0) && fits(count, dtype, 1) && comm != nullptr &&
                      root < comm->it->ranks();
  return together(comm, "reduce", usable, [&](comm_core::Communicator& it) {
    return it.reduce(bytes_of(data), count, comm_core::Type{dtype}, root);
  });
}

int paceline_comm_barrier(struct paceline_comm* comm) {
  return guarded(comm, true, [](comm_core::Communicator& it) { return it.barrier(); });
}

int paceline_comm_all_to_all(struct paceline_comm* comm, const void* in, void* out, uint64_t count,
                             uint32_t dtype) {
  return together(comm, "all_to_all", fits(count, dtype, PACELINE_COMM_MAX_RANKS),
                  [&](comm_core::Communicator& it) {
                    const std::vector<uint64_t> counts(it.ranks(), count);
                    return swap_pieces(it, {.data = bytes_of(in), .begins = {}, .counts = {}},
                                       counts.data(),
                                       {.data = bytes_of(out), .begins = {}, .counts = {}},
                                       counts.data(), dtype, true);
                  });
}

int paceline_comm_all_to_all_v(struct paceline_comm* comm, const void* in,
                               const uint64_t* in_counts, void* out, const uint64_t* out_counts,
                               uint32_t dtype) {
  const bool usable = in_counts != nullptr && out_counts != nullptr && comm_core::is_type(dtype);
  return together(comm, "all_to_all_v", usable, [&](comm_core::Communicator& it) {
    return swap_pieces(it, {.data = bytes_of(in), .begins = {}, .counts = {}}, in_counts,
                       {.data = bytes_of(out), .begins = {}, .counts = {}}, out_counts, dtype,
                       false);
  });
}

int paceline_comm_exchange(struct paceline_comm* comm, const void* out, uint64_t out_count,
                           uint32_t to, void* in, uint64_t in_count, uint32_t from,
                           uint32_t dtype) {
  const bool usable = (out != nullptr || out_count == 0) && (in != nullptr || in_count == 0) &&
                      fits(out_count, dtype, 1) && fits(in_count, dtype, 1);
  return guarded(comm, usable, [&](comm_core::Communicator& it) -> int {
    const bool itself = to == it.rank() || from == it.rank();
    if (to >= it.ranks() || from >= it.ranks() || (itself && (to != from || out_count != in_count)))
      return PACELINE_EINVAL;
    return it.exchange({.peer = to, .data = bytes_of(out), .count = out_count},
                       {.peer = from, .data = bytes_of(in), .count = in_count},
                       comm_core::Type{dtype});
  });
}

int paceline_comm_send(struct paceline_comm* comm, const void* data, uint64_t count, uint32_t dtype,
                       uint32_t to) {
  return guarded(comm, (data != nullptr || count == 0) && fits(count, dtype, 1),
                 [&](comm_core::Communicator& it) -> int {
                   if (to >= it.ranks() || to == it.rank()) return PACELINE_EINVAL;
                   return it.exchange({.peer = to, .data = bytes_of(data), .count = count}, {},
                                      comm_core::Type{dtype});
                 });
}

int paceline_comm_receive(struct paceline_comm* comm, void* data, uint64_t count, uint32_t dtype,
                          uint32_t from) {
  return guarded(comm, (data != nullptr || count == 0) && fits(count, dtype, 1),
                 [&](comm_core::Communicator& it) -> int {
                   if (from >= it.ranks() || from == it.rank()) return PACELINE_EINVAL;
                   return it.exchange({}, {.peer = from, .data = bytes_of(data), .count = count},
                                      comm_core::Type{dtype});
                 });
}

int paceline_comm_all_reduce_sparse(struct paceline_comm* comm, const int64_t* indices,
                                    const void* values, uint64_t count, uint64_t width,
                                    uint32_t dtype, uint64_t* result_count) {
  const bool usable = result_count != nullptr && width > 0 &&
                      fits(width, dtype, PACELINE_COMM_MAX_RANKS) &&
                      fits(count, dtype, PACELINE_COMM_MAX_RANKS * width) &&
                      ((indices != nullptr && values != nullptr) || count == 0);
  return together(comm, "sparse all_reduce", usable, [&](comm_core::Communicator& it) {
    const int code = it.all_reduce_sparse(
        {.indices = indices, .values = bytes_of(values), .count = count, .width = width},
        comm_core::Type{dtype}, comm->sparse);
    *result_count = comm->sparse.indices.size();
    return code;
  });
}

int paceline_comm_sparse_result(struct paceline_comm* comm, int64_t* indices, void* values,
                                uint64_t count) {
  return guarded(comm, count == 0 || (indices != nullptr && values != nullptr),
                 [&](comm_core::Communicator&) -> int {
                   if (count != comm->sparse.indices.size()) return PACELINE_EINVAL;
                   const comm_core::Sparse taken = std::exchange(comm->sparse, {});
                   if (count == 0) return PACELINE_OK;
                   std::memcpy(indices, taken.indices.data(), count * sizeof(int64_t));
                   std::memcpy(values, taken.values.data(), taken.values.size());
                   return PACELINE_OK;
                 });
}

int paceline_comm_all_reduce_start(struct paceline_comm* comm, void* data, uint64_t count,
                                   uint32_t dtype, uint64_t* ticket) {
  return guarded(comm,
                 ticket != nullptr && (data != nullptr || count == 0) && fits(count, dtype, 1),
                 [&](comm_core::Communicator& it) {
                   *ticket = it.start_all_reduce(bytes_of(data), count, comm_core::Type{dtype});
                   return PACELINE_OK;
                 });
}

int paceline_comm_residual_count(struct paceline_comm* comm, uint64_t count,
                                 uint64_t* residual_count) {
  return guarded(comm, residual_count != nullptr && fits(count, PACELINE_COMM_F32, 1),
                 [&](comm_core::Communicator& it) {
                   *residual_count = it.residual_count(count);
                   return PACELINE_OK + 0;
                 });
}

int paceline_comm_all_reduce_coded_start(struct paceline_comm* comm, float* data, uint64_t count,
                                         uint32_t codec, uint32_t keep, float* residual,
                                         uint64_t residual_count, uint64_t* ticket) {
  const bool gathers = codec == PACELINE_COMM_CODEC_DGC;
  const comm_core::Coding coding{.codec = comm_core::Codec{codec},
                                 .keep = gathers ? keep & ((1U << 20) - 1) : keep,
                                 .momentum = gathers ? keep >> 20 : 0};
  const bool usable = ticket != nullptr && (data != nullptr || count == 0) &&
                      (residual != nullptr || residual_count == 0) &&
                      fits(count, PACELINE_COMM_F32, 2) && comm_core::is_coding(coding);
  return guarded(comm, usable, [&](comm_core::Communicator& it) {
    if (residual_count != it.residual_count(count) * coding.residuals()) return PACELINE_EINVAL;
    *ticket = it.start_coded_all_reduce(data, count, coding, residual);
    return PACELINE_OK;
  });
}

int paceline_comm_orthonormalize(float* matrix, uint64_t rows, uint64_t columns) {
  if (rows == 0 || columns == 0) return PACELINE_OK;
  if (matrix == nullptr || !fits(rows, PACELINE_COMM_F64, 1) ||
      !fits(columns, PACELINE_COMM_F64, rows))
    return PACELINE_EINVAL;
  try {
    comm_core::orthonormalize(matrix, rows, columns);
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return PACELINE_ESYSTEM;
  }
}

int paceline_comm_wait(struct paceline_comm* comm, uint64_t ticket) {
  return guarded(comm, true, [&](comm_core::Communicator& it) { return it.wait(ticket); });
}

int paceline_comm_is_completed(struct paceline_comm* comm, uint64_t ticket, uint32_t* completed) {
  return guarded(comm, completed != nullptr, [&](comm_core::Communicator& it) {
    *completed = it.is_completed(ticket) ? 1 : 0;
    return PACELINE_OK;
  });
}

int paceline_comm_abort(struct paceline_comm* comm, const char* why) {
  return guarded(comm, true, [&](comm_core::Communicator& it) {
    it.give_up(text_or_none(why));
    return PACELINE_OK;
  });
}

int paceline_comm_forked(struct paceline_comm* comm) {
  return guarded(comm, true, [](comm_core::Communicator& it) {
    it.forked();
    return PACELINE_OK;
  });
}

int paceline_comm_plan(struct paceline_comm* comm, uint64_t count, uint32_t dtype, char* text,
                       uint64_t capacity) {
  return guarded(comm, text != nullptr && fits(count, dtype, 1), [&](comm_core::Communicator& it) {
    copy_text(it.plan(), text, capacity);
    return PACELINE_OK;
  });
}

int paceline_comm_tune(struct paceline_comm* comm, const char* known, uint32_t budget_ms,
                       char* text, uint64_t capacity) {
  return guarded(comm, true, [&](comm_core::Communicator& it) {
    const auto choices =
        it.tune(text_or_none(known), std::chrono::milliseconds(budget_ms == 0 ? 1000 : budget_ms));
    if (!choices) return choices.error();
    copy_text(*choices, text, capacity);
    return PACELINE_OK + 0;
  });
}

int paceline_comm_shape(struct paceline_comm* comm, char* text, uint64_t capacity) {
  return guarded(comm, text != nullptr, [&](comm_core::Communicator& it) {
    copy_text(it.shape(), text, capacity);
    return PACELINE_OK;
  });
}

int paceline_comm_error(struct paceline_comm* comm, char* text, uint64_t capacity, int32_t* rank) {
  return guarded(comm, true, [&](comm_core::Communicator& it) {
    const comm_core::Error error = it.error();
    copy_text(error.text, text, capacity);
    if (rank != nullptr) *rank = error.rank;
    return PACELINE_OK;
  });
}

}  // extern "C"
