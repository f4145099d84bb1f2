// SPDX-License-Identifier: Apache-2.0
#include "driver/crypto/crypto.hpp"

#include "base/errors.hpp"
#include "driver/loader.hpp"

namespace gigabar::crypto {
#if GIGABAR_HAS_CRYPTO
namespace {

const LibraryOf<Functions>& library() {
  static const auto instance = load_functions<Functions>("libcrypto.so.3", "GIGABAR_CRYPTO_LIBRARY",
                                                         "install OpenSSL 3 (package libssl3)", "install a newer OpenSSL");
  return instance;
}

}  // namespace

const Availability& availability() { return library().availability; }
const Functions& functions() { return library(); }

#else

const Availability& availability() {
  static const Availability not_built{AvailabilityCode::not_built,
                                      "this build has no support for OpenSSL",
                                      "configure with openssl/evp.h (package libssl-dev or openssl-devel)",
                                      {}};
  return not_built;
}

#endif
}  // namespace gigabar::crypto
