// SPDX-License-Identifier: Apache-2.0
// The libraries of which nothing but their functions is needed.
#include "driver/crypto/crypto.hpp"
#include "driver/loader.hpp"
#include "driver/mlx5dv/mlx5dv.hpp"
#include "driver/rdmacm/rdmacm.hpp"

namespace gigabar {

const LibraryOf<crypto::Functions>& crypto::functions() {
  static const auto library = load_functions<Functions>("libcrypto.so.3", "GIGABAR_CRYPTO_LIBRARY",
                                                        "install OpenSSL 3 (package libssl3)", "install a newer OpenSSL", "OpenSSL",
                                                        "configure with openssl/evp.h (package libssl-dev or openssl-devel)");
  return library;
}

const LibraryOf<mlx5dv::Functions>& mlx5dv::functions() {
  static const auto library = load_functions<Functions>(
      "libmlx5.so.1", "GIGABAR_MLX5_LIBRARY", "install rdma-core's provider of mlx5 (package ibverbs-providers or rdma-core)",
      "install a newer rdma-core", "the queues of mlx5 adapters",
      "configure with infiniband/mlx5dv.h (package libibverbs-dev or rdma-core-devel)");
  return library;
}

const LibraryOf<rdmacm::Functions>& rdmacm::functions() {
  static const auto library = load_functions<Functions>(
      "librdmacm.so.1", "GIGABAR_RDMACM_LIBRARY", "install rdma-core's librdmacm (package librdmacm1 or librdmacm)",
      "install a newer rdma-core", "connections of RDMA devices",
      "configure with rdma/rdma_cma.h (package librdmacm-dev or rdma-core-devel)");
  return library;
}

}  // namespace gigabar
