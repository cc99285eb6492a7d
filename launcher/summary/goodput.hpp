// SPDX-License-Identifier: Apache-2.0
// Goodput in documents: what the job summary says, what the operator hands to the job's next pod
// (PACELINE_GOODPUT), and the line for people. GoodputMeter connects the ledger with the gang.
//
// Rank 0's launcher owns the account. It gets what the job's earlier pods knew, adds its own time,
// and the operator keeps the last report in status. Nothing fails: a variable that cannot be read
// counts as absent.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/base/clock.hpp"
#include "common/telemetry/stats/goodput.hpp"
#include "launcher/rendezvous/gang.hpp"

namespace paceline::summary {

/// The shape of docs/designs/contracts.md. ratio · seconds and the losses add up to seconds; all
/// are rounded to milliseconds before. Uses that took no time are left out.
nlohmann::json goodput_form(const telemetry::Goodput& goodput, int restarts);

struct EarlierGoodput {
  telemetry::Goodput goodput;
  int restarts = 0;
  double gap = 0;  // seconds between that report and now
};
EarlierGoodput read_earlier(std::string_view text, WallTime now);

/// "goodput 91.2 % of 34.0 s (starting 5.1 %, checkpoint 3.0 %)"; empty before the first step.
std::string goodput_line(const telemetry::Goodput& goodput);

/// Follows the gang of this launcher. Not thread-safe.
class GoodputMeter {
 public:
  GoodputMeter(std::string_view earlier, int restarts, const Clock& clock);

  void follow(const rendezvous::Gang& gang);
  telemetry::Goodput at_present(const rendezvous::Gang& gang) const;

 private:
  const Clock& clock_;
  telemetry::GoodputLedger ledger_;
};

}  // namespace paceline::summary
