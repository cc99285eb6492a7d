/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of pictures out of tar shards: JPEG files decoded, framed, resized, mirrored and
 * normalised by threads, pixels to the bit as Pillow makes them. It knows bytes, not frameworks;
 * accel/python/paceline/loader is the layer for PyTorch.
 *
 * Ownership: open makes it, close ends it and waits for its threads; shards and the memory of
 * batches must stay until then. Processes and threads: any thread may call. A forked child must
 * not, but for close, which then leaves everything where it is. Failure: PACELINE_OK or a negative
 * PACELINE_E* (paceline.h); `why`, where it is an argument, then names the shard, the sample and
 * the reason, cut to why_size bytes with their zero. Without libjpeg-turbo beside the library, open
 * says so.
 */
#ifndef PACELINE_PICTURES_H_
#define PACELINE_PICTURES_H_

#include "paceline.h"
#include "shards.h"

#ifdef __cplusplus
extern "C" {
#endif

struct paceline_pictures;

#define PACELINE_PICTURES_FLOATS 1u /* normalised; else bytes */
#define PACELINE_PICTURES_SCALED 2u /* the decoder may divide the sides, as Image.draft lets it */
#define PACELINE_PICTURES_TURNED 4u /* by EXIF data, as ImageOps.exif_transpose does it */

#define PACELINE_CROP_NONE 0u   /* the whole picture, whatever its ratio */
#define PACELINE_CROP_RANDOM 1u /* a region of random size and ratio */
#define PACELINE_CROP_CENTER 2u /* its shorter side resized to `shorter`, then the middle */

#define PACELINE_FILTER_BOX 0u
#define PACELINE_FILTER_BILINEAR 1u
#define PACELINE_FILTER_HAMMING 2u
#define PACELINE_FILTER_BICUBIC 3u
#define PACELINE_FILTER_LANCZOS 4u

#define PACELINE_PICTURES_MOST_SIDE 8192u

struct paceline_pictures_style {
  uint32_t size;  /* sizeof(struct paceline_pictures_style) */
  uint32_t flags; /* PACELINE_PICTURES_* */
  uint32_t crop;
  uint32_t filter;
  uint32_t width; /* of each picture of a batch */
  uint32_t height;
  uint32_t shorter;
  uint32_t threads;
  uint64_t seed; /* of crops and flips, together with epoch and sample */
  double scale[2];
  double ratio[2];
  double flip;
  float mean[3];
  float deviation[3];
};

/* What of a picture is delivered: the region x, y, width, height as a picture of its own, resized
 * to full_width by full_height, of which the window begins at left, top. */
struct paceline_picture_view {
  int32_t x, y, width, height;
  int32_t full_width, full_height, left, top;
  int32_t flip;
};

/* `extensions` are those of pictures, a zero pointer at their end; `target` that of a whole number
 * in decimal, or null. */
PACELINE_EXPORT int paceline_pictures_open(const struct paceline_shards* shards,
                                           const struct paceline_pictures_style* style,
                                           const char* const* extensions, const char* target,
                                           struct paceline_pictures** pictures, char* why,
                                           uint64_t why_size);
PACELINE_EXPORT void paceline_pictures_close(struct paceline_pictures* pictures);

/* Of one picture in a batch: 3 channels of height rows of width values. */
PACELINE_EXPORT uint64_t paceline_pictures_bytes(const struct paceline_pictures* pictures);

/* Begins a batch; `numbers` gets the samples' targets, and may be null where none are read. */
PACELINE_EXPORT int paceline_pictures_begin(struct paceline_pictures* pictures, uint64_t epoch,
                                            const uint64_t* samples, uint32_t count, void* memory,
                                            uint64_t memory_size, int64_t* numbers,
                                            uint64_t* batch);
/* 0: the batch is there; 1: not yet, after timeout_ms. */
PACELINE_EXPORT int paceline_pictures_wait(struct paceline_pictures* pictures, uint64_t batch,
                                           uint32_t timeout_ms, char* why, uint64_t why_size);

/* Reads the header of the sample's picture. */
PACELINE_EXPORT int paceline_pictures_view(const struct paceline_pictures* pictures, uint64_t epoch,
                                           uint64_t sample, struct paceline_picture_view* view,
                                           char* why, uint64_t why_size);
/* Nanoseconds of processor time that the threads spent in the JPEG decoder. */
PACELINE_EXPORT uint64_t paceline_pictures_decoding(const struct paceline_pictures* pictures);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_PICTURES_H_ */
