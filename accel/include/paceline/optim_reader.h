/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PyTorch's tensors are, asked of many in one call: a step of many small tensors costs its
 * host mostly such questions. Nothing of Python or PyTorch is linked: their functions are found by
 * the caller, tried on examples, and passed.
 *
 * Ownership: the caller's, all of it. Objects are held by whoever calls; nothing is kept between
 * calls, no reference is taken and no object made. Threads: the caller has Python's lock, so that
 * nobody changes an object or a dict meanwhile. Nothing waits. Failure: 0, or 1 and 0 for yes and
 * no, or a negative PACELINE_E*. PACELINE_EINVAL: a reader of another size, or a null where
 * something was promised. PACELINE_ESYSTEM: PyTorch has refused, or the reader lacks a function
 * that is needed.
 */
#ifndef PACELINE_OPTIM_READER_H_
#define PACELINE_OPTIM_READER_H_

#include "paceline.h"

#ifdef __cplusplus
extern "C" {
#else
#include <stdbool.h>
#endif

/*
 * How to ask. Of the functions those that begin with get_ are PyTorch's stable C interface
 * (aoti_torch_get_data_ptr and so on, torch/csrc/inductor/aoti_torch/c/shim.h), which answer 0;
 * get_layout may be null: older releases lack it, whose other functions refuse what has no strides,
 * and log it. The others are of C++, and either all there or all null: c10::TensorImpl::grad,
 * at::native::is_neg and is_inference, at::TensorBase::_version and
 * torch::autograd::impl::bump_version. A tensor is what each takes: a pointer to at::Tensor, which
 * is a pointer to its c10::TensorImpl.
 */
struct paceline_optim_reader {
  uint32_t size;      /* sizeof(struct paceline_optim_reader) */
  int32_t strided;    /* what get_layout says of tensors that have sizes and strides */
  uint64_t type;      /* bytes from the beginning of an object to the address of its type */
  uint64_t handle;    /* and to its tensor, where it is one */
  uint64_t tensor;    /* the types of plain tensors: address of torch.Tensor */
  uint64_t parameter; /* and of torch.nn.Parameter */
  uint64_t dict;      /* of dict */
  uint64_t list;      /* of list */
  int32_t (*get_layout)(void* tensor, int32_t* layout);
  int32_t (*get_data_ptr)(void* tensor, void** data);
  int32_t (*get_dtype)(void* tensor, int32_t* dtype);
  int32_t (*get_device_type)(void* tensor, int32_t* type);
  int32_t (*get_device_index)(void* tensor, int32_t* index);
  int32_t (*get_dim)(void* tensor, int64_t* dimensions);
  int32_t (*get_sizes)(void* tensor, int64_t** sizes);                        /* the tensor's own */
  int32_t (*get_strides)(void* tensor, int64_t** strides);                    /* the tensor's own */
  intptr_t (*list_size)(void* list);                                          /* PyList_Size */
  void* (*list_item)(void* list, intptr_t position);                          /* PyList_GetItem */
  int (*dict_next)(void* dict, intptr_t* position, void** key, void** value); /* PyDict_Next */
  void* (*grad)(const void* implementation);                                  /* the tensor's own */
  bool (*is_neg)(const void* tensor);
  bool (*is_inference)(const void* tensor);
  int64_t (*version)(
      const void* tensor); /* of a tensor that counts them: none made in inference mode */
  void (*bump_version)(const void* tensor); /* as well */
  const void* undefined;                    /* the implementation of a gradient that is not there */
};

/*
 * Where tensors begin in memory: places[i] of objects[i], a Python object that is a tensor.
 * PACELINE_ESYSTEM also where one has no strides; places before it are set.
 */
PACELINE_EXPORT int paceline_optim_places(const struct paceline_optim_reader* reader,
                                          void* const* objects, uint64_t count, uint64_t* places);

/*
 * A tensor as it was: its layout is dtype, device, sizes and strides, and whether it is to be
 * negated when it is read, where the reader can tell. Of another object its address alone, the rest
 * being 0.
 */
struct paceline_optim_seen {
  uint64_t object; /* its address; 0: any object that lies so will do */
  uint64_t type;   /* address */
  uint64_t place;  /* of its first element */
  uint64_t layout; /* a hash of the rest */
};

/* What many tensors are like; and whether as many objects are still those, of the same types, and
 * lie as they did: 1 or 0, also where PyTorch refuses. */
PACELINE_EXPORT int paceline_optim_see(const struct paceline_optim_reader* reader,
                                       void* const* objects, uint64_t count,
                                       struct paceline_optim_seen* seen);
PACELINE_EXPORT int paceline_optim_is_as_seen(const struct paceline_optim_reader* reader,
                                              void* const* objects, uint64_t count,
                                              const struct paceline_optim_seen* seen);

/* Whether a list holds these objects and no others, in this order: 1 or 0, also where it is no
 * list. */
PACELINE_EXPORT int paceline_optim_list_is(const struct paceline_optim_reader* reader, void* list,
                                           void* const* objects, uint64_t count);

/*
 * The same of an optimizer's state, a dict of dicts: in their order each key, and of its dict each
 * name and each value, of which plain tensors are looked at. Of `capacity` rows *count are used;
 * both functions answer no where there are more. see_state: PACELINE_ESYSTEM also where a value of
 * the state is no dict.
 */
PACELINE_EXPORT int paceline_optim_see_state(const struct paceline_optim_reader* reader,
                                             void* state, struct paceline_optim_seen* seen,
                                             uint64_t capacity, uint64_t* count);
PACELINE_EXPORT int paceline_optim_state_is_as_seen(const struct paceline_optim_reader* reader,
                                                    void* state,
                                                    const struct paceline_optim_seen* seen,
                                                    uint64_t count);

/*
 * Where the gradients of these tensors lie, without a Python object made for one. 1: all are there,
 * none is to be negated when it is read, and the layout of each is that of seen[i]. 0: look closer;
 * places are not to be used.
 */
PACELINE_EXPORT int paceline_optim_gradients(const struct paceline_optim_reader* reader,
                                             void* const* objects, uint64_t count,
                                             const struct paceline_optim_seen* seen,
                                             uint64_t* places);

/*
 * How often each tensor was written; whether each was as often still, 1 or 0; and to say that each
 * was once more, behind PyTorch's back. PACELINE_ESYSTEM also where one does not count that, since
 * it was made in inference mode; what comes before it is marked.
 */
PACELINE_EXPORT int paceline_optim_versions(const struct paceline_optim_reader* reader,
                                            void* const* objects, uint64_t count,
                                            int64_t* versions);
PACELINE_EXPORT int paceline_optim_versions_are(const struct paceline_optim_reader* reader,
                                                void* const* objects, uint64_t count,
                                                const int64_t* versions);
PACELINE_EXPORT int paceline_optim_mark_written(const struct paceline_optim_reader* reader,
                                                void* const* objects, uint64_t count);

#ifdef __cplusplus
}
#endif
#endif /* PACELINE_OPTIM_READER_H_ */
