// SPDX-License-Identifier: Apache-2.0
// Spans as the JSON of OTLP (opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest).
// Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/spans/span.hpp"
#include "launcher/spans/target.hpp"

namespace paceline::spans {

std::string to_otlp(const Target& target, const std::vector<Span>& spans);

}  // namespace paceline::spans
