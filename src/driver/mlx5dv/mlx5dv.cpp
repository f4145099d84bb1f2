// SPDX-License-Identifier: Apache-2.0
#include "driver/mlx5dv/mlx5dv.hpp"

#include "base/errors.hpp"
#include "driver/loader.hpp"

namespace gigabar::mlx5dv {
#if GIGABAR_HAS_MLX5DV
namespace {

const LibraryOf<Functions>& library() {
  static const auto instance = load_functions<Functions>(
      "libmlx5.so.1", "GIGABAR_MLX5_LIBRARY", "install rdma-core's provider of mlx5 (package ibverbs-providers or rdma-core)",
      "install a newer rdma-core");
  return instance;
}

}  // namespace

const Availability& availability() { return library().availability; }
const Functions& functions() { return library(); }

#else

const Availability& availability() {
  static const Availability not_built{AvailabilityCode::not_built,
                                      "this build has no support for the queues of mlx5 adapters",
                                      "configure with infiniband/mlx5dv.h (package libibverbs-dev or rdma-core-devel)",
                                      {}};
  return not_built;
}

#endif
}  // namespace gigabar::mlx5dv
