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
  /*
   * Numeric, where peers reach this rank; default: the first address that is up. Several, separated
   * by commas, one for each network device that connections are to go over: the i-th of one rank
   * speaks with the i-th of another.
   */
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
/* The sum over all ranks, in place at rank `root`; `data` of others stays as it is. */
PACELINE_EXPORT int paceline_comm_reduce(struct paceline_comm* comm, void* data, uint64_t count,
                                         uint32_t dtype, uint32_t root);
PACELINE_EXPORT int paceline_comm_barrier(struct paceline_comm* comm);
/* Both have `ranks` pieces of `count`: piece r of `in` goes to rank r, piece r of `out` comes from
 * it. They must not overlap. */
PACELINE_EXPORT int paceline_comm_all_to_all(struct paceline_comm* comm, const void* in, void* out,
                                             uint64_t count, uint32_t dtype);
/* The same with pieces of different sizes, one behind the other: `ranks` counts each. What rank a
 * sends to b, b expects from a. */
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

/*
 * The sum of arrays of which each rank has some rows: `count` rows of `width` values, and their row
 * numbers in any order, with repetitions. Rows of one number are added up by rank, and within a
 * rank in the order given, so the bits are the same everywhere. `sparse_result` then copies the
 * result out, of which *result_count says the rows: ascending numbers, each once. The communicator
 * keeps it until then, or until the next sparse all-reduce.
 */
PACELINE_EXPORT int paceline_comm_all_reduce_sparse(struct paceline_comm* comm,
                                                    const int64_t* indices, const void* values,
                                                    uint64_t count, uint64_t width, uint32_t dtype,
                                                    uint64_t* result_count);
PACELINE_EXPORT int paceline_comm_sparse_result(struct paceline_comm* comm, int64_t* indices,
                                                void* values, uint64_t count);

/*
 * An all-reduce in the background: on a thread of the communicator, after all that was started
 * before it. `data` is in use until `wait` for its ticket has returned, or the communicator is
 * destroyed. `wait` returns its code, or that of an earlier call that failed. Blocks while 4096
 * calls are under way.
 */
PACELINE_EXPORT int paceline_comm_all_reduce_start(struct paceline_comm* comm, void* data,
                                                   uint64_t count, uint32_t dtype,
                                                   uint64_t* ticket);
/*
 * The same of floats, in fewer bytes between hosts (class Lossy, with error feedback). The result
 * is the sum of `data` and `residual` of all ranks, less what `residual` has afterwards. All ranks
 * get the same bits. `residual` has paceline_comm_residual_count values, zeros at first. It belongs
 * to this array, these ranks and this plan, is kept from call to call, and belongs in a checkpoint.
 * With all ranks on one host nothing is coded, and there is no residual. `keep`: how many of a
 * million values PACELINE_COMM_CODEC_TOP_K sends; 0 for other codecs.
 */
enum paceline_comm_codec {
  PACELINE_COMM_CODEC_F16 = 1,
  PACELINE_COMM_CODEC_BF16 = 2,
  PACELINE_COMM_CODEC_INT8 = 3,
  PACELINE_COMM_CODEC_TOP_K = 4,
  PACELINE_COMM_CODEC_ONE_BIT = 5,
  /*
   * Top-k of what momentum has gathered, for an optimizer that has none of its own: `residual` has
   * twice as many values, and `keep` in its upper 12 bits the momentum in thousandths.
   */
  PACELINE_COMM_CODEC_DGC = 6
};
PACELINE_EXPORT int paceline_comm_all_reduce_coded_start(struct paceline_comm* comm, float* data,
                                                         uint64_t count, uint32_t codec,
                                                         uint32_t keep, float* residual,
                                                         uint64_t residual_count, uint64_t* ticket);
PACELINE_EXPORT int paceline_comm_residual_count(struct paceline_comm* comm, uint64_t count,
                                                 uint64_t* residual_count);
/*
 * For PowerSGD: makes the columns of a matrix (row-major) orthonormal in place, one after another
 * in double precision. Zeros stay zeros. The bits are the same on every processor, so ranks with
 * the same matrix agree. Needs no communicator.
 */
PACELINE_EXPORT int paceline_comm_orthonormalize(float* matrix, uint64_t rows, uint64_t columns);
PACELINE_EXPORT int paceline_comm_wait(struct paceline_comm* comm, uint64_t ticket);
/* *completed is 1 once the call with this ticket has ended, well or not; does not block. */
PACELINE_EXPORT int paceline_comm_is_completed(struct paceline_comm* comm, uint64_t ticket,
                                               uint32_t* completed);

/* This rank gives up: all calls end, here and on all ranks, with an error that names this rank and
 * says `why`. From any thread. */
PACELINE_EXPORT int paceline_comm_abort(struct paceline_comm* comm, const char* why);
/* In a forked child, as its only call: closes the connections, which would else seem to live for as
 * long as the child does. */
PACELINE_EXPORT int paceline_comm_forked(struct paceline_comm* comm);

/*
 * Measures which way of an allreduce is quickest for which sizes, for about `budget_ms` (0: a
 * second), and uses it from now on. A collective. `known`, of rank 0, is what an earlier call has
 * written into `text`: used instead of measuring if it fits; else null.
 */
PACELINE_EXPORT int paceline_comm_tune(struct paceline_comm* comm, const char* known,
                                       uint32_t budget_ms, char* text, uint64_t capacity);
/* How many ranks each host has: "4,4". */
PACELINE_EXPORT int paceline_comm_shape(struct paceline_comm* comm, char* text, uint64_t capacity);

/* How allreduces are done, as text that `plan` above accepts. */
PACELINE_EXPORT int paceline_comm_plan(struct paceline_comm* comm, uint64_t count, uint32_t dtype,
                                       char* text, uint64_t capacity);
/* Why the communicator failed, and which rank is named (-1: none); empty while it has not. */
PACELINE_EXPORT int paceline_comm_error(struct paceline_comm* comm, char* text, uint64_t capacity,
                                        int32_t* rank);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_COMM_H_ */
