// SPDX-License-Identifier: Apache-2.0
// The place of a pod in its gang, by its labels. People and webhooks can remove a label while the
// launcher trains on. What the label said is then read from where nothing changes it. Pure.
#pragma once

#include <string_view>

#include "operator/observe/project.hpp"

namespace paceline::observe {

/// The number that a label gives; `otherwise` if it gives none.
int label_number(const simdjson::dom::element& pod, std::string_view label, int otherwise);
/// By its label, else as the pod's launcher was told; -1: it is told nowhere.
int node_rank_of(const simdjson::dom::element& pod);
/// By its label, else by the pod's name; 0 if that ends otherwise.
int incarnation_of(const simdjson::dom::element& pod);

}  // namespace paceline::observe
