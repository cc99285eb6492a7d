/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives of memory of NVIDIA's GPUs by a communicator of comm.h, without NCCL: inside a host
 * ranks read each other's memory by CUDA IPC, on one GPU or on peers; between hosts what they sum
 * up goes by GPUDirect RDMA where all ranks have seen that work, and that and all else through
 * pinned memory and the communicator's rings (TCP or RDMA). paceline_comm_plan says which.
 *
 * Ownership: the caller's buffers and streams. The communicator has a pool of a fixed size on the
 * device, made by open and freed by destroy, and streams of its own. Destroy waits until the other
 * ranks of the host have destroyed theirs, at most as long as for a silent peer; where one has not,
 * or a stream does not come to its end, what they use stays until the process ends. Nor does it
 * wait longer for the driver, which frees memory when all work of the process is done, NCCL's too:
 * a thread of the library goes on with that. Threads and order: as for comm.h; calls are queued
 * with the others that were started. Blocking: no kernel and no stream waits for another process,
 * or for the host. So `wait` blocks the host: until all ranks have started theirs and the device
 * has moved all chunks but the last few, never longer than comm.h says. What follows on the
 * caller's stream waits on the device. Numerics: as for a hierarchical allreduce of comm.h: inside
 * a host ranks are added in their order, halves in fp32 and rounded once; with several hosts chunks
 * are of the same size, so the bits are the same as those of the same plan on processors. A reduce
 * has the bits of an allreduce, a reduce-scatter those that it has on processors, but that ranks of
 * one host add halves in fp32 and round once. Failure: PACELINE_OK or a negative code, as comm.h
 * has it; PACELINE_EDEVICE where the driver refuses at the beginning or the end of a call. A rank
 *   whose device refuses, there or in between, gives up, by name, on all ranks; paceline_comm_error
 * has the driver's call and its answer.
 */
#ifndef PACELINE_COMM_DEVICE_H_
#define PACELINE_COMM_DEVICE_H_

#include "comm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `size` is set by the caller, to sizeof(struct paceline_comm_device). */
struct paceline_comm_device {
  uint32_t size;
  uint32_t reserved;
  uint64_t pool_bytes; /* of the device's memory, for as long as the communicator lives */
  void*
      stream; /* CUstream that results are written in: for allocators that ask who uses a buffer */
};

/*
 * Once for a communicator, by all its ranks: device `device` of this process (as CUDA numbers
 * them), with kernels from `folder` (comm-cuda12-sm_90.cubin and its like). `used` may be null.
 * PACELINE_EDEVICE, with the first refusal of any rank in `why`, on all ranks alike: no driver, no
 * module, no memory, a GPU that cannot read another's, ranks that do not go by hosts. The
 * communicator serves on without.
 */
PACELINE_EXPORT int paceline_comm_device_open(struct paceline_comm* comm, int32_t device,
                                              const char* folder, struct paceline_comm_device* used,
                                              char* why, uint64_t why_bytes);

/*
 * Starts the sum over all ranks, in place, of `count` elements at `data` in the device's memory. It
 * begins when `stream` (CUstream, 0: the default one) has come to here. `data` is in use until what
 * `wait` has a stream wait for, or where it fails until the communicator is destroyed.
 * PACELINE_EINVAL also before open, and on a stream that is being captured into a graph: other
 * ranks cannot be waited for by a replay.
 */
PACELINE_EXPORT int paceline_comm_device_allreduce_start(struct paceline_comm* comm, void* data,
                                                         uint64_t count, uint32_t dtype,
                                                         void* stream, uint64_t* ticket);
/* The same of the collectives that comm.h has by these names, with their arguments. All buffers are
 * in use as `data` is. */
PACELINE_EXPORT int paceline_comm_device_reduce_scatter_start(struct paceline_comm* comm,
                                                              const void* in, void* out,
                                                              uint64_t count, uint32_t dtype,
                                                              void* stream, uint64_t* ticket);
PACELINE_EXPORT int paceline_comm_device_allgather_start(struct paceline_comm* comm, const void* in,
                                                         void* out, uint64_t count, uint32_t dtype,
                                                         void* stream, uint64_t* ticket);
PACELINE_EXPORT int paceline_comm_device_broadcast_start(struct paceline_comm* comm, void* data,
                                                         uint64_t count, uint32_t dtype,
                                                         uint32_t root, void* stream,
                                                         uint64_t* ticket);
PACELINE_EXPORT int paceline_comm_device_reduce_start(struct paceline_comm* comm, void* data,
                                                      uint64_t count, uint32_t dtype, uint32_t root,
                                                      void* stream, uint64_t* ticket);
PACELINE_EXPORT int paceline_comm_device_alltoall_start(struct paceline_comm* comm, const void* in,
                                                        void* out, uint64_t count, uint32_t dtype,
                                                        void* stream, uint64_t* ticket);
PACELINE_EXPORT int paceline_comm_device_alltoallv_start(struct paceline_comm* comm, const void* in,
                                                         const uint64_t* in_counts, void* out,
                                                         const uint64_t* out_counts, uint32_t dtype,
                                                         void* stream, uint64_t* ticket);
/* Once for a ticket: what `stream` gets from here on waits for the result. */
PACELINE_EXPORT int paceline_comm_device_wait(struct paceline_comm* comm, uint64_t ticket,
                                              void* stream);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_COMM_DEVICE_H_ */
