// SPDX-License-Identifier: Apache-2.0
#include "cli/run/compare.hpp"

#include <cmath>
#include <cstdio>

#include <boost/math/distributions/students_t.hpp>

namespace paceline::cli {
namespace {

std::string signed_percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", share * 100);
  return text;
}

std::string milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%12.3f ms", seconds * 1e3);
  return text;
}

}  // namespace

std::optional<double> seconds_a_step(const JobView& view) {
  if (view.ranks.empty()) return std::nullopt;
  const telemetry::SettledSteps& settled = view.ranks.front().settled;
  if (settled.steps < kFewestSteps || settled.seconds <= 0) return std::nullopt;
  return settled.seconds / static_cast<double>(settled.steps);
}

std::vector<bool> order_of_runs(int pairs) {
  std::vector<bool> with;
  for (int pair = 0; pair < pairs; ++pair) {
    const bool first = pair % 2 == 1;
    with.push_back(first);
    with.push_back(!first);
  }
  return with;
}

Gain gain_of(const std::vector<PacePair>& pairs) {
  const auto count = static_cast<double>(pairs.size());
  double mean = 0;
  for (const PacePair& pair : pairs) mean += std::log(pair.without / pair.with) / count;
  double squares = 0;
  for (const PacePair& pair : pairs) {
    const double off = std::log(pair.without / pair.with) - mean;
    squares += off * off;
  }
  const boost::math::students_t student(count - 1);
  const double reach =
      boost::math::quantile(student, 0.975) * std::sqrt(squares / (count - 1) / count);
  return {std::expm1(mean), std::expm1(mean - reach), std::expm1(mean + reach)};
}

std::string comparison_text(const std::vector<PacePair>& pairs) {
  std::string text = "\n  pair     step without        step with    gain\n";
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PacePair& pair = pairs[i];
    char number[32];
    std::snprintf(number, sizeof number, "%6zu", i + 1);
    text += number + ("  " + milliseconds(pair.without)) + "  " + milliseconds(pair.with) + "  " +
            signed_percent(pair.without / pair.with - 1) + "\n";
  }
  const Gain gain = gain_of(pairs);
  const std::string range = signed_percent(gain.mean) +
                            " steps a second (95 % interval: " + signed_percent(gain.low) + " to " +
                            signed_percent(gain.high) + ")";
  if (gain.low > 0) return text + "  acceleration gains " + range + "\n";
  if (gain.high < 0) return text + "  acceleration LOSES: " + range + "\n";
  return text + "  no difference can be told: " + range +
         "; more pairs (--pairs) or a quieter machine would tell more\n";
}

}  // namespace paceline::cli
