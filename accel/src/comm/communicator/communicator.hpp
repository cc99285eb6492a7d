// SPDX-License-Identifier: Apache-2.0
// One communicator: the collectives of comm.h over the links and the shared memory of this rank.
// Start reading src/comm here. paceline.comm.Communicator uses it through the C ABI (c_abi.cpp),
// and so does paceline.comm.ddp_hook, which spec.acceleration.communication
// (PACELINE_COMMUNICATION=Auto) installs.
//
// The rooms, each of which includes only those before it:
//   codec/         element types, sums, and codes of gradients
//   plan/          topology, algorithm and chunk size, and how tuning chooses them
//   failure/       the failure detector and what calls tell each other
//   transport/     streams of bytes: tcp/, shm/, rdma/
//   bootstrap/     how ranks find and connect each other
//   pairwise/      links between two ranks, made when first used
//   collective/    rings and the pipeline inside a host
//   communicator/  this class and its C ABI
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
  std::uint32_t flows = 0;  // of a plan that says nothing of them
  std::string name;
  std::string host;
  std::string address;
  std::string plan;
  std::chrono::milliseconds heartbeat_timeout{10'000};
  std::chrono::milliseconds timeout{600'000};
};

// A piece for, or of, each rank, in elements: `begins` and `counts` have one for each.
template <typename Byte>
struct Pieces {
  Byte* data;
  std::vector<std::uint64_t> begins;
  std::vector<std::uint64_t> counts;
};

inline constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();

template <typename Byte>
struct Letter {
  std::uint32_t peer = kNobody;
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
  // At `root` in place; others' data stay as they are.
  int reduce(std::byte* data, std::uint64_t count, Type type, std::uint32_t root);
  int barrier();
  // `equal`: all pieces of all ranks are as large as this rank's.
  int all_to_all(const Pieces<const std::byte>& in, const Pieces<std::byte>& out, Type type,
                 bool equal);
  // Of this rank and its peers alone, both directions at once. To itself where both peers are this
  // rank.
  int exchange(const Letter<const std::byte>& out, const Letter<std::byte>& in, Type type);
  int all_reduce_sparse(const Rows& own, Type type, Sparse& result);
  std::uint64_t start_all_reduce(std::byte* data, std::uint64_t count, Type type);
  // Floats, in coded form between hosts: the sum of what `data` and `rest` have, but for the new
  // rest. Exact where all ranks are of one host. `rest` has residual_count(count) values, and
  // belongs to this array, this rank and this plan.
  std::uint64_t start_coded_all_reduce(float* data, std::uint64_t count, const Coding& coding,
                                       float* residual);
  std::uint64_t residual_count(std::uint64_t count) const;
  int wait(std::uint64_t ticket);
  bool is_completed(std::uint64_t ticket) const { return queue_.is_done(ticket); }

  void give_up(const std::string& why);
  void forked();  // in a child: only closes

  // By measurement, or `known` of rank 0 where that fits.
  std::expected<std::string, int> tune(const std::string& known, std::chrono::milliseconds budget);

  std::uint32_t rank() const { return topology_.rank; }
  std::uint32_t ranks() const { return topology_.ranks(); }
  std::string plan() const;
  // ranks of each host, and behind / how many addresses they use, if several
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
  // One call, after what was started before it.
  template <typename Work>
  int call(Kind kind, std::uint64_t count, Type type, std::uint64_t root, const Work& work);
  // Told to the failure detector, ended however it ends.
  template <typename Work>
  int call_now(Kind kind, std::uint64_t count, Type type, std::uint64_t root, const Work& work);
  int call_all(Kind kind, std::uint64_t count, Type type, std::uint64_t root,
               const std::function<bool(const Call&)>& work);
  bool sum_up(const Call& call, std::byte* data, std::uint64_t count, Type type);
  bool sum_coded(const Call& call, float* data, std::uint64_t count, const Coding& coding,
                 float* residual);
  void stripe(std::uint32_t flows);  // what goes around the rings next
  bool sum_as(const Way& way, const Call& call, std::byte* data, std::uint64_t count, Type type);
  std::optional<std::vector<Choice>> measure(std::chrono::milliseconds budget);
  bool scatter_columns(const Call& call, const std::byte* in, std::byte* out, std::uint64_t count,
                       Type type);
  bool pass_on(const Call& call, std::byte* data, std::uint64_t count, Type type,
               std::uint32_t root);
  bool gather_pieces(const Call& call, std::byte* out, std::uint64_t count, Type type);
  // Rank r's part is from ends[r] to ends[r + 1], in bytes; this rank's is there.
  bool gather_parts(const Call& call, std::byte* out, const std::vector<std::uint64_t>& ends);
  bool gather_rows(const Call& call, const Rows& own, Type type, Sparse& result);
  bool send_to(std::uint32_t peer, const Call& call, const std::byte* data, std::uint64_t count);
  bool receive_from(std::uint32_t peer, const Call& call, std::byte* data, std::uint64_t count);
  // The piece that this rank has for itself.
  void keep_own(const Pieces<const std::byte>& in, const Pieces<std::byte>& out, Type type) const;
  bool swap_all(const Call& call, const Pieces<const std::byte>& in, const Pieces<std::byte>& out);
  bool say(std::uint32_t position, const Call& call, const std::byte* data, std::uint64_t bytes);
  bool hear(std::uint32_t position, std::byte* data, std::uint64_t bytes);
  bool swap_with(std::uint32_t position, const Call& call, const std::byte* out,
                 std::uint64_t out_bytes, std::byte* in, std::uint64_t in_bytes);
  void add_heard(Type type, std::byte* held, std::uint64_t count, bool heard_is_higher);
  bool sum_doubling(const Call& call, std::byte* data, std::uint64_t count, Type type);
  bool sum_tree(const Call& call, std::byte* data, std::uint64_t count, Type type);
  // Sums are in `data` of the root, a position, and in part in others'.
  bool reduce_tree(const Call& call, std::byte* data, std::uint64_t count, Type type,
                   std::uint32_t root);
  // a rank
  bool reduce_ring(const Call& call, std::byte* data, std::uint64_t count, Type type,
                   std::uint32_t root);
  std::uint32_t position_of(std::uint32_t rank) const;
  // a position
  bool broadcast_tree(const Call& call, std::byte* data, std::uint64_t bytes, std::uint32_t root);
  std::uint32_t at(std::uint32_t position) const {
    return topology_.order[position % topology_.ranks()];
  }

  const Options options_;
  Plan plan_;               // but for its choices as it was made
  const bool pinned_;       // the plan that was given says which way
  const std::string note_;  // who shares no memory, and why
  const Topology topology_;
  const std::size_t endpoints_;  // of each rank
  mutable std::mutex mutex_;
  std::uint64_t sequence_ = 0;
  std::unique_ptr<Region> region_;
  std::unique_ptr<FailureDetector> detector_;
  std::unique_ptr<Rdma> rdma_;  // null where there is none
  // of the hops between hosts, for readers of the plan
  std::string ways_;
  std::unique_ptr<Ring> ring_;
  std::unique_ptr<Ring> channel_;
  std::unique_ptr<HostStage> stage_;
  std::vector<int> descriptors_;  // of the connections of the rings
  std::unique_ptr<Direct> direct_;
  std::vector<std::byte> said_, heard_;  // of small arrays
  Worker sender_;                        // of what goes directly
  Queue queue_;                          // first to end
};

}  // namespace paceline::comm
