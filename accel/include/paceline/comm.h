/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives between processes. A communicator is a handle over the ranks that call create with
 * the same name; a process may have several. All buffers are memory of the CPU.
 *
 * Ranks of one host pass data through shared memory that has no name, where their system lets them.
 * Ranks of different hosts use RDMA if both have a device, else TCP. NCCL's variables choose the
 * devices: NCCL_IB_HCA, NCCL_IB_GID_INDEX, NCCL_IB_DISABLE=1 and others.
 *
 * Ownership: the caller destroys the communicator. Buffers belong to the caller and are in use only
 * during a call. A forked child must not use the communicator.
 *
 * Threads: each communicator has threads of its own, made when first needed. One is the failure
 * detector and one runs the calls that were started in the background. One sends around all ranks,
 * two serve a channel between hosts, and one sends from rank to rank. One collective runs at a
 * time: a second caller waits for the first, and for all that was started before. All ranks call
 * the same collectives in the same order with the same arguments; a difference is an error that
 * names it.
 *
 * Blocking: on futex and poll, never spinning. `heartbeat_timeout_ms` bounds a wait for a peer that
 * has died, has stopped or cannot be reached; `timeout_ms` one for a peer that lives but does not
 * come.
 *
 * Numerics: a sum depends on the inputs, the plan and the count alone, so all ranks and all runs
 * get the same bits. Halves are added in fp32. They are rounded once for each host and once for
 * each hop between hosts; small arrays, which go by recursive doubling or a tree, once for each of
 * log2(ranks) steps. Integers wrap.
 *
 * Failure: PACELINE_OK or a negative code. Arguments that make no sense are PACELINE_EINVAL. From a
 * collective that blocks, they also end the communicator on all ranks, since the other ranks would
 * wait for this one. After PACELINE_COMM_EPEER every call on this communicator fails the same way,
 * on every survivor, and the contents of output buffers are undefined. paceline_comm_error has the
 * text, which names the rank.
 */
#ifndef PACELINE_COMM_H_
#define PACELINE_COMM_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PACELINE_COMM_EPEER \
  (-20) /* a rank has died, is stuck, cannot be reached, or did something else */
#define PACELINE_COMM_ESTORE (-21) /* the store's functions failed */
#define PACELINE_COMM_MAX_RANKS 1024u

enum paceline_comm_dtype {
  PACELINE_COMM_F32 = 0,
  PACELINE_COMM_F64 = 1,
  PACELINE_COMM_F16 = 2,
  PACELINE_COMM_BF16 = 3,
  PACELINE_COMM_I32 = 4,
  PACELINE_COMM_I64 = 5
};

/*
 * The store through which ranks find each other: a map of small values that all of them see. Only
 * create uses it, on its own thread. set returns 0 for success. get returns 0 and *size, 1 if the
 * key does not come within the time, and anything else for failure.
 */
struct paceline_comm_store {
  void* context;
  int (*set)(void* context, const char* key, const void* value, uint64_t size);
  int (*get)(void* context, const char* key, void* value, uint64_t capacity, uint64_t* size,
             int32_t timeout_ms);
};

/* `size` is sizeof(struct paceline_comm_options); 0 and null choose the default. Strings are
 * copied. */
struct paceline_comm_options {
  uint32_t size;
  uint32_t rank;
  uint32_t ranks;
  uint32_t flows;   /* TCP connections for each hop between hosts by TCP, 1 to 16; default 4, or a
                       multiple of the addresses */
  const char* name; /* of this communicator; once only for each store */
  const char*
      host; /* equal for ranks that share memory; default: this boot, this network namespace */
  /* A numeric address where peers reach this rank; default: the first that is up. Give several,
   * separated by commas, to use several network devices. The i-th address of one rank connects to
   * the i-th of another. */
  const char* address;
  const char* plan; /* what paceline_comm_plan printed, or parts of it: algorithm=, chunk=, choice=,
                       flows=, memory=, transport=, order=. The same on all ranks */
  int32_t heartbeat_timeout_ms; /* a peer that says nothing for so long is lost; default 10000, at
                                   least 100 */
  int32_t timeout_ms;           /* for create, and for each collective to end; default 600000 */
};

struct paceline_comm;

/* Returns when all ranks are connected. `error` (may be null) gets a text if it fails. */
PACELINE_EXPORT int paceline_comm_create(const struct paceline_comm_options* options,
                                         const struct paceline_comm_store* store,
                                         struct paceline_comm** comm, char* error,
                                         uint64_t error_capacity);
PACELINE_EXPORT void paceline_comm_destroy(struct paceline_comm* comm);

/* The sum over all ranks, in place. */
PACELINE_EXPORT int paceline_comm_all_reduce(struct paceline_comm* comm, void* data, uint64_t count,
                                             uint32_t dtype);
/* `in` has `ranks` pieces of `count`, piece r for rank r; `out` one. They must not overlap. */
PACELINE_EXPORT int paceline_comm_reduce_scatter(struct paceline_comm* comm, const void* in,
                                                 void* out, uint64_t count, uint32_t dtype);
/* `in` is one piece of `count`; `out` has `ranks` of them. `in` may be this rank's piece of `out`.
 */
PACELINE_EXPORT int paceline_comm_all_gather(struct paceline_comm* comm, const void* in, void* out,
                                             uint64_t count, uint32_t dtype);
PACELINE_EXPORT int paceline_comm_broadcast(struct paceline_comm* comm, void* data, uint64_t count,
                                            uint32_t dtype, uint32_t root);
/* The sum over all ranks, in place at rank `root`. The other ranks' `data` stays unchanged. */
PACELINE_EXPORT int paceline_comm_reduce(struct paceline_comm* comm, void* data, uint64_t count,
                                         uint32_t dtype, uint32_t root);
PACELINE_EXPORT int paceline_comm_barrier(struct paceline_comm* comm);
/* Both have `ranks` pieces of `count`: piece r of `in` goes to rank r, piece r of `out` comes from
 * it. They must not overlap. */
PACELINE_EXPORT int paceline_comm_all_to_all(struct paceline_comm* comm, const void* in, void* out,
                                             uint64_t count, uint32_t dtype);
/* The same with pieces of different sizes, one behind the other; there are `ranks` counts for each
 * buffer. The count that rank a sends to b must equal the count that b expects from a. */
PACELINE_EXPORT int paceline_comm_all_to_all_v(struct paceline_comm* comm, const void* in,
                                               const uint64_t* in_counts, void* out,
                                               const uint64_t* out_counts, uint32_t dtype);

/*
 * From one rank to another. Only these two ranks call. Messages of a pair arrive in the order sent,
 * and are received with the same count and type. `exchange` sends and receives at once, with one
 * peer or two: ranks in a ring that each send before they receive would block forever. With `to`
 * and `from` equal to this rank it copies.
 */
PACELINE_EXPORT int paceline_comm_send(struct paceline_comm* comm, const void* data, uint64_t count,
                                       uint32_t dtype, uint32_t to);
PACELINE_EXPORT int paceline_comm_receive(struct paceline_comm* comm, void* data, uint64_t count,
                                          uint32_t dtype, uint32_t from);
PACELINE_EXPORT int paceline_comm_exchange(struct paceline_comm* comm, const void* out,
                                           uint64_t out_count, uint32_t to, void* in,
                                           uint64_t in_count, uint32_t from, uint32_t dtype);

/* The sum of sparse arrays. Each rank gives `count` rows of `width` values and their row numbers,
 * in any order and with repetitions. Rows with the same number are added up by rank, and within a
 * rank in the order given, so all ranks get the same bits. `sparse_result` then copies the result
 * out: *result_count rows with ascending numbers, each once. The communicator keeps the result
 * until then, or until the next sparse all-reduce. */
PACELINE_EXPORT int paceline_comm_all_reduce_sparse(struct paceline_comm* comm,
                                                    const int64_t* indices, const void* values,
                                                    uint64_t count, uint64_t width, uint32_t dtype,
                                                    uint64_t* result_count);
PACELINE_EXPORT int paceline_comm_sparse_result(struct paceline_comm* comm, int64_t* indices,
                                                void* values, uint64_t count);

/* An all-reduce in the background. A thread of the communicator runs it after all calls that were
 * started before. `data` is in use until `wait` for its ticket returns, or the communicator is
 * destroyed. `wait` returns its code, or that of an earlier call that failed. Blocks while 4096
 * calls are under way. */
PACELINE_EXPORT int paceline_comm_all_reduce_start(struct paceline_comm* comm, void* data,
                                                   uint64_t count, uint32_t dtype,
                                                   uint64_t* ticket);
/* An all-reduce of floats that sends fewer bytes between hosts (class Lossy, with error feedback).
 * The result is the sum of `data` and `residual` of all ranks, less what `residual` has afterwards.
 * All ranks get the same bits.
 *
 * `residual` has paceline_comm_residual_count values, zeros at first. It belongs to this array,
 * these ranks and this plan. Keep it from call to call and save it in a checkpoint. If all ranks
 * are on one host, nothing is coded and there is no residual. `keep` is how many of a million
 * values PACELINE_COMM_CODEC_TOP_K sends; it is 0 for other codecs. */
enum paceline_comm_codec {
  PACELINE_COMM_CODEC_F16 = 1,
  PACELINE_COMM_CODEC_BF16 = 2,
  PACELINE_COMM_CODEC_INT8 = 3,
  PACELINE_COMM_CODEC_TOP_K = 4,
  PACELINE_COMM_CODEC_ONE_BIT = 5,
  /* Deep gradient compression: top-k of the accumulated momentum, for an optimizer without
   * momentum. `residual` has twice as many values. The upper 12 bits of `keep` are the momentum in
   * thousandths. */
  PACELINE_COMM_CODEC_DGC = 6
};
PACELINE_EXPORT int paceline_comm_all_reduce_coded_start(struct paceline_comm* comm, float* data,
                                                         uint64_t count, uint32_t codec,
                                                         uint32_t keep, float* residual,
                                                         uint64_t residual_count, uint64_t* ticket);
PACELINE_EXPORT int paceline_comm_residual_count(struct paceline_comm* comm, uint64_t count,
                                                 uint64_t* residual_count);
/* For PowerSGD: makes the columns of a row-major matrix orthonormal in place, one after another in
 * double precision. Zeros stay zeros. The bits are the same on every processor, so ranks with the
 * same matrix agree. It needs no communicator. */
PACELINE_EXPORT int paceline_comm_orthonormalize(float* matrix, uint64_t rows, uint64_t columns);
PACELINE_EXPORT int paceline_comm_wait(struct paceline_comm* comm, uint64_t ticket);
/* Sets *completed to 1 once the call with this ticket has ended, with or without success. Does not
 * block. */
PACELINE_EXPORT int paceline_comm_is_completed(struct paceline_comm* comm, uint64_t ticket,
                                               uint32_t* completed);

/* This rank gives up: all calls end, here and on all other ranks, with an error that names this
 * rank and says `why`. Any thread may call it. */
PACELINE_EXPORT int paceline_comm_abort(struct paceline_comm* comm, const char* why);
/* The only call that a forked child makes. It closes the child's copies of the connections;
 * otherwise they would seem alive for as long as the child lives. */
PACELINE_EXPORT int paceline_comm_forked(struct paceline_comm* comm);

/* Measures which algorithm of an all-reduce is quickest for which sizes, for about `budget_ms` (0:
 * a second), and uses it from now on. All ranks call it. `known` is null, or on rank 0 a `text`
 * from an earlier call. If it fits, it is used instead of measuring. */
PACELINE_EXPORT int paceline_comm_tune(struct paceline_comm* comm, const char* known,
                                       uint32_t budget_ms, char* text, uint64_t capacity);
/* How many ranks each host has: "4,4". */
PACELINE_EXPORT int paceline_comm_shape(struct paceline_comm* comm, char* text, uint64_t capacity);

/* The algorithm of an all-reduce of this size, as text that the option `plan` accepts. */
PACELINE_EXPORT int paceline_comm_plan(struct paceline_comm* comm, uint64_t count, uint32_t dtype,
                                       char* text, uint64_t capacity);
/* Why the communicator failed, and which rank is named (-1: none). Empty if it has not failed. */
PACELINE_EXPORT int paceline_comm_error(struct paceline_comm* comm, char* text, uint64_t capacity,
                                        int32_t* rank);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_COMM_H_ */
