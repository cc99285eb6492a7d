// SPDX-License-Identifier: Apache-2.0
// The exported functions (comm.h): arguments checked, then one call. No exception leaves.
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "communicator.hpp"

namespace comm_core = paceline::comm;

struct paceline_comm {
  std::unique_ptr<comm_core::Communicator> it;
};

namespace {

void copy_text(const std::string& from, char* text, std::uint64_t capacity) {
  if (text == nullptr || capacity == 0) return;
  const std::size_t size = std::min<std::size_t>(from.size(), capacity - 1);
  std::memcpy(text, from.data(), size);
  text[size] = '\0';
}

// Empty where they can be used.
std::string unusable(const paceline_comm_options& given, const paceline_comm_store* store) {
  if (given.size != sizeof given) return "options: size: made for another version of comm.h";
  if (store == nullptr || store->set == nullptr || store->get == nullptr) return "store: set and get are needed";
  if (given.ranks == 0 || given.ranks > PACELINE_COMM_MAX_RANKS)
    return "ranks: " + std::to_string(given.ranks) + ": use 1 to " + std::to_string(PACELINE_COMM_MAX_RANKS);
  if (given.rank >= given.ranks)
    return "rank: " + std::to_string(given.rank) + ": use 0 to " + std::to_string(given.ranks - 1);
  if (given.flows > 16) return "flows: " + std::to_string(given.flows) + ": use 1 to 16";
  if (given.silence_ms < 0 || (given.silence_ms > 0 && given.silence_ms < 100))
    return "silence_ms: " + std::to_string(given.silence_ms) + ": use at least 100";
  if (given.timeout_ms < 0) return "timeout_ms: " + std::to_string(given.timeout_ms) + ": use 1 or more";
  if (given.name == nullptr || *given.name == '\0') return "name: give the communicator one";
  for (const char* text : {given.name, given.host, given.address, given.plan})
    if (text != nullptr && (std::strlen(text) > 8000 || std::strchr(text, '\n') != nullptr))
      return "options: '" + std::string(text, std::min<std::size_t>(std::strlen(text), 40)) +
             "…': no line feed, at most 8000 bytes";
  return "";
}

std::string text_or_none(const char* text) { return text == nullptr ? "" : text; }

bool fits(std::uint64_t count, std::uint32_t dtype, std::uint64_t pieces) {
  return comm_core::is_type(dtype) &&
         count <= std::numeric_limits<std::int64_t>::max() / pieces / comm_core::size_of(comm_core::Type{dtype});
}

template <typename Work>
int guarded(paceline_comm* comm, bool usable, const Work& work) {
  if (comm == nullptr || !usable) return PACELINE_EINVAL;
  try {
    return work(*comm->it);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return PACELINE_ESYSTEM;
  } catch (const std::system_error& error) {
    errno = error.code().value();
    return PACELINE_ESYSTEM;
  }
}

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

extern "C" {

int paceline_comm_create(const struct paceline_comm_options* options, const struct paceline_comm_store* store,
                         struct paceline_comm** comm, char* error, uint64_t error_capacity) {
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
    if (options->silence_ms != 0) made.silence = std::chrono::milliseconds(options->silence_ms);
    if (options->timeout_ms != 0) made.timeout = std::chrono::milliseconds(options->timeout_ms);
    auto created = comm_core::Communicator::create(made, *store);
    if (!created) {
      copy_text(created.error().text, error, error_capacity);
      return created.error().code;
    }
    *comm = new paceline_comm{std::move(*created)};
    return PACELINE_OK;
  } catch (const std::bad_alloc&) {
    copy_text("out of memory", error, error_capacity);
  } catch (const std::system_error& failure) {
    copy_text(failure.what(), error, error_capacity);
  }
  return PACELINE_ESYSTEM;
}

void paceline_comm_destroy(struct paceline_comm* comm) { delete comm; }

int paceline_comm_allreduce(struct paceline_comm* comm, void* data, uint64_t count, uint32_t dtype) {
  return guarded(comm, (data != nullptr || count == 0) && fits(count, dtype, 1), [&](comm_core::Communicator& it) {
    return it.allreduce(bytes_of(data), count, comm_core::Type{dtype});
  });
}

int paceline_comm_reduce_scatter(struct paceline_comm* comm, const void* in, void* out, uint64_t count,
                                 uint32_t dtype) {
  return guarded(comm, ((in != nullptr && out != nullptr) || count == 0) && fits(count, dtype, PACELINE_COMM_MAX_RANKS),
                 [&](comm_core::Communicator& it) {
                   return it.reduce_scatter(bytes_of(in), bytes_of(out), count, comm_core::Type{dtype});
                 });
}

int paceline_comm_allgather(struct paceline_comm* comm, const void* in, void* out, uint64_t count, uint32_t dtype) {
  return guarded(comm, ((in != nullptr && out != nullptr) || count == 0) && fits(count, dtype, PACELINE_COMM_MAX_RANKS),
                 [&](comm_core::Communicator& it) {
                   return it.allgather(bytes_of(in), bytes_of(out), count, comm_core::Type{dtype});
                 });
}

int paceline_comm_broadcast(struct paceline_comm* comm, void* data, uint64_t count, uint32_t dtype, uint32_t root) {
  return guarded(
      comm, (data != nullptr || count == 0) && fits(count, dtype, 1) && comm != nullptr && root < comm->it->ranks(),
      [&](comm_core::Communicator& it) { return it.broadcast(bytes_of(data), count, comm_core::Type{dtype}, root); });
}

int paceline_comm_barrier(struct paceline_comm* comm) {
  return guarded(comm, true, [](comm_core::Communicator& it) { return it.barrier(); });
}

int paceline_comm_allreduce_start(struct paceline_comm* comm, void* data, uint64_t count, uint32_t dtype,
                                  uint64_t* ticket) {
  return guarded(comm, ticket != nullptr && (data != nullptr || count == 0) && fits(count, dtype, 1),
                 [&](comm_core::Communicator& it) {
                   *ticket = it.start_allreduce(bytes_of(data), count, comm_core::Type{dtype});
                   return PACELINE_OK;
                 });
}

int paceline_comm_rest_count(struct paceline_comm* comm, uint64_t count, uint64_t* rest_count) {
  return guarded(comm, rest_count != nullptr && fits(count, PACELINE_COMM_F32, 1), [&](comm_core::Communicator& it) {
    *rest_count = it.rest_count(count);
    return PACELINE_OK + 0;
  });
}

int paceline_comm_allreduce_coded_start(struct paceline_comm* comm, float* data, uint64_t count, uint32_t codec,
                                        uint32_t keep, float* rest, uint64_t rest_count, uint64_t* ticket) {
  const bool usable = ticket != nullptr && (data != nullptr || count == 0) && (rest != nullptr || rest_count == 0) &&
                      fits(count, PACELINE_COMM_F32, 1) && comm_core::is_coding(codec, keep);
  return guarded(comm, usable, [&](comm_core::Communicator& it) {
    if (rest_count != it.rest_count(count)) return PACELINE_EINVAL;
    *ticket = it.start_coded_allreduce(data, count, {.codec = comm_core::Codec{codec}, .keep = keep}, rest);
    return PACELINE_OK;
  });
}

int paceline_comm_wait(struct paceline_comm* comm, uint64_t ticket) {
  return guarded(comm, true, [&](comm_core::Communicator& it) { return it.wait(ticket); });
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

int paceline_comm_plan(struct paceline_comm* comm, uint64_t count, uint32_t dtype, char* text, uint64_t capacity) {
  return guarded(comm, text != nullptr && fits(count, dtype, 1), [&](comm_core::Communicator& it) {
    copy_text(it.plan(), text, capacity);
    return PACELINE_OK;
  });
}

int paceline_comm_tune(struct paceline_comm* comm, const char* known, uint32_t budget_ms, char* text,
                       uint64_t capacity) {
  return guarded(comm, true, [&](comm_core::Communicator& it) {
    const auto choices = it.tune(text_or_none(known), std::chrono::milliseconds(budget_ms == 0 ? 1000 : budget_ms));
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
