/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads samples that are rows of the arrays in NumPy's files (.npy, .npz), or records of a fixed
 * size in files without a header.
 *
 * Ownership, processes, threads and failure are as in shards.h.
 */
#ifndef PACELINE_RECORDS_H_
#define PACELINE_RECORDS_H_

#include "paceline.h"
#include "shards.h"

#ifdef __cplusplus
extern "C" {
#endif

struct paceline_records;

/* Reads the headers of all files. If `raw_bytes` is above zero, the files consist of records of
 * that many bytes and have no header. */
PACELINE_EXPORT int paceline_records_open(const char* const* paths, uint32_t count,
                                          uint64_t raw_bytes, struct paceline_records** records,
                                          char* why, uint64_t why_size);
PACELINE_EXPORT void paceline_records_close(struct paceline_records* records);

PACELINE_EXPORT uint64_t paceline_records_samples(const struct paceline_records* records);
/* Returns a digest of the columns and of the number of rows of each file. Paths do not count. */
PACELINE_EXPORT uint64_t paceline_records_identity(const struct paceline_records* records);

PACELINE_EXPORT uint32_t paceline_records_columns(const struct paceline_records* records);
/* Returns the name and NumPy's text of the dtype (empty for raw records), the shape of a row and
 * its bytes. */
PACELINE_EXPORT int paceline_records_column(const struct paceline_records* records, uint32_t column,
                                            const char** name, const char** dtype,
                                            const uint64_t** shape, uint32_t* sides,
                                            uint64_t* bytes);
/* Reads one row. `size` must be the one that paceline_records_column returned. */
PACELINE_EXPORT int paceline_records_read(const struct paceline_records* records, uint64_t sample,
                                          uint32_t column, void* buffer, uint64_t size, char* why,
                                          uint64_t why_size);

/* As paceline_shards_length and paceline_shards_order, with a file in place of a shard. */
PACELINE_EXPORT int paceline_records_length(const struct paceline_records* records,
                                            const struct paceline_order* order, uint64_t* length);
PACELINE_EXPORT int paceline_records_order(const struct paceline_records* records,
                                           const struct paceline_order* order, uint64_t first,
                                           uint64_t count, uint64_t* samples);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_RECORDS_H_ */
