/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the tensors of a Python framework lie in memory, and how, asked for many tensors in one
 * call. An optimizer asks it before each step, to know whether its table of addresses still holds.
 *
 * The framework is asked through DLPack's C exchange API, version 1.3 or a later 1: a table of C
 * functions that a type of tensors offers as `__dlpack_c_exchange_api__`. No memory of a Python
 * object is read.
 *
 * The caller holds the interpreter's lock, and a reference to each object. Nothing is kept between
 * calls. Where the framework raises, a function returns PACELINE_ESYSTEM and leaves the Python
 * exception set.
 */
#ifndef PACELINE_LAYOUTS_H_
#define PACELINE_LAYOUTS_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A layout is PACELINE_LAYOUT_WORDS words, then the size and the stride of each dimension. */
#define PACELINE_LAYOUT_WORDS 4u

/*
 * Writes the layouts of `count` objects, one after the other. `exchange` is the framework's
 * DLPackExchangeAPI. Returns PACELINE_EINVAL if it is of another version, cannot fill in a
 * DLTensor, or if the layouts take more than `capacity` words.
 */
PACELINE_EXPORT int paceline_layouts_read(const void* exchange, void* const* objects,
                                          uint64_t count, int64_t* words, uint64_t capacity);

/*
 * Returns 1 if each object has the layout that stands in `words`, else 0. With `addresses`, tensors
 * may lie anywhere: the function writes where each begins, and returns 0 if one with elements has
 * no memory.
 */
PACELINE_EXPORT int paceline_layouts_same(const void* exchange, void* const* objects,
                                          uint64_t count, const int64_t* words,
                                          uint64_t* addresses);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_LAYOUTS_H_ */
