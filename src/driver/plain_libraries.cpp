// SPDX-License-Identifier: Apache-2.0
// The libraries of which nothing but their functions is needed.
#include "driver/crypto/crypto.hpp"
#include "driver/loader.hpp"
#include "driver/mlx5dv/mlx5dv.hpp"
#include "driver/rdmacm/rdmacm.hpp"

namespace gigabar {
namespace crypto {
#if GIGABAR_HAS_CRYPTO
const LibraryOf<Functions>& functions() {
  static const auto library = load_functions<Functions>("libcrypto.so.3", "GIGABAR_CRYPTO_LIBRARY",
                                                        "install OpenSSL 3 (package libssl3)", "install a newer OpenSSL");
  return library;
}
const Availability& availability() { return functions().availability; }
#else
const Availability& availability() {
  static const Availability absent = not_built("OpenSSL", "configure with openssl/evp.h (package libssl-dev or openssl-devel)");
  return absent;
}
#endif
}  // namespace crypto

namespace mlx5dv {
#if GIGABAR_HAS_MLX5DV
const LibraryOf<Functions>& functions() {
  static const auto library = load_functions<Functions>(
      "libmlx5.so.1", "GIGABAR_MLX5_LIBRARY", "install rdma-core's provider of mlx5 (package ibverbs-providers or rdma-core)",
      "install a newer rdma-core");
  return library;
}
const Availability& availability() { return functions().availability; }
#else
const Availability& availability() {
  static const Availability absent =
      not_built("the queues of mlx5 adapters", "configure with infiniband/mlx5dv.h (package libibverbs-dev or rdma-core-devel)");
  return absent;
}
#endif
}  // namespace mlx5dv

namespace rdmacm {
#if GIGABAR_HAS_RDMACM
const LibraryOf<Functions>& functions() {
  static const auto library =
      load_functions<Functions>("librdmacm.so.1", "GIGABAR_RDMACM_LIBRARY",
                                "install rdma-core's librdmacm (package librdmacm1 or librdmacm)", "install a newer rdma-core");
  return library;
}
const Availability& availability() { return functions().availability; }
#else
const Availability& availability() {
  static const Availability absent =
      not_built("connections of RDMA devices", "configure with rdma/rdma_cma.h (package librdmacm-dev or rdma-core-devel)");
  return absent;
}
#endif
}  // namespace rdmacm
}  // namespace gigabar
