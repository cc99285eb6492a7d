/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes batches of pictures from tar shards. Threads decode, crop, resize, mirror and normalise
 * JPEG files; the pixels equal Pillow's bit for bit. It handles bytes and knows no framework;
 * accel/python/paceline/loader is the layer for PyTorch.
 *
 * Ownership: open creates the object. close ends it and waits for its threads. The shards and the
 * memory of batches must stay until then. Processes and threads: any thread may call. A forked
 * child may call close only, which then leaves everything as it is.
 *
 * Failure: PACELINE_OK or a negative PACELINE_E* (paceline.h). If a function has the argument
 * `why`, it receives the shard, the sample and the reason, cut to why_size bytes with the final
 * zero. If libjpeg-turbo does not lie beside the library, open returns that reason.
 */
#ifndef PACELINE_PICTURES_H_
#define PACELINE_PICTURES_H_

#include "paceline.h"
#include "shards.h"

#ifdef __cplusplus
extern "C" {
#endif

struct paceline_pictures;

#define PACELINE_PICTURES_FLOATS 1u /* normalised floats, else bytes */
#define PACELINE_PICTURES_SCALED 2u /* the decoder may divide the sides, as with Image.draft */
#define PACELINE_PICTURES_TURNED 4u /* turned by EXIF data, as by ImageOps.exif_transpose */

#define PACELINE_CROP_NONE 0u   /* the whole picture, of any ratio */
#define PACELINE_CROP_RANDOM 1u /* a region of random size and ratio */
#define PACELINE_CROP_CENTER 2u /* the shorter side resized to `shorter`, then the middle */

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
  uint64_t seed; /* seed of crops and flips, with the epoch and the sample */
  double scale[2];
  double ratio[2];
  double flip;
  float mean[3];
  float deviation[3];
};

/* The part of a picture that is delivered. The region x, y, width, height is resized to
 * full_width by full_height. The delivered window begins at left, top of the result. */
struct paceline_picture_view {
  int32_t x, y, width, height;
  int32_t full_width, full_height, left, top;
  int32_t flip;
};

/* `extensions` are those of pictures, with a null pointer at the end. `target` is the extension
 * of a whole number in decimal, or null. */
PACELINE_EXPORT int paceline_pictures_open(const struct paceline_shards* shards,
                                           const struct paceline_pictures_style* style,
                                           const char* const* extensions, const char* target,
                                           struct paceline_pictures** pictures, char* why,
                                           uint64_t why_size);
PACELINE_EXPORT void paceline_pictures_close(struct paceline_pictures* pictures);

/* Returns the bytes of one picture in a batch: 3 channels of height rows of width values. */
PACELINE_EXPORT uint64_t paceline_pictures_bytes(const struct paceline_pictures* pictures);

/* Begins a batch. `numbers` receives the targets of the samples, and may be null if no targets
 * are read. */
PACELINE_EXPORT int paceline_pictures_begin(struct paceline_pictures* pictures, uint64_t epoch,
                                            const uint64_t* samples, uint32_t count, void* memory,
                                            uint64_t memory_size, int64_t* numbers,
                                            uint64_t* batch);
/* Returns 0 if the batch is done, or 1 if it is not done after timeout_ms. */
PACELINE_EXPORT int paceline_pictures_wait(struct paceline_pictures* pictures, uint64_t batch,
                                           uint32_t timeout_ms, char* why, uint64_t why_size);

/* Reads the header of a sample's picture and returns its view. */
PACELINE_EXPORT int paceline_pictures_view(const struct paceline_pictures* pictures, uint64_t epoch,
                                           uint64_t sample, struct paceline_picture_view* view,
                                           char* why, uint64_t why_size);
/* Returns the processor time that the threads spent in the JPEG decoder, in nanoseconds. */
PACELINE_EXPORT uint64_t paceline_pictures_decoding(const struct paceline_pictures* pictures);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_PICTURES_H_ */
