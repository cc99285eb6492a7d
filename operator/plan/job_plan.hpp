// SPDX-License-Identifier: Apache-2.0
// plan_job: what to do about one job now. Pure: all that it knows is in Observed, all that it wants
// is in Plan.
//
// The controller writes a plan's status before it carries out any of its actions. Attempt,
// incarnations and placement are therefore on record before they are used, and the next reader of
// the status can repeat every action.
#pragma once

#include "operator/plan/job/plan.hpp"

namespace paceline::plan {

Plan plan_job(const Observed& observed);

}  // namespace paceline::plan
