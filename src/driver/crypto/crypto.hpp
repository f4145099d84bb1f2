// SPDX-License-Identifier: Apache-2.0
// OpenSSL's libcrypto.so.3, opened at run time: ciphers that use all of the processor's vector units.
#pragma once

#include "driver/loader.hpp"
#include "gigabar/status.hpp"

#if GIGABAR_HAS_CRYPTO
#include <openssl/evp.h>
#define GIGABAR_SYMBOLS "driver/crypto/symbols.def"
#endif

namespace gigabar::crypto {

#include "driver/functions.inc"

// The process's table, loaded on first use. Threads: any.
const LibraryOf<Functions>& functions();
// ok when the library was opened and has every function that is needed.
inline const Availability& availability() { return functions().availability; }

}  // namespace gigabar::crypto
