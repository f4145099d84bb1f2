// SPDX-License-Identifier: Apache-2.0
#include "secure/byte_stream.hpp"

#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "driver/crypto/crypto.hpp"

namespace gigabar::secure {
namespace {

// Calls `act` with what is within the first `bytes` of the pieces, in order. False: a call returned that.
template <class Act>
bool each_of(std::span<const iovec> pieces, std::size_t bytes, const Act& act) {
  for (const iovec& piece : pieces) {
    const std::size_t part = std::min(piece.iov_len, bytes);
    if (part > 0 && !act(static_cast<unsigned char*>(piece.iov_base), part)) return false;
    bytes -= part;
  }
  return true;
}

void gather(std::span<const iovec> pieces, std::size_t bytes, unsigned char* to) noexcept {
  each_of(pieces, bytes, [&](const unsigned char* from, std::size_t part) {
    std::memcpy(to, from, part);
    to += part;
    return true;
  });
}

// --- Records ---------------------------------------------------------------------------------------------------------------------

static_assert(RecordCipher::kAuthenticatorBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(RecordCipher::kAuthenticatorBytes == crypto_aead_aes256gcm_ABYTES);
static_assert(crypto_aead_aes256gcm_NPUBBYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
constexpr char kNextKey[] = "gb_next_";
using Nonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

Nonce nonce_of(std::uint64_t number) noexcept {
  Nonce nonce{};
  std::memcpy(nonce.data() + nonce.size() - sizeof number, &number, sizeof number);
  return nonce;
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

// Encrypts the first `text_bytes` of the pieces to `text` and puts the authenticator behind it, or decrypts them and checks it.
// They may lie where they go. False: the cipher failed, or what is opened was not sealed so.
bool seal_or_open(void* made, int direction, const Nonce& nonce, const unsigned char* head, std::size_t head_bytes,
                  std::span<const iovec> pieces, unsigned char* text, std::size_t text_bytes) {
  const auto& lib = crypto::functions();
  auto* const context = static_cast<EVP_CIPHER_CTX*>(made);
  unsigned char* const authenticator = text + text_bytes;
  int count = 0;
  const auto update = [&](const unsigned char* from, std::size_t bytes) {
    if (lib.EVP_CipherUpdate(context, text, &count, from, static_cast<int>(bytes)) != 1) return false;
    text += count;
    return true;
  };
  const auto exchange_tag = [&](int what) { return lib.EVP_CIPHER_CTX_ctrl(context, what, kTagBytes, authenticator) == 1; };
  return lib.EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce.data(), direction) == 1 &&
         lib.EVP_CipherUpdate(context, nullptr, &count, head, static_cast<int>(head_bytes)) == 1 &&
         each_of(pieces, text_bytes, update) && (direction == kIsSealing || exchange_tag(EVP_CTRL_AEAD_SET_TAG)) &&
         lib.EVP_CipherFinal_ex(context, authenticator, &count) == 1 &&
         (direction == kIsOpening || exchange_tag(EVP_CTRL_AEAD_GET_TAG));
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

// False: the cipher failed.
bool RecordCipher::renew_key() {
  constexpr std::size_t kKeyBytes = 32, kStackBytes = 4096;
  static_assert(crypto_kdf_KEYBYTES == kKeyBytes && sizeof kNextKey == crypto_kdf_CONTEXTBYTES + 1);
  // No Secret of its own: a connection that runs takes no memory for this, and no lock.
  std::array<unsigned char, kKeyBytes> next{};
  const bool is_made = crypto_kdf_derive_from_key(next.data(), kKeyBytes, 1, kNextKey, key_.data()) == 0;
  if (is_made) std::memcpy(key_.data(), next.data(), kKeyBytes);
  sodium_memzero(next.data(), next.size());
  sodium_stackzero(kStackBytes);
  if (!is_made) return false;
#if GIGABAR_HAS_CRYPTO
  constexpr int kAsBefore = -1;  // sealing, or opening
  auto* const context = static_cast<EVP_CIPHER_CTX*>(context_.get());
  if (context != nullptr)
    return crypto::functions().EVP_CipherInit_ex(context, nullptr, nullptr, key_.data(), nullptr, kAsBefore) == 1;
#endif
  return true;
}

bool RecordCipher::seal(const unsigned char* head, std::size_t head_bytes, std::span<const iovec> pieces, unsigned char* text,
                        std::size_t text_bytes) {
  if (is_key_used_up() && !renew_key()) return false;
  const Nonce nonce = nonce_of(number_++);
#if GIGABAR_HAS_CRYPTO
  if (context_ && text_bytes > kQuickBytes)
    return seal_or_open(context_.get(), kIsSealing, nonce, head, head_bytes, pieces, text, text_bytes);
#endif
  gather(pieces, text_bytes, text);
  const auto encrypt = cipher_ == Cipher::aes_256_gcm ? crypto_aead_aes256gcm_encrypt : crypto_aead_chacha20poly1305_ietf_encrypt;
  return encrypt(text, nullptr, text, text_bytes, head, head_bytes, nullptr, nonce.data(), key_.data()) == 0;
}

bool RecordCipher::open(const unsigned char* head, std::size_t head_bytes, unsigned char* text, std::size_t text_bytes) {
  if (is_key_used_up() && !renew_key()) return false;
  const Nonce nonce = nonce_of(number_++);
#if GIGABAR_HAS_CRYPTO
  const iovec piece{text, text_bytes};
  if (context_ && text_bytes > kQuickBytes)
    return seal_or_open(context_.get(), kIsOpening, nonce, head, head_bytes, std::span(&piece, 1), text, text_bytes);
#endif
  const auto decrypt = cipher_ == Cipher::aes_256_gcm ? crypto_aead_aes256gcm_decrypt : crypto_aead_chacha20poly1305_ietf_decrypt;
  return decrypt(text, nullptr, nullptr, text, text_bytes + kAuthenticatorBytes, head, head_bytes, nonce.data(), key_.data()) == 0;
}

// --- The connection --------------------------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
constexpr std::size_t kAuthenticatorBytes = RecordCipher::kAuthenticatorBytes;
constexpr std::size_t kMaxRecordBytes = kLengthBytes + kRecordBytes + kAuthenticatorBytes;
constexpr std::size_t kFirstBytes = 4096;    // of the buffer for records, which grows with them
constexpr std::size_t kGatheredBytes = 512;  // to copy so many into one piece takes less time than the kernel needs for several

template <class Call>
Moved call(Call system_call) noexcept {
  ssize_t count = -1;
  do {
    count = system_call();
  } while (count < 0 && errno == EINTR);
  if (count > 0) return {Moved::How::ok, static_cast<std::size_t>(count), 0};
  if (count == 0) return {Moved::How::ended, 0, 0};
  // Of memory that lacks now the socket does not say when it is back; it is asked again with the next event.
  const int code = errno;
  const bool is_blocked = code == EAGAIN || code == ENOBUFS || code == ENOMEM;
  return {is_blocked ? Moved::How::blocked : Moved::How::failed, 0, code};
}

std::size_t bytes_of(std::span<const iovec> pieces, std::size_t most) noexcept {
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) bytes = std::min(bytes + std::min(piece.iov_len, most), most);
  return bytes;
}

msghdr message_of(std::span<const iovec> pieces) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return message;
}

}  // namespace

std::string_view name_of(Protection protection) noexcept { return protection == Protection::sealed ? "sealed" : "authenticated"; }

ByteStream::ByteStream(Established established, Protection protection, Cipher cipher)
    : socket_(std::move(established.connection.socket)),
      protection_(protection),
      outgoing_cipher_(protection == Protection::sealed ? std::move(established.outgoing_key) : Secret(), cipher),
      incoming_cipher_(protection == Protection::sealed ? std::move(established.incoming_key) : Secret(), cipher) {}

Moved ByteStream::flush() noexcept {
  while (has_unsent()) {
    const Moved sent =
        call([&] { return ::send(socket_.get(), outgoing_.data() + sent_, outgoing_end_ - sent_, MSG_NOSIGNAL | MSG_DONTWAIT); });
    if (sent.how != Moved::How::ok) return sent;
    sent_ += sent.bytes;
  }
  return {};
}

Moved ByteStream::send(std::span<const iovec> pieces) {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  if (protection_ == Protection::authenticated) {
    if (const std::size_t bytes = bytes_of(pieces, kGatheredBytes + 1); bytes <= kGatheredBytes) {
      std::array<unsigned char, kGatheredBytes> whole;
      gather(pieces, bytes, whole.data());
      return call([&] { return ::send(socket_.get(), whole.data(), bytes, kFlags); });
    }
    const msghdr message = message_of(pieces);
    return call([&] { return ::sendmsg(socket_.get(), &message, kFlags); });
  }
  if (const Moved flushed = flush(); flushed.how != Moved::How::ok) return flushed;
  const std::size_t bytes = bytes_of(pieces, kRecordBytes), record_bytes = kLengthBytes + bytes + kAuthenticatorBytes;
  if (outgoing_.size() < record_bytes) outgoing_.resize(record_bytes);
  const auto length = static_cast<std::uint32_t>(bytes + kAuthenticatorBytes);
  std::memcpy(outgoing_.data(), &length, sizeof length);
  sent_ = outgoing_end_ = 0;
  if (!outgoing_cipher_.seal(outgoing_.data(), kLengthBytes, pieces, outgoing_.data() + kLengthBytes, bytes)) {
    return {Moved::How::failed, 0, EIO};
  }
  outgoing_end_ = record_bytes;
  const Moved flushed = flush();
  if (flushed.how == Moved::How::failed) return flushed;
  return {Moved::How::ok, bytes, 0};
}

std::size_t ByteStream::take_opened(std::span<const iovec> pieces) noexcept {
  std::size_t taken = 0;
  for (const iovec& piece : pieces) {
    const std::size_t part = std::min(piece.iov_len, opened_end_ - opened_begin_);
    if (part > 0) std::memcpy(piece.iov_base, incoming_.data() + opened_begin_, part);
    opened_begin_ += part;
    taken += part;
  }
  return taken;
}

// Of the record at begin_, which has come whole, with its length. False: it is not authentic.
bool ByteStream::open_record(std::size_t length) {
  unsigned char* const record = incoming_.data() + begin_;
  unsigned char* const text = record + kLengthBytes;
  if (!incoming_cipher_.open(record, kLengthBytes, text, length - kAuthenticatorBytes)) return false;
  opened_begin_ = begin_ + kLengthBytes;
  opened_end_ = opened_begin_ + length - kAuthenticatorBytes;
  begin_ += kLengthBytes + length;
  return true;
}

Moved ByteStream::receive(std::span<const iovec> pieces) {
  if (protection_ == Protection::authenticated) {
    if (pieces.size() == 1) {
      return call([&] { return ::recv(socket_.get(), pieces.front().iov_base, pieces.front().iov_len, MSG_DONTWAIT); });
    }
    msghdr message = message_of(pieces);
    return call([&] { return ::recvmsg(socket_.get(), &message, MSG_DONTWAIT); });
  }
  for (;;) {
    if (opened_begin_ < opened_end_) return {Moved::How::ok, take_opened(pieces), 0};
    std::size_t wanted = kLengthBytes;
    if (end_ - begin_ >= kLengthBytes) {
      std::uint32_t length = 0;
      std::memcpy(&length, incoming_.data() + begin_, sizeof length);
      if (length <= kAuthenticatorBytes || length > kRecordBytes + kAuthenticatorBytes) return {Moved::How::forged, 0, 0};
      wanted = kLengthBytes + length;
      if (end_ - begin_ >= wanted) {
        if (!open_record(length)) return {Moved::How::forged, 0, 0};
        continue;
      }
    }
    if (begin_ > 0) std::memmove(incoming_.data(), incoming_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
    opened_begin_ = opened_end_ = 0;
    if (incoming_.size() < wanted + kLengthBytes)
      incoming_.resize(std::clamp(std::bit_ceil(2 * wanted), kFirstBytes, kMaxRecordBytes));
    const Moved read = call([&] { return ::recv(socket_.get(), incoming_.data() + end_, incoming_.size() - end_, MSG_DONTWAIT); });
    if (read.how != Moved::How::ok) return read;
    end_ += read.bytes;
  }
}

}  // namespace gigabar::secure
