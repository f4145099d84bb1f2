// SPDX-License-Identifier: Apache-2.0
#include "secure/byte_stream.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace gigabar::secure {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);
constexpr std::size_t kAuthenticatorBytes = RecordCipher::kAuthenticatorBytes;
constexpr std::size_t kMaxRecordBytes = kLengthBytes + kRecordBytes + kAuthenticatorBytes;
constexpr std::size_t kFirstBytes = 4096;    // of the buffer for records, which grows with them
constexpr std::size_t kGatheredBytes = 512;  // to copy so many into one piece takes less time than the kernel needs for several

Moved moved(ssize_t count, int code) noexcept {
  if (count > 0) return {Moved::How::ok, static_cast<std::size_t>(count), 0};
  if (count == 0) return {Moved::How::ended, 0, 0};
  // Of memory that lacks now the socket does not say when it is back; it is asked again with the next event.
  const bool is_blocked = code == EAGAIN || code == EINTR || code == ENOBUFS || code == ENOMEM;
  return {is_blocked ? Moved::How::blocked : Moved::How::failed, 0, code};
}

template <class Call>
Moved call(Call system_call) noexcept {
  ssize_t count = -1;
  do {
    count = system_call();
  } while (count < 0 && errno == EINTR);
  return moved(count, errno);
}

// Returns how many bytes there were.
std::size_t gather(std::span<const iovec> pieces, unsigned char* to) noexcept {
  std::size_t copied = 0;
  for (const iovec& piece : pieces) {
    if (piece.iov_len > 0) std::memcpy(to + copied, piece.iov_base, piece.iov_len);
    copied += piece.iov_len;
  }
  return copied;
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
    if (bytes_of(pieces, kGatheredBytes + 1) <= kGatheredBytes) {
      std::array<unsigned char, kGatheredBytes> whole;
      const std::size_t bytes = gather(pieces, whole.data());
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

// Of the record at begin_, which has come whole. False: it is not authentic.
bool ByteStream::open_record() {
  std::uint32_t length = 0;
  unsigned char* const record = incoming_.data() + begin_;
  std::memcpy(&length, record, sizeof length);
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
    }
    if (end_ - begin_ >= wanted && wanted > kLengthBytes) {
      if (!open_record()) return {Moved::How::forged, 0, 0};
      continue;
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
