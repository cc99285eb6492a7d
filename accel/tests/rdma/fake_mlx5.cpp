// SPDX-License-Identifier: Apache-2.0
// A libmlx5.so.1 for the devices of fake_verbs.cpp, which are its where fake_verbs_set has "mlx5";
// "mlx5dv_create_qp" is a step that may end with an errno.
#include <infiniband/mlx5dv.h>

#include <cerrno>

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE int fake_verbs_told(const char* name);
FAKE ibv_qp* fake_verbs_create_qp(ibv_pd* domain, ibv_cq* completions, bool scatters);

FAKE bool mlx5dv_is_supported(ibv_device* /*device*/) { return fake_verbs_told("mlx5") != 0; }

FAKE ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* wanted,
                              mlx5dv_qp_init_attr* more) {
  errno = fake_verbs_told("mlx5dv_create_qp");
  if (errno == 0 &&
      ((wanted->comp_mask & IBV_QP_INIT_ATTR_PD) == 0 || wanted->pd->context != context))
    errno = EINVAL;
  if (errno != 0) return nullptr;
  const bool has_flags = (more->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) != 0;
  const bool scatters =
      !has_flags || (more->create_flags & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE) == 0;
  return fake_verbs_create_qp(wanted->pd, wanted->send_cq, scatters);
}
