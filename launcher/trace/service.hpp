// SPDX-License-Identifier: Apache-2.0
// TraceService: what a launcher answers to `paceline trace`, for the ranks of its own replica. All
// paths need the job's token, which the caller has checked.
//
//   GET  /v1/clock               the wall clock, and the boot of the machine
//   GET  /v1/records/N           the last N steps of each rank, with wall times
//   GET  /v1/trace               each rank: its step, what it does, how far its trace is
//   POST /v1/trace               asks the ranks to record: {id, by, startStep, steps}
//   POST /v1/trace/end           {id}: ends the request, and removes the files
//   GET  /v1/trace/files/R/O     a piece of rank R's trace from byte O on; empty at its end
//
// Ownership: borrows collector and clock; owns the request file. One thread. One request at a time:
// a second one is refused with 409 and the first one's name, until that ends. If nobody has asked
// for /v1/trace for kLease, it has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.hpp"
#include "common/base/error.hpp"
#include "common/telemetry/collector.hpp"
#include "launcher/summary/http_server.hpp"
#include "launcher/trace/request_file.hpp"

namespace paceline::traces {

inline constexpr std::uint64_t kMostSteps = 1000;
inline constexpr std::uint64_t kMostRequestBytes = 4096;
inline constexpr std::chrono::seconds kLease{30};

/// Where the ranks of this launcher live.
struct Place {
  std::string job;
  int node_rank = 0;
  std::string pod;
  std::string node;
  std::string boot_id;  // of the machine; "": unknown
};

/// Of this machine.
std::string own_boot_id();

class TraceService {
 public:
  /// Failure: the folder cannot be made.
  static Result<std::unique_ptr<TraceService>> open(const std::filesystem::path& folder,
                                                    Place place,
                                                    const telemetry::Collector& collector,
                                                    const Clock& clock);
  static bool serves(std::string_view path);
  summary::HttpAnswer answer(const summary::HttpRequest& request);
  /// Asks the ranks for a kernel window now.
  Status ask_for_window() { return request_.ask_for_window(); }

 private:
  struct Active {
    std::string id;
    std::string by;
    std::uint64_t start_step = 0;
    std::uint64_t steps = 0;
    SteadyTime until{};
  };

  TraceService(RequestFile request, std::filesystem::path folder, Place place,
               const telemetry::Collector& collector, const Clock& clock)
      : request_(std::move(request)),
        folder_(std::move(folder)),
        place_(std::move(place)),
        collector_(collector),
        clock_(clock) {}

  summary::HttpAnswer begin(const std::string& body);
  summary::HttpAnswer end(const std::string& body);
  summary::HttpAnswer status() const;
  summary::HttpAnswer records(std::string_view most) const;
  summary::HttpAnswer piece(std::string_view which) const;
  Status stop();
  void remove_files_of_ranks() const;

  RequestFile request_;
  const std::filesystem::path folder_;
  const Place place_;
  const telemetry::Collector& collector_;
  const Clock& clock_;
  std::optional<Active> active_;
};

}  // namespace paceline::traces
