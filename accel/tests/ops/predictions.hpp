// SPDX-License-Identifier: Apache-2.0
// What SimOTA's tests assign. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "paceline/ops.h"

namespace paceline::check {

// Images with random predictions, some of them no numbers.
struct Predictions {
  std::vector<float> boxes, scores, places, truths;
  std::vector<std::int64_t> offsets{0}, labels, winners, winner_labels;
  std::vector<float> overlaps;
  std::int64_t images = 3, priors = 0, classes = 70;

  explicit Predictions(std::int64_t side, unsigned seed = 1) : priors(side * side) {
    std::mt19937 random(seed);
    const auto upto = [&](float limit) {
      return std::uniform_real_distribution<float>(0, limit)(random);
    };
    for (std::int64_t i = 0; i < priors; ++i)
      for (const auto value :
           {i % side * 8 + 4, i / side * 8 + 4, std::int64_t{8}, std::int64_t{8}})
        places.push_back(static_cast<float>(value));
    for (std::int64_t i = 0; i < images * priors; ++i) {
      const float* place = &places[static_cast<std::size_t>(4 * (i % priors))];
      for (const float sign : {-1.0F, 1.0F})
        for (const int axis : {0, 1}) boxes.push_back(place[axis] + sign * upto(20));
      for (std::int64_t j = 0; j < classes; ++j) scores.push_back(upto(1));
    }
    if (!boxes.empty()) boxes[1] = std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t image = 0; image < images; ++image) {
      for (int i = 0; i < 4 * image; ++i) {  // the first image has none
        const float x = upto(60), y = upto(60);
        for (const float value : {x, y, x + upto(30), y + upto(30)}) truths.push_back(value);
        labels.push_back(i % classes);
      }
      offsets.push_back(static_cast<std::int64_t>(labels.size()));
    }
    const auto rows = static_cast<std::size_t>(images * priors);
    winners.resize(rows);
    winner_labels.resize(rows);
    overlaps.resize(rows);
  }

  paceline_simota call() {
    return {.size = sizeof(paceline_simota),
            .topk = 10,
            .images = images,
            .priors = priors,
            .classes = classes,
            .boxes = boxes.data(),
            .scores = scores.data(),
            .places = places.data(),
            .offsets = offsets.data(),
            .truths = truths.data(),
            .labels = labels.data(),
            .radius = 2.5,
            .iou_weight = 3,
            .cls_weight = 1,
            .least_overlap = 1e-7,
            .winners = winners.data(),
            .winner_labels = winner_labels.data(),
            .overlaps = overlaps.data(),
            .bad_score = 0};
  }
};

}  // namespace paceline::check
