// SPDX-License-Identifier: Apache-2.0
// Several scrapes of Prometheus text made one: every family once, with the series of all. Pure.
// Lines that belong to no family are left out.
#pragma once

#include <string>
#include <vector>

namespace paceline::cli {

std::string merge_metrics(const std::vector<std::string>& scrapes);

}  // namespace paceline::cli
