/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Step record v1: what one training process (a rank) reports about its steps, and the ring that
 * carries the reports.
 *
 * A ring is a memfd sealed F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL: one header of 4 KiB, then
 * `capacity` records of 512 bytes. It has one writer (the rank), which overwrites the oldest
 * record, and any number of readers, which map it read-only. Everything is little-endian and
 * without pointers; every offset below is asserted. Needs C11 or C++11, and includes nothing of
 * Paceline.
 *
 * To read record number i (from 0; the newest is write_index - 1) from slot i % capacity:
 *
 *   1. Load slot.seq (acquire). If it is not i + 1, the record is being written or was
 *      overwritten: count a gap.
 *   2. Copy the 512 bytes.
 *   3. Issue an acquire fence.
 *   4. Load slot.seq again. If it has changed, the copy is torn: count a gap.
 *   5. Only now look at the copy, and validate it. A hostile writer can store anything at any time.
 *
 * The writer stores seq = 0, issues a release fence, and stores the fields. Then it stores seq = i
 * + 1 (release) and write_index = i + 1 (release). So a writer killed at any store leaves at most
 * one unreadable slot, and never a wrong record.
 *
 * Absent is never 0: a field counts only if its bit in `valid` is set. A reader of another
 * abi_major ignores the ring and counts it. From a ring of a higher abi_minor, a reader reads the
 * bytes that it knows (record.bytes, header_bytes).
 */
#ifndef PACELINE_STEP_RECORD_H_
#define PACELINE_STEP_RECORD_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define PACELINE_STATIC_ASSERT(condition, text) static_assert(condition, text)
extern "C" {
#else
#define PACELINE_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

#define PACELINE_RING_MAGIC 0x31524c50u  /* "PLR1" */
#define PACELINE_OFFER_MAGIC 0x314f4c50u /* "PLO1" */
#define PACELINE_ABI_MAJOR 1
#define PACELINE_ABI_MINOR 1
#define PACELINE_RECORD_VERSION 1
#define PACELINE_OFFER_VERSION 1
#define PACELINE_HEADER_BYTES 4096u
#define PACELINE_RECORD_BYTES 512u
#define PACELINE_RING_CAPACITY 1024u      /* capacity of the rings that this library opens */
#define PACELINE_RING_CAPACITY_MAX 65536u /* a reader refuses more */

/* Exactly these 16; another phase would need record version 2. */
enum paceline_phase {
  PACELINE_PHASE_DATA_WAIT = 0,
  PACELINE_PHASE_H2D = 1,
  PACELINE_PHASE_FORWARD = 2,
  PACELINE_PHASE_BACKWARD = 3,
  PACELINE_PHASE_COMM_EXPOSED = 4,
  PACELINE_PHASE_OPTIMIZER = 5,
  PACELINE_PHASE_CHECKPOINT = 6,
  PACELINE_PHASE_EVALUATION = 7,
  PACELINE_PHASE_RECOMPUTE = 8,
  PACELINE_PHASE_PIPELINE_BUBBLE = 9,
  PACELINE_PHASE_COMPUTE_UNDIVIDED = 10,
  PACELINE_PHASE_MEMCPY_OTHER = 11,
  PACELINE_PHASE_IDLE_HOST = 12,
  PACELINE_PHASE_IDLE_GAP = 13,
  PACELINE_PHASE_OTHER = 14,
  PACELINE_PHASE_UNATTRIBUTED = 15
};
#define PACELINE_PHASE_COUNT 16

enum paceline_record_kind {
  PACELINE_KIND_STEP = 1,
  PACELINE_KIND_SPAN = 2,
  PACELINE_KIND_AMENDMENT = 3
};

enum paceline_boundary {
  PACELINE_BOUNDARY_OPTIMIZER = 1,
  PACELINE_BOUNDARY_EXPLICIT = 2,
  PACELINE_BOUNDARY_NVTX = 3,
  PACELINE_BOUNDARY_NCCL = 4,
  PACELINE_BOUNDARY_GRAPH = 5
};

/* Where the time of a phase comes from; 0 means that this rank cannot measure the phase.
 * source[p]: low nibble host, high nibble device. */
enum paceline_source {
  PACELINE_SOURCE_ABSENT = 0,
  PACELINE_SOURCE_HOST = 1,
  PACELINE_SOURCE_EVENT = 2,
  PACELINE_SOURCE_NCCL = 3,
  PACELINE_SOURCE_CUPTI = 4,
  PACELINE_SOURCE_DERIVED = 5
};

/* A gradient scaler skipped an optimizer in this step. optimizer_mask and optimizers_stepped do
 * not count it. */
#define PACELINE_FLAG_SCALER_SKIP (UINT64_C(1) << 0)
#define PACELINE_FLAG_GRAPH_REPLAY (UINT64_C(1) << 1)
#define PACELINE_FLAG_WARM_UP (UINT64_C(1) << 2)
#define PACELINE_FLAG_SAMPLED_L2 (UINT64_C(1) << 3)
#define PACELINE_FLAG_TRUNCATED_POOL (UINT64_C(1) << 4)
#define PACELINE_FLAG_CLOCK_JUMP (UINT64_C(1) << 5)
#define PACELINE_FLAG_NO_SYNC (UINT64_C(1) << 6)
/* The last record of the rank: the time after the last step (evaluation, checkpoint). It is no
 * step of its own. */
#define PACELINE_FLAG_FINAL (UINT64_C(1) << 7)
/* Whenever the host left a phase, the device had done nearly all that was queued. So the device
 * may have waited for the host inside its phases, or the host for the device: events cannot tell.
 */
#define PACELINE_FLAG_DEVICE_FOLLOWS (UINT64_C(1) << 8)

/* Bits of `valid`: one for each field or array. An amendment overrides exactly the fields whose
 * bits it sets. */
#define PACELINE_VALID_USER_STEP (UINT64_C(1) << 0)
#define PACELINE_VALID_HOST_NS (UINT64_C(1) << 1)
#define PACELINE_VALID_DEVICE_NS (UINT64_C(1) << 2)
#define PACELINE_VALID_DEVICE_WINDOW_NS (UINT64_C(1) << 3)
#define PACELINE_VALID_COMM_TOTAL_NS (UINT64_C(1) << 4)
#define PACELINE_VALID_COMM_EXPOSED_NS (UINT64_C(1) << 5)
#define PACELINE_VALID_COMM_PEER_WAIT_NS (UINT64_C(1) << 6)
#define PACELINE_VALID_COMM_PAYLOAD_BYTES (UINT64_C(1) << 7)
#define PACELINE_VALID_COMM_WIRE_BYTES (UINT64_C(1) << 8)
#define PACELINE_VALID_COLLECTIVE_SEQ_LAST (UINT64_C(1) << 9)
#define PACELINE_VALID_COMM_OPS (UINT64_C(1) << 10)
#define PACELINE_VALID_GROUP_COUNT (UINT64_C(1) << 11)
#define PACELINE_VALID_SAMPLES (UINT64_C(1) << 12)
#define PACELINE_VALID_TOKENS (UINT64_C(1) << 13)
#define PACELINE_VALID_H2D_BYTES (UINT64_C(1) << 14)
#define PACELINE_VALID_DEVICE_MEM_PEAK (UINT64_C(1) << 15)
#define PACELINE_VALID_MICRO_BATCHES (UINT64_C(1) << 16)
#define PACELINE_VALID_OPTIMIZERS_STEPPED (UINT64_C(1) << 17)
#define PACELINE_VALID_PP_STAGE (UINT64_C(1) << 18)
#define PACELINE_VALID_VPP_CHUNKS (UINT64_C(1) << 19)
#define PACELINE_VALID_KERNELS (UINT64_C(1) << 20)
#define PACELINE_VALID_GRAPH_LAUNCHES (UINT64_C(1) << 21)
#define PACELINE_VALID_LOADER_READY (UINT64_C(1) << 22)
#define PACELINE_VALID_LOADER_MISSES (UINT64_C(1) << 23)
#define PACELINE_VALID_LOSS_SCALE (UINT64_C(1) << 24)
#define PACELINE_VALID_LOADER_WAIT_MAX_US (UINT64_C(1) << 25)
#define PACELINE_VALID_RSS_MIB (UINT64_C(1) << 26)
#define PACELINE_VALID_OVERHEAD_NS (UINT64_C(1) << 27)
#define PACELINE_VALID_LOST_EVENTS (UINT64_C(1) << 28)
#define PACELINE_VALID_AMENDS_SEQ (UINT64_C(1) << 29)

struct paceline_step_record {
  /* 0: identity of the record */
  uint64_t seq;     /* record number + 1; 0 while the writer writes the slot */
  uint16_t version; /* PACELINE_RECORD_VERSION */
  uint16_t bytes;   /* bytes the writer filled */
  uint8_t kind;     /* enum paceline_record_kind */
  uint8_t boundary; /* enum paceline_boundary */
  uint16_t
      optimizer_mask; /* which optimizers stepped; bit 15 stands for the 16th and all later ones */
  uint64_t step;      /* from 1, within the process of this ring */
  int64_t user_step;  /* the program's own number, -1 if it reported none */
  uint64_t start_ns;  /* CLOCK_MONOTONIC */
  uint64_t wall_ns;
  uint32_t attempt;
  uint32_t ring_epoch;
  uint64_t flags;
  /* 64 and 192: exclusive partitions of wall_ns and of the device window; never add the two */
  uint64_t host_ns[PACELINE_PHASE_COUNT];
  uint64_t device_ns[PACELINE_PHASE_COUNT];
  /* 320: communication */
  uint64_t device_window_ns;
  uint64_t comm_total_ns;
  uint64_t comm_exposed_ns;
  uint64_t comm_peer_wait_ns;
  uint64_t comm_payload_bytes;
  uint64_t comm_wire_bytes;
  uint64_t collective_seq_last;
  uint32_t comm_ops;
  uint32_t group_count;
  /* 384: work and resources */
  uint64_t samples;
  uint64_t tokens;
  uint64_t h2d_bytes;
  uint64_t device_mem_peak;
  uint16_t micro_batches;
  uint16_t optimizers_stepped;
  int16_t pp_stage;
  uint16_t vpp_chunks;
  uint32_t kernels;
  uint32_t graph_launches;
  uint16_t loader_ready;
  uint16_t loader_misses;
  float loss_scale;
  uint32_t loader_wait_max_us;
  uint32_t rss_mib;
  /* 448: which of the fields above count */
  uint64_t valid;
  uint8_t source[PACELINE_PHASE_COUNT];
  uint32_t overhead_ns; /* cost of tracing in this step */
  uint32_t lost_events; /* records that this rank could not publish since its last one */
  uint64_t amends_seq;
  uint8_t reserved[24]; /* 0 */
};

/* Claims of the process about itself. Labels of metrics come from the trusted identity of the
 * hand-over instead. */
enum paceline_device_kind {
  PACELINE_DEVICE_UNKNOWN = 0,
  PACELINE_DEVICE_CPU = 1,
  PACELINE_DEVICE_CUDA = 2
};
enum paceline_framework {
  PACELINE_FRAMEWORK_UNKNOWN = 0,
  PACELINE_FRAMEWORK_PYTORCH = 1,
  PACELINE_FRAMEWORK_TENSORFLOW = 2,
  PACELINE_FRAMEWORK_JAX = 3,
  PACELINE_FRAMEWORK_PADDLE = 4,
  PACELINE_FRAMEWORK_MINDSPORE = 5
};
#define PACELINE_CAPABILITY_HOST_MARKS (UINT64_C(1) << 0)
#define PACELINE_CAPABILITY_DEVICE_EVENTS (UINT64_C(1) << 1)
#define PACELINE_CAPABILITY_NCCL_PROFILER (UINT64_C(1) << 2)
#define PACELINE_CAPABILITY_CUPTI (UINT64_C(1) << 3)

struct paceline_coordinate {
  int32_t index; /* -1 if unknown */
  int32_t size;  /* 0 if unknown */
};

/* Of collective_done: NCCL does not tell when collectives end. */
#define PACELINE_COLLECTIVE_UNKNOWN UINT64_MAX

/*
 * What the rank is doing now, so that a hang is visible without a record. It is a seqlock:
 * `version` is odd during a write. A reader copies, and accepts the copy if version was even and is
 * unchanged. A reader gives up after a few tries.
 *
 * group_id, collective_seq, collective_done, group_size and group_rank are about one communicator
 * of NCCL: the one whose collective has been unfinished for longest, else the one used last. They
 * are renewed about 20 times a second. group_id is the same on all ranks of a communicator. The
 * collectives of a communicator are counted from 1 in the order in which the rank enqueued them,
 * sends and receives left out. So two ranks with the same group_id and collective_seq called the
 * same collective.
 *
 *   collective_seq > collective_done    the rank waits in collective number collective_done + 1
 *   collective_seq == collective_done   it is in no collective of this communicator
 *   collective_done is UNKNOWN          only enqueued collectives are known
 *   collective_seq is 0                 no collective yet, or its number cannot be compared
 *
 * The rank that others wait for is one that has the same group_id and a lower collective_seq, or
 * another group_id. A rank that reports no group_id is not in a collective of NCCL, or has no
 * plugin.
 */
struct paceline_live_state {
  uint32_t version;
  uint32_t phase; /* enum paceline_phase; PACELINE_PHASE_UNATTRIBUTED between marks while their
                     meaning is unknown */
  uint64_t since_ns;
  uint64_t step;            /* the current step, from 1 */
  uint64_t collective_seq;  /* the last collective that was enqueued; 0: unknown */
  uint64_t group_id;        /* 0: no collective yet */
  uint64_t collective_done; /* the last that has ended on the device; from abi_minor 1 on, as are */
  uint32_t group_size;      /* ranks of the communicator, 0 if unknown */
  uint32_t group_rank;      /* this rank's number in it; counts if group_size is not 0 */
  uint8_t reserved[8];
};

struct paceline_ring_header {
  /* Written once, before the ring is handed over; magic is written last. A source that starts
   * later changes device_kind, device_number, pci_address and its bit of capabilities, in an order
   * that ends with the bit. Readers that care read these again. */
  uint32_t magic;
  uint16_t abi_major;
  uint16_t abi_minor;
  uint32_t header_bytes;
  uint32_t record_bytes;
  uint32_t capacity;   /* records */
  uint32_t ring_epoch; /* number of rings that this rank has opened in this attempt, from 1 */
  uint32_t attempt;
  uint32_t pid;                 /* in the rank's own pid namespace */
  uint64_t process_start_ticks; /* field 22 of /proc/self/stat */
  uint64_t monotonic_ns;        /* this and realtime_ns are read together, */
  uint64_t realtime_ns;         /* so that start_ns can be converted to wall time */
  uint64_t reserved0;
  char boot_id[40];   /* NUL-terminated, empty if unknown; so are the strings below */
  int32_t world_rank; /* -1 if unknown, as are all ranks */
  int32_t local_rank;
  int32_t node_rank;
  int32_t world_size;
  int32_t local_world_size;
  uint32_t role_id;
  struct paceline_coordinate dp;
  struct paceline_coordinate tp;
  struct paceline_coordinate pp;
  struct paceline_coordinate ep;
  struct paceline_coordinate cp;
  uint32_t device_kind;
  uint32_t framework_id;
  char framework_version[32];
  char pci_address[16];
  uint64_t capabilities;
  uint32_t device_number; /* index of the device in this process + 1; 0 if unknown (minor 1) */
  uint8_t reserved1[1024 - 236];
  /* Each of these has cache lines of its own. */
  uint64_t write_index; /* records ever published */
  uint8_t reserved2[56];
  uint64_t heartbeat_ns; /* CLOCK_MONOTONIC, stored by the publishing thread about once a second; 0
                            after an orderly end */
  uint8_t reserved3[56];
  struct paceline_live_state live;
  uint8_t reserved4[4096 - 1216];
};

/*
 * Hand-over: the rank connects to the SOCK_SEQPACKET socket named by PACELINE_TELEMETRY_SOCKET and
 * sends this one message with the memfd in SCM_RIGHTS. After a broken connection it sends the
 * message again; the same world_rank, pid and ring_epoch mean the same ring. The connection stays
 * open, and its end tells the receiver that the rank is gone. The receiver never answers. `size` is
 * the number of bytes that the sender filled; a receiver reads those that it knows and ignores the
 * rest.
 */
struct paceline_ring_offer {
  uint32_t magic;
  uint16_t version;
  uint16_t size;
  int32_t world_rank;
  int32_t local_rank;
  uint32_t pid;
  uint32_t ring_epoch;
  uint32_t attempt;
  uint8_t reserved[36]; /* 0 */
};

#ifdef __cplusplus
}
#endif

#include "step_record_layout.h"

#endif /* PACELINE_STEP_RECORD_H_ */
