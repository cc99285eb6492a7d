// SPDX-License-Identifier: Apache-2.0
// Merges several scrapes of Prometheus text into one, in which every family appears once with the
// series of all. Pure. Lines without a family are dropped.
#pragma once

#include <string>
#include <vector>

namespace paceline::cli {

std::string merge_metrics(const std::vector<std::string>& scrapes);

}  // namespace paceline::cli
