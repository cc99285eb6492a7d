/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asserts the offset of every field of step_record.h, so that two versions of a program never read
 * one ring differently. step_record.h includes this file at its end; nobody else does.
 */
#ifndef PACELINE_STEP_RECORD_LAYOUT_H_
#define PACELINE_STEP_RECORD_LAYOUT_H_

#define PACELINE_AT(type, field, offset) \
  PACELINE_STATIC_ASSERT(offsetof(struct type, field) == (offset), #type "." #field " moved")

PACELINE_AT(paceline_step_record, seq, 0);
PACELINE_AT(paceline_step_record, version, 8);
PACELINE_AT(paceline_step_record, bytes, 10);
PACELINE_AT(paceline_step_record, kind, 12);
PACELINE_AT(paceline_step_record, boundary, 13);
PACELINE_AT(paceline_step_record, optimizer_mask, 14);
PACELINE_AT(paceline_step_record, step, 16);
PACELINE_AT(paceline_step_record, user_step, 24);
PACELINE_AT(paceline_step_record, start_ns, 32);
PACELINE_AT(paceline_step_record, wall_ns, 40);
PACELINE_AT(paceline_step_record, attempt, 48);
PACELINE_AT(paceline_step_record, ring_epoch, 52);
PACELINE_AT(paceline_step_record, flags, 56);
PACELINE_AT(paceline_step_record, host_ns, 64);
PACELINE_AT(paceline_step_record, device_ns, 192);
PACELINE_AT(paceline_step_record, device_window_ns, 320);
PACELINE_AT(paceline_step_record, comm_total_ns, 328);
PACELINE_AT(paceline_step_record, comm_exposed_ns, 336);
PACELINE_AT(paceline_step_record, comm_peer_wait_ns, 344);
PACELINE_AT(paceline_step_record, comm_payload_bytes, 352);
PACELINE_AT(paceline_step_record, comm_wire_bytes, 360);
PACELINE_AT(paceline_step_record, collective_seq_last, 368);
PACELINE_AT(paceline_step_record, comm_ops, 376);
PACELINE_AT(paceline_step_record, group_count, 380);
PACELINE_AT(paceline_step_record, samples, 384);
PACELINE_AT(paceline_step_record, tokens, 392);
PACELINE_AT(paceline_step_record, h2d_bytes, 400);
PACELINE_AT(paceline_step_record, device_mem_peak, 408);
PACELINE_AT(paceline_step_record, micro_batches, 416);
PACELINE_AT(paceline_step_record, optimizers_stepped, 418);
PACELINE_AT(paceline_step_record, pp_stage, 420);
PACELINE_AT(paceline_step_record, vpp_chunks, 422);
PACELINE_AT(paceline_step_record, kernels, 424);
PACELINE_AT(paceline_step_record, graph_launches, 428);
PACELINE_AT(paceline_step_record, loader_ready, 432);
PACELINE_AT(paceline_step_record, loader_misses, 434);
PACELINE_AT(paceline_step_record, loss_scale, 436);
PACELINE_AT(paceline_step_record, loader_wait_max_us, 440);
PACELINE_AT(paceline_step_record, rss_mib, 444);
PACELINE_AT(paceline_step_record, valid, 448);
PACELINE_AT(paceline_step_record, source, 456);
PACELINE_AT(paceline_step_record, overhead_ns, 472);
PACELINE_AT(paceline_step_record, lost_events, 476);
PACELINE_AT(paceline_step_record, amends_seq, 480);
PACELINE_AT(paceline_step_record, reserved, 488);
PACELINE_STATIC_ASSERT(sizeof(struct paceline_step_record) == PACELINE_RECORD_BYTES,
                       "a record is 512 bytes");

PACELINE_AT(paceline_live_state, version, 0);
PACELINE_AT(paceline_live_state, phase, 4);
PACELINE_AT(paceline_live_state, since_ns, 8);
PACELINE_AT(paceline_live_state, step, 16);
PACELINE_AT(paceline_live_state, collective_seq, 24);
PACELINE_AT(paceline_live_state, group_id, 32);
PACELINE_AT(paceline_live_state, collective_done, 40);
PACELINE_AT(paceline_live_state, group_size, 48);
PACELINE_AT(paceline_live_state, group_rank, 52);
PACELINE_AT(paceline_live_state, reserved, 56);
PACELINE_STATIC_ASSERT(sizeof(struct paceline_live_state) == 64,
                       "the live state is one cache line");

PACELINE_AT(paceline_ring_header, magic, 0);
PACELINE_AT(paceline_ring_header, abi_major, 4);
PACELINE_AT(paceline_ring_header, abi_minor, 6);
PACELINE_AT(paceline_ring_header, header_bytes, 8);
PACELINE_AT(paceline_ring_header, record_bytes, 12);
PACELINE_AT(paceline_ring_header, capacity, 16);
PACELINE_AT(paceline_ring_header, ring_epoch, 20);
PACELINE_AT(paceline_ring_header, attempt, 24);
PACELINE_AT(paceline_ring_header, pid, 28);
PACELINE_AT(paceline_ring_header, process_start_ticks, 32);
PACELINE_AT(paceline_ring_header, monotonic_ns, 40);
PACELINE_AT(paceline_ring_header, realtime_ns, 48);
PACELINE_AT(paceline_ring_header, boot_id, 64);
PACELINE_AT(paceline_ring_header, world_rank, 104);
PACELINE_AT(paceline_ring_header, local_rank, 108);
PACELINE_AT(paceline_ring_header, node_rank, 112);
PACELINE_AT(paceline_ring_header, world_size, 116);
PACELINE_AT(paceline_ring_header, local_world_size, 120);
PACELINE_AT(paceline_ring_header, role_id, 124);
PACELINE_AT(paceline_ring_header, dp, 128);
PACELINE_AT(paceline_ring_header, tp, 136);
PACELINE_AT(paceline_ring_header, pp, 144);
PACELINE_AT(paceline_ring_header, ep, 152);
PACELINE_AT(paceline_ring_header, cp, 160);
PACELINE_AT(paceline_ring_header, device_kind, 168);
PACELINE_AT(paceline_ring_header, framework_id, 172);
PACELINE_AT(paceline_ring_header, framework_version, 176);
PACELINE_AT(paceline_ring_header, pci_address, 208);
PACELINE_AT(paceline_ring_header, capabilities, 224);
PACELINE_AT(paceline_ring_header, device_number, 232);
PACELINE_AT(paceline_ring_header, write_index, 1024);
PACELINE_AT(paceline_ring_header, heartbeat_ns, 1088);
PACELINE_AT(paceline_ring_header, live, 1152);
PACELINE_STATIC_ASSERT(sizeof(struct paceline_ring_header) == PACELINE_HEADER_BYTES,
                       "the header is 4 KiB");

PACELINE_AT(paceline_ring_offer, version, 4);
PACELINE_AT(paceline_ring_offer, size, 6);
PACELINE_AT(paceline_ring_offer, world_rank, 8);
PACELINE_AT(paceline_ring_offer, local_rank, 12);
PACELINE_AT(paceline_ring_offer, pid, 16);
PACELINE_AT(paceline_ring_offer, ring_epoch, 20);
PACELINE_AT(paceline_ring_offer, attempt, 24);
PACELINE_AT(paceline_ring_offer, reserved, 28);
PACELINE_STATIC_ASSERT(sizeof(struct paceline_ring_offer) == 64, "an offer is 64 bytes");

#endif /* PACELINE_STEP_RECORD_LAYOUT_H_ */
