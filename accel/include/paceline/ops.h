/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators of detection models on the CPU: which ground truth each point or prior learns from, and
 * points of a LiDAR grouped into voxels. They keep no arrays of points times ground truths.
 * accel/python/paceline/ops is the layer for PyTorch, and describes what is computed.
 *
 * Images have different numbers of ground truths. These are concatenated: image i has those from
 * offsets[i] up to offsets[i + 1]. Arrays are dense, and rows lie one after the other.
 *
 * Results of one build are the same for every number of threads, and for every instruction set that
 * it chooses from. Exponentials and logarithms are the C library's. Another C library may have
 * another last bit, which can also decide between priors that cost SimOTA almost the same.
 *
 * Ownership: the caller owns everything. Threads: any. Failure: PACELINE_OK or a negative
 * PACELINE_E*; after a failure the results have no meaning.
 */
#ifndef PACELINE_OPS_H_
#define PACELINE_OPS_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One level of a feature pyramid. Results hold image after image. */
struct paceline_fcos3d_level {
  const float* points; /* (count, 2): x, y */
  int64_t count;
  float radius;        /* half the side of a centre region */
  float divisor;       /* of a target's first two numbers; 1 for none */
  float low, high;     /* range of the longest distance to a side of the box, both included */
  int64_t* labels;     /* (images, count) */
  float* targets;      /* (images, count, columns) */
  float* centerness;   /* (images, count) */
  int64_t* attributes; /* (images, count) */
};

struct paceline_fcos3d {
  uint32_t size;    /* sizeof(struct paceline_fcos3d) */
  uint32_t columns; /* of a target: two distances, then those of `rest` */
  uint32_t levels;
  float alpha; /* steepness of the centerness */
  int64_t images;
  const int64_t* offsets;    /* (images + 1) */
  const float* centers;      /* (G, 2): x, y */
  const float* boxes;        /* (G, 4): x1, y1, x2, y2 */
  const float* rest;         /* (G, columns - 2), copied to each matched point */
  const int64_t* labels;     /* (G) */
  const int64_t* attributes; /* (G) */
  int64_t background;        /* label of a point without ground truth */
  int64_t no_attribute;      /* its attribute */
  const struct paceline_fcos3d_level* level;
};

PACELINE_EXPORT int paceline_fcos3d_targets(const struct paceline_fcos3d* targets, int32_t threads);

struct paceline_simota {
  uint32_t size; /* sizeof(struct paceline_simota) */
  uint32_t topk; /* how many overlaps are summed to a number of priors; at least 1 */
  int64_t images, priors, classes;
  const float* boxes;     /* (images, priors, 4): x1, y1, x2, y2 */
  const float* scores;    /* (images, priors, classes), each in [0, 1] */
  const float* places;    /* (priors, 4): x, y, stride of x, stride of y */
  const int64_t* offsets; /* (images + 1) */
  const float* truths;    /* (G, 4): x1, y1, x2, y2 */
  const int64_t* labels;  /* (G), each in [0, classes) */
  double radius;          /* half the side of a centre region, in strides */
  double iou_weight, cls_weight;
  double least_overlap;   /* added to an overlap before its logarithm; above 0 */
  int64_t* winners;       /* (images, priors): number of the image's ground truth, or -1 */
  int64_t* winner_labels; /* (images, priors): its label, or -1 */
  float* overlaps;        /* (images, priors): IoU with it, or 0 */
  int64_t bad_score;      /* receives the index of a score out of [0, 1], or -1; not if `size` is
                             wrong */
};

/* Returns PACELINE_EINVAL with `bad_score` set if a score that is needed is out of [0, 1]. */
PACELINE_EXPORT int paceline_simota_assign(struct paceline_simota* assignment, int32_t threads);

struct paceline_voxels {
  uint32_t size;    /* sizeof(struct paceline_voxels) */
  uint32_t columns; /* of a point, at least 3: x, y, z, others */
  int64_t clouds;
  const int64_t* offsets;  /* (clouds + 1) */
  const float* points;     /* (N, columns) */
  float low[3];            /* of x, y, z */
  float voxel[3];          /* sides of a voxel */
  int64_t grid[3];         /* voxels along x, y, z; their product is below 2^62 */
  int64_t max_voxels;      /* of a cloud, or -1 for any number */
  int64_t max_points;      /* of a voxel, or -1 for any number */
  int64_t* voxel_of_point; /* (N): row of its voxel, or -1 */
  int32_t* coords;         /* room for (rows, 4): cloud, z, y, x */
  int32_t* counts;         /* room for (rows) */
  int64_t* voxel_offsets;  /* (clouds + 1): first row of each cloud */
};

/* Numbers the voxels in the order in which points enter them. `rows` above is the sum over clouds
 * of the smaller of a cloud's points and max_voxels. */
PACELINE_EXPORT int paceline_voxels_number(const struct paceline_voxels* voxels, int32_t threads);

/* Copies points into (voxels, max_points, columns). Unused places become 0. The arguments are those
 * of paceline_voxels_number, max_points included, and its results; `coords` is not read, and
 * `counts` has as many rows as voxels were found. If max_points or counts is another, voxels hold
 * fewer points, and nothing outside `filled` is written. Returns PACELINE_EINVAL if voxel_of_point
 * has a row that is not of the point's cloud. */
PACELINE_EXPORT int paceline_voxels_fill(const struct paceline_voxels* voxels, float* filled,
                                         int32_t threads);

PACELINE_STATIC_ASSERT(sizeof(struct paceline_fcos3d_level) == 64, "a level is 8 words");
PACELINE_STATIC_ASSERT(sizeof(struct paceline_fcos3d) == 96, "targets are 12 words");
PACELINE_STATIC_ASSERT(sizeof(struct paceline_simota) == 144, "an assignment is 18 words");
PACELINE_STATIC_ASSERT(sizeof(struct paceline_voxels) == 128, "voxels are 16 words");

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_OPS_H_ */
