// SPDX-License-Identifier: Apache-2.0
// The bytes of one connection whose ends have proved its key, in both directions, as a socket that does not block gives and takes
// them.
//
// Sealed, they travel in records: the length of the rest (4 bytes, in the clear, authenticated), at most kRecordBytes of ciphertext
// and 16 bytes of authenticator. Each direction has keys of its own, one after the other, and the number of the record is the
// nonce: one that is changed, lost, repeated or moved does not open, nor does any after it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "secure/channel.hpp"
#include "secure/secret.hpp"
#include "secure/sockets.hpp"

namespace gigabar::secure {

enum class Protection : std::uint8_t {
  authenticated,  // both ends have proved the key of the connection; its bytes are in the clear
  sealed          // every byte is encrypted and authenticated too
};
std::string_view name_of(Protection protection) noexcept;

inline constexpr std::size_t kPartBytes = std::size_t{256} << 10;
inline constexpr std::size_t kRecordBytes = kPartBytes + 64;  // a part and its frame's header

// From the one that every processor has to the one that is faster.
enum class Cipher : std::uint8_t { chacha20_poly1305, aes_256_gcm };
std::string_view name_of(Cipher cipher) noexcept;
// AES-256-GCM where the processor has instructions for it: without them it is slow, and its time depends on the key.
Cipher best_cipher() noexcept;

// Of one direction: AES-256-GCM (NIST SP 800-38D) or ChaCha20-Poly1305 (RFC 8439). Large records are libcrypto's where it is there,
// which takes 0.2 to 0.4 of libsodium's time; both make the same records.
class RecordCipher {
 public:
  static constexpr std::size_t kAuthenticatorBytes = 16;
  // Then the next key follows from this one, which is wiped: what a process knows does not open what it sent long ago. These are
  // about 2^30 blocks of AES, which leave less than 2^-68 of advantage over a cipher without flaw (blocks squared, over 2^129).
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 16;

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

  bool is_key_used_up() const noexcept { return number_ != 0 && number_ % kRecordsPerKey == 0; }
  bool renew_key();

  Secret key_;
  Cipher cipher_;
  std::uint64_t number_ = 0;             // of the next record
  std::unique_ptr<void, Free> context_;  // libcrypto's; null: libsodium
};

struct Moved {
  enum class How : std::uint8_t {
    ok,
    blocked,  // nothing now: the descriptor tells when
    ended,    // the peer closed its side
    failed,   // `code` is an errno
    forged    // a record that is not authentic
  };
  How how = How::ok;
  std::size_t bytes = 0;  // that were moved, when ok
  int code = 0;
};

class ByteStream {
 public:
  // `cipher`: of records; the peer has the same.
  ByteStream(Established established, Protection protection, Cipher cipher);

  // Large data are best sent in parts of so many bytes, whose records then keep their alignment: four connections over loopback on
  // a host of H200 carry 11.5 GB/s, in parts of 64 KiB 9.9, and 7.8 in records that begin anywhere.
  std::size_t part_bytes() const noexcept { return protection_ == Protection::sealed ? kPartBytes : SIZE_MAX; }
  // Takes some of the bytes of `pieces`, in order. Throws std::bad_alloc, when sealed: nothing was taken then.
  Moved send(std::span<const iovec> pieces);
  // Whether send() has taken bytes that the socket has not.
  bool has_unsent() const noexcept { return sent_ < outgoing_end_; }
  // Gives the socket more of those. ok, without bytes, when all are there.
  Moved flush() noexcept;
  // Puts some bytes into `pieces`, in order. After `ok` there may be more that no descriptor tells of.
  Moved receive(std::span<const iovec> pieces);

  Watched& socket() noexcept { return socket_; }
  const Watched& socket() const noexcept { return socket_; }
  std::size_t memory_bytes() const noexcept { return outgoing_.capacity() + incoming_.capacity(); }

 private:
  bool open_record(std::size_t length);
  std::size_t take_opened(std::span<const iovec> pieces) noexcept;

  Watched socket_;
  Protection protection_;
  RecordCipher outgoing_cipher_, incoming_cipher_;  // of what goes out, and of what comes
  std::vector<unsigned char> outgoing_;             // room for a record; that of [sent_, outgoing_end_) is not gone
  std::size_t sent_ = 0, outgoing_end_ = 0;
  std::vector<unsigned char> incoming_;  // room for records; those of [begin_, end_) have come
  std::size_t begin_ = 0, end_ = 0;
  std::size_t opened_begin_ = 0, opened_end_ = 0;  // of the record that was opened last
};

}  // namespace gigabar::secure
