/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that are rows of the arrays in NumPy's files (.npy, .npz), or records of one size in
 * files without a header; read natively.
 *
 * Ownership, processes, threads and failure are those of shards.h.
 */
#ifndef PACELINE_RECORDS_H_
#define PACELINE_RECORDS_H_

#include "paceline.h"
#include "shards.h"

#ifdef __cplusplus
extern "C" {
#endif

struct paceline_records;

/* Reads the headers of all files. `raw_bytes` above zero: the files are records of so many bytes,
 * and nothing else. */
PACELINE_EXPORT int paceline_records_open(const char* const* paths, uint32_t count,
                                          uint64_t raw_bytes, struct paceline_records** records,
                                          char* why, uint64_t why_size);
PACELINE_EXPORT void paceline_records_close(struct paceline_records* records);

PACELINE_EXPORT uint64_t paceline_records_samples(const struct paceline_records* records);
/* Of the columns and of how many rows each file has, not of the paths. */
PACELINE_EXPORT uint64_t paceline_records_identity(const struct paceline_records* records);

PACELINE_EXPORT uint32_t paceline_records_columns(const struct paceline_records* records);
/* Name and NumPy's text of the dtype (empty for raw records); the shape of a row and its bytes. */
PACELINE_EXPORT int paceline_records_column(const struct paceline_records* records, uint32_t column,
                                            const char** name, const char** dtype,
                                            const uint64_t** shape, uint32_t* sides,
                                            uint64_t* bytes);
/* One row: `size` is what paceline_records_column told. */
PACELINE_EXPORT int paceline_records_read(const struct paceline_records* records, uint64_t sample,
                                          uint32_t column, void* buffer, uint64_t size, char* why,
                                          uint64_t why_size);

/* As paceline_shards_length and paceline_shards_order, a file being a shard. */
PACELINE_EXPORT int paceline_records_length(const struct paceline_records* records,
                                            const struct paceline_order* order, uint64_t* length);
PACELINE_EXPORT int paceline_records_order(const struct paceline_records* records,
                                           const struct paceline_order* order, uint64_t first,
                                           uint64_t count, uint64_t* samples);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_RECORDS_H_ */
