// SPDX-License-Identifier: Apache-2.0
#include "secure/record_cipher.hpp"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "driver/crypto/crypto.hpp"

namespace gigabar::secure {
namespace {

static_assert(RecordCipher::kAuthenticatorBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(RecordCipher::kAuthenticatorBytes == crypto_aead_aes256gcm_ABYTES);
static_assert(crypto_aead_aes256gcm_NPUBBYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
using Nonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

Nonce nonce_of(std::uint64_t number) noexcept {
  Nonce nonce{};
  std::memcpy(nonce.data() + nonce.size() - sizeof number, &number, sizeof number);
  return nonce;
}

// Calls `act` with what is within the first `bytes` of the pieces, in order. False: a call returned that.
template <class Act>
bool each_of(std::span<const iovec> pieces, std::size_t bytes, const Act& act) {
  for (const iovec& piece : pieces) {
    const std::size_t part = std::min(piece.iov_len, bytes);
    if (part > 0 && !act(static_cast<const unsigned char*>(piece.iov_base), part)) return false;
    bytes -= part;
  }
  return true;
}

#if GIGABAR_HAS_CRYPTO

constexpr std::size_t kQuickBytes = 512;  // libsodium has encrypted fewer before libcrypto has taken its key and nonce
constexpr int kIsSealing = 1, kIsOpening = 0;
constexpr int kTagBytes = RecordCipher::kAuthenticatorBytes;

void* make_context(const Secret& key, Cipher cipher) noexcept {
  if (!crypto::availability().is_ok()) return nullptr;
  const auto& lib = crypto::functions();
  EVP_CIPHER_CTX* const context = lib.EVP_CIPHER_CTX_new();
  if (context == nullptr) return nullptr;
  const EVP_CIPHER* const kind = cipher == Cipher::aes_256_gcm ? lib.EVP_aes_256_gcm() : lib.EVP_chacha20_poly1305();
  if (lib.EVP_CipherInit_ex(context, kind, nullptr, key.data(), nullptr, kIsSealing) == 1) return context;
  lib.EVP_CIPHER_CTX_free(context);
  return nullptr;
}

// The context, ready for a record's text; null: it failed.
EVP_CIPHER_CTX* begin(void* made, int direction, const Nonce& nonce, const unsigned char* head, std::size_t head_bytes) noexcept {
  const auto& lib = crypto::functions();
  auto* const context = static_cast<EVP_CIPHER_CTX*>(made);
  int count = 0;
  const bool is_ready = lib.EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce.data(), direction) == 1 &&
                        lib.EVP_CipherUpdate(context, nullptr, &count, head, static_cast<int>(head_bytes)) == 1;
  return is_ready ? context : nullptr;
}

#endif

}  // namespace

std::string_view name_of(Cipher cipher) noexcept { return cipher == Cipher::aes_256_gcm ? "AES-256-GCM" : "ChaCha20-Poly1305"; }

Cipher best_cipher() noexcept {
  static const bool has_aes = ::sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() == 1;
  return has_aes ? Cipher::aes_256_gcm : Cipher::chacha20_poly1305;
}

void RecordCipher::Free::operator()([[maybe_unused]] void* context) const noexcept {
#if GIGABAR_HAS_CRYPTO
  crypto::functions().EVP_CIPHER_CTX_free(static_cast<EVP_CIPHER_CTX*>(context));
#endif
}

RecordCipher::RecordCipher(Secret key, Cipher cipher) : key_(std::move(key)), cipher_(cipher) {
#if GIGABAR_HAS_CRYPTO
  if (key_.is_set()) context_.reset(make_context(key_, cipher_));
#endif
}

bool RecordCipher::seal(const unsigned char* head, std::size_t head_bytes, std::span<const iovec> pieces, unsigned char* text,
                        std::size_t text_bytes) {
  const Nonce nonce = nonce_of(number_++);
  unsigned char* end = text;
#if GIGABAR_HAS_CRYPTO
  if (context_ && text_bytes > kQuickBytes) {
    const auto& lib = crypto::functions();
    auto* const context = begin(context_.get(), kIsSealing, nonce, head, head_bytes);
    if (context == nullptr) return false;
    int count = 0;
    const bool is_encrypted = each_of(pieces, text_bytes, [&](const unsigned char* from, std::size_t bytes) {
      if (lib.EVP_CipherUpdate(context, end, &count, from, static_cast<int>(bytes)) != 1) return false;
      end += count;
      return true;
    });
    return is_encrypted && lib.EVP_CipherFinal_ex(context, end, &count) == 1 &&
           lib.EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, kTagBytes, end) == 1;
  }
#endif
  each_of(pieces, text_bytes, [&](const unsigned char* from, std::size_t bytes) {
    std::memcpy(end, from, bytes);
    end += bytes;
    return true;
  });
  const auto encrypt = cipher_ == Cipher::aes_256_gcm ? crypto_aead_aes256gcm_encrypt : crypto_aead_chacha20poly1305_ietf_encrypt;
  return encrypt(text, nullptr, text, text_bytes, head, head_bytes, nullptr, nonce.data(), key_.data()) == 0;
}

bool RecordCipher::open(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t text_bytes) {
  const Nonce nonce = nonce_of(number_++);
#if GIGABAR_HAS_CRYPTO
  if (context_ && text_bytes > kQuickBytes) {
    const auto& lib = crypto::functions();
    auto* const context = begin(context_.get(), kIsOpening, nonce, head, head_bytes);
    int count = 0;
    return context != nullptr && lib.EVP_CipherUpdate(context, text, &count, text, static_cast<int>(text_bytes)) == 1 &&
           lib.EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, kTagBytes, text + text_bytes) == 1 &&
           lib.EVP_CipherFinal_ex(context, text + text_bytes, &count) == 1;
  }
#endif
  const auto decrypt = cipher_ == Cipher::aes_256_gcm ? crypto_aead_aes256gcm_decrypt : crypto_aead_chacha20poly1305_ietf_decrypt;
  return decrypt(text, nullptr, nullptr, text, text_bytes + kAuthenticatorBytes, head, head_bytes, nonce.data(), key_.data()) == 0;
}

}  // namespace gigabar::secure
