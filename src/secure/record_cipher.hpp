// SPDX-License-Identifier: Apache-2.0
// The cipher of one direction of a sealed connection: AES-256-GCM (NIST SP 800-38D) or ChaCha20-Poly1305 (RFC 8439), each record
// with the next number as its nonce. Large records are libcrypto's where it is there, which takes 0.2 to 0.4 of libsodium's time;
// both make the same records.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "secure/secret.hpp"

namespace gigabar::secure {

// From the one that every processor has to the one that is faster.
enum class Cipher : std::uint8_t { chacha20_poly1305, aes_256_gcm };
std::string_view name_of(Cipher cipher) noexcept;
// AES-256-GCM where the processor has instructions for it: without them it is slow, and its time depends on the key.
Cipher best_cipher() noexcept;

class RecordCipher {
 public:
  static constexpr std::size_t kAuthenticatorBytes = 16;

  // `key`: of 32 bytes, for this direction alone. What libcrypto makes of it lies in its own memory, which it wipes.
  // `cipher`: one that best_cipher() of this process has.
  RecordCipher(Secret key, Cipher cipher);

  // Encrypts the first `text_bytes` of the pieces, which have as many, to `text`, and puts the authenticator behind it. `head`, of
  // so many bytes, is authenticated with it. False: the cipher failed.
  bool seal(const unsigned char* head, std::size_t head_bytes, std::span<const iovec> pieces, unsigned char* text,
            std::size_t text_bytes);
  // The reverse, in its place; `text_bytes` is without the authenticator. False: it is not what was sealed; the text is spoilt.
  bool open(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t text_bytes);

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };

  Secret key_;
  Cipher cipher_;
  std::uint64_t number_ = 0;             // of the next record
  std::unique_ptr<void, Free> context_;  // libcrypto's; null: libsodium
};

}  // namespace gigabar::secure
