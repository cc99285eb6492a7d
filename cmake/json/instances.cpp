// SPDX-License-Identifier: Apache-2.0
#define PACELINE_JSON_INSTANCES
#include <nlohmann/json.hpp>
