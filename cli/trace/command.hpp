// SPDX-License-Identifier: Apache-2.0
// `paceline trace`: one file, for ui.perfetto.dev, of some steps of all ranks of a running job.
// Exit codes: 0, 1 no rank was recorded (or, with --records, none has steps), 2 wrong input.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "cli/job/exec.hpp"
#include "cli/watch/way.hpp"
#include "common/base/error.hpp"

namespace paceline::cli {

struct TraceOptions {
  std::string job{};         // job/NAME or NAME; with `local` the name of a run, or empty
  bool local = false;        // a `paceline run` of this machine
  std::string name_space{};  // empty: that of the kubeconfig's context
  std::string kubeconfig{};
  std::string output = "trace.json.gz";
  std::uint64_t steps = 5;
  bool records = false;       // the last steps that the rings hold, without the profiler
  std::uint64_t timeout = 0;  // seconds; 0: by the time that the steps should take
};

/// Sets the options' namespace if it is empty.
int trace_command(TraceOptions options,
                  const std::function<Result<ClusterWay>(const TraceOptions&)>& find,
                  std::ostream& err);

}  // namespace paceline::cli
