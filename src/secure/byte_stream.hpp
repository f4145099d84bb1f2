// SPDX-License-Identifier: Apache-2.0
// The bytes of one connection whose ends have proved its key, in both directions, as a socket that does not block gives and takes
// them.
//
// Sealed, they travel in records: the length of the rest (4 bytes, in the clear, authenticated), at most kRecordBytes of ciphertext
// of ChaCha20-Poly1305 (RFC 8439), and 16 bytes of authenticator. Each direction has a key of its own, and the number of the record
// is the nonce: one that is changed, lost, repeated or moved does not open, nor does any after it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "secure/channel.hpp"
#include "secure/secret.hpp"

namespace gigabar::secure {

enum class Protection : std::uint8_t {
  authenticated,  // both ends have proved the key of the connection; its bytes are in the clear
  sealed          // every byte is encrypted and authenticated too
};
std::string_view name_of(Protection protection) noexcept;

inline constexpr std::size_t kRecordBytes = 65536;

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
  ByteStream(Established established, Protection protection);

  // Takes some of the bytes of `pieces`, in order. Throws std::bad_alloc, when sealed: nothing was taken then.
  Moved send(std::span<const iovec> pieces);
  // Whether send() has taken bytes that the socket has not.
  bool has_unsent() const noexcept { return sent_ < outgoing_.size(); }
  // Gives the socket more of those. ok, without bytes, when all are there.
  Moved flush() noexcept;
  // Puts some bytes into `pieces`, in order. After `ok` there may be more that no descriptor tells of.
  Moved receive(std::span<const iovec> pieces);

  Watched& socket() noexcept { return socket_; }
  const Watched& socket() const noexcept { return socket_; }
  std::size_t memory_bytes() const noexcept { return outgoing_.capacity() + incoming_.capacity(); }

 private:
  bool open_record();
  std::size_t take_opened(std::span<const iovec> pieces) noexcept;

  Watched socket_;
  Protection protection_;
  Secret outgoing_key_, incoming_key_;
  std::uint64_t outgoing_number_ = 0, incoming_number_ = 0;
  std::vector<unsigned char> outgoing_;  // a record, of which sent_ bytes are gone
  std::size_t sent_ = 0;
  std::vector<unsigned char> incoming_;  // room for records; those of [begin_, end_) have come
  std::size_t begin_ = 0, end_ = 0;
  std::size_t opened_begin_ = 0, opened_end_ = 0;  // of the record that was opened last
};

}  // namespace gigabar::secure
