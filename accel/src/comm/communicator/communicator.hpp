// SPDX-License-Identifier: Apache-2.0
// One communicator: the collectives of comm.h over the links and the shared memory of this rank.
// Start reading src/comm here. paceline.comm.Communicator uses it through the C ABI (c_abi.cpp),
// and so does paceline.comm.ddp_hook, which spec.acceleration.communication
// (PACELINE_COMMUNICATION=Auto) installs.
//
// Each of these rooms includes only those before it:
// - codec/: element types, sums, and codes of gradients
// - plan/: topology, algorithm and chunk size, and how tuning chooses them
// - failure/: the failure detector, and the calls that ranks compare
// - transport/: streams of bytes over tcp/, shm/ and rdma/
// - bootstrap/: how ranks find and connect each other
// - pairwise/: links between two ranks, made when first used
// - collective/: rings, and the pipeline inside a host
// - communicator/: this class and its C ABI
//
// Ownership: of everything below it. Threads: its own lock makes calls run one after another.
// Blocking: see comm.h. Failure: a code; error() has the text.
#pragma once

#include <expected>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "comm/bootstrap/bootstrap.hpp"
#include "comm/bootstrap/inter_node_links.hpp"
#include "comm/bootstrap/peer_info.hpp"
#include "comm/collective/host_stage.hpp"
#include "comm/collective/ring.hpp"
#include "comm/collective/worker.hpp"
#include "comm/communicator/queue.hpp"
#include "comm/communicator/sparse.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/pairwise/direct.hpp"
#include "comm/plan/plan.hpp"
#include "comm/transport/shm/region.hpp"

namespace paceline::comm {

struct Options {
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  std::uint32_t flows = 0;  // the number of flows if the plan sets none
  std::string name;
  std::string host;
  std::string address;
  std::string plan;
  std::chrono::milliseconds heartbeat_timeout{10'000};
  std::chrono::milliseconds timeout{600'000};
};

// One piece for each rank, in elements: `begins` and `counts` have one entry for each rank.
template <typename Byte>
struct Pieces {
  Byte* data;
  std::vector<std::uint64_t> begins;
  std::vector<std::uint64_t> counts;
};

inline constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

template <typename Byte>
struct Message {
  std::uint32_t peer = kNoRank;
  Byte* data = nullptr;
  std::uint64_t count = 0;
};

struct Rows {
  const std::int64_t* indices;
  const std::byte* values;
  std::uint64_t count;
  std::uint64_t width;  // elements of a row, 1 or more
};

class Communicator {
 public:
  static std::expected<std::unique_ptr<Communicator>, Error> create(
      const Options& options, const paceline_comm_store& store);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int all_reduce(std::byte* data, std::uint64_t count, Type type);
  int reduce_scatter(const std::byte* in, std::byte* out, std::uint64_t count, Type type);
  int all_gather(const std::byte* in, std::byte* out, std::uint64_t count, Type type);
  int broadcast(std::byte* data, std::uint64_t count, Type type, std::uint32_t root);
  // The result is in place at `root`; the other ranks' data stay unchanged.
  int reduce(std::byte* data, std::uint64_t count, Type type, std::uint32_t root);
  int barrier();
  // `equal`: every piece of every rank has the same size.
  int all_to_all(const Pieces<const std::byte>& in, const Pieces<std::byte>& out, Type type,
                 bool equal);
  // Between this rank and its peers only, both directions at once. If both peers are this rank, it
  // copies to itself.
  int exchange(const Message<const std::byte>& out, const Message<std::byte>& in, Type type);
  int all_reduce_sparse(const Rows& own, Type type, Sparse& result);
  std::uint64_t start_all_reduce(std::byte* data, std::uint64_t count, Type type);
  // Sums floats, in coded form between hosts. The result is the sum of `data` and `residual`, less
  // the new residual. It is exact if all ranks are on one host. `residual` has
  // residual_count(count) values and belongs to this array, this rank and this plan.
  std::uint64_t start_coded_all_reduce(float* data, std::uint64_t count, const Coding& coding,
                                       float* residual);
  std::uint64_t residual_count(std::uint64_t count) const;
  int wait(std::uint64_t ticket);
  bool is_completed(std::uint64_t ticket) const { return queue_.is_done(ticket); }

  void give_up(const std::string& why);
  void forked();  // in a forked child: only closes descriptors

  // Measures the choices, or uses `known` of rank 0 if it fits this communicator.
  std::expected<std::string, int> tune(const std::string& known, std::chrono::milliseconds budget);

  std::uint32_t rank() const { return topology_.rank; }
  std::uint32_t ranks() const { return topology_.ranks(); }
  std::string plan() const;
  // The ranks of each host. If there are several addresses a rank, their number follows "/".
  std::string shape() const;
  Error error() const;

 private:
  Communicator(const Options& options, Plan plan, bool pinned, Topology topology,
               std::size_t endpoints, std::string note);
  std::expected<void, Error> connect(const std::vector<PeerInfo>& peers, const Listeners& listeners,
                                     std::unique_ptr<Region> region, Clock::time_point deadline);
  std::expected<void, Error> make_rings(Connections connections, const std::vector<PeerInfo>& peers,
                                        Clock::time_point deadline);
  int first_barrier();
  template <typename Work>
  std::uint64_t start(Kind kind, std::uint64_t count, Type type, std::uint64_t root,
                      const Work& work);
  // Runs one call after the calls that were started before it.
  template <typename Work>
  int call(Kind kind, std::uint64_t count, Type type, std::uint64_t root, const Work& work);
  // Tells the failure detector when the call begins, and when it ends, with or without success.
  template <typename Work>
  int call_now(Kind kind, std::uint64_t count, Type type, std::uint64_t root, const Work& work);
  int call_all(Kind kind, std::uint64_t count, Type type, std::uint64_t root,
               const std::function<bool(const Call&)>& work);
  bool sum_up(const Call& call, std::byte* data, std::uint64_t count, Type type);
  bool sum_coded(const Call& call, float* data, std::uint64_t count, const Coding& coding,
                 float* residual);
  void stripe(std::uint32_t flows);  // sets the stripe of the next transfer around the rings
  bool sum_as(const Way& way, const Call& call, std::byte* data, std::uint64_t count, Type type);
  std::optional<std::vector<Choice>> measure(std::chrono::milliseconds budget);
  bool scatter_columns(const Call& call, const std::byte* in, std::byte* out, std::uint64_t count,
                       Type type);
  bool pass_on(const Call& call, std::byte* data, std::uint64_t count, Type type,
               std::uint32_t root);
  bool gather_pieces(const Call& call, std::byte* out, std::uint64_t count, Type type);
  // Rank r's part is from ends[r] to ends[r + 1], in bytes. This rank's part is there already.
  bool gather_parts(const Call& call, std::byte* out, const std::vector<std::uint64_t>& ends);
  bool gather_rows(const Call& call, const Rows& own, Type type, Sparse& result);
  bool send_to(std::uint32_t peer, const Call& call, const std::byte* data, std::uint64_t count);
  bool receive_from(std::uint32_t peer, const Call& call, std::byte* data, std::uint64_t count);
  // Copies the piece that this rank keeps for itself.
  void keep_own(const Pieces<const std::byte>& in, const Pieces<std::byte>& out, Type type) const;
  bool exchange_all(const Call& call, const Pieces<const std::byte>& in,
                    const Pieces<std::byte>& out);
  bool send_message(std::uint32_t position, const Call& call, const std::byte* data,
                    std::uint64_t bytes);
  bool receive_message(std::uint32_t position, std::byte* data, std::uint64_t bytes);
  bool exchange_with(std::uint32_t position, const Call& call, const std::byte* out,
                     std::uint64_t out_bytes, std::byte* in, std::uint64_t in_bytes);
  void add_received(Type type, std::byte* held, std::uint64_t count, bool received_is_higher);
  bool sum_doubling(const Call& call, std::byte* data, std::uint64_t count, Type type);
  bool sum_tree(const Call& call, std::byte* data, std::uint64_t count, Type type);
  // `root` is a position. The root's `data` gets the sum; the others' `data` get parts of it.
  bool reduce_tree(const Call& call, std::byte* data, std::uint64_t count, Type type,
                   std::uint32_t root);
  // `root` is a rank.
  bool reduce_ring(const Call& call, std::byte* data, std::uint64_t count, Type type,
                   std::uint32_t root);
  std::uint32_t position_of(std::uint32_t rank) const;
  // `root` is a position.
  bool broadcast_tree(const Call& call, std::byte* data, std::uint64_t bytes, std::uint32_t root);
  std::uint32_t at(std::uint32_t position) const {
    return topology_.order[position % topology_.ranks()];
  }

  const Options options_;
  Plan plan_;               // as it was made, except for its choices
  const bool pinned_;       // whether the given plan sets the way
  const std::string note_;  // which ranks share no memory, and why
  const Topology topology_;
  const std::size_t endpoints_;  // for each rank
  mutable std::mutex mutex_;
  std::uint64_t sequence_ = 0;
  std::unique_ptr<Region> region_;
  std::unique_ptr<FailureDetector> detector_;
  std::unique_ptr<Rdma> rdma_;  // null if there is none
  // The transports of the hops between hosts, for readers of the plan.
  std::string ways_;
  std::unique_ptr<Ring> ring_;
  std::unique_ptr<Ring> channel_;
  std::unique_ptr<HostStage> stage_;
  std::vector<int> descriptors_;  // of the rings' connections
  std::unique_ptr<Direct> direct_;
  std::vector<std::byte> out_buffer_, in_buffer_;  // buffers for small arrays
  Worker sender_;                                  // sends what goes directly to a peer
  Queue queue_;                                    // last member, so that it ends first
};

}  // namespace paceline::comm
