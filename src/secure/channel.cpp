// SPDX-License-Identifier: Apache-2.0
#include "secure/channel.hpp"

#include <sodium.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/bytes.hpp"
#include "base/errors.hpp"
#include "base/quietly.hpp"
#include "base/undo.hpp"

namespace gigabar::secure {
namespace {

constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDHUP;
constexpr std::uint16_t kFirstImpossibleType = 0x8000;
// So that one peer that talks much does not keep the others waiting.
constexpr int kMaxReadsPerTurn = 16;
// An empty channel gives back what a large frame needed.
constexpr std::size_t kMaxIdleBytes = 4096;

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kHeadBytes = 4;  // type and count of descriptors
constexpr std::size_t kAddedBytes = crypto_secretstream_xchacha20poly1305_ABYTES;
static_assert(kFrameOverheadBytes == kLengthBytes + kHeadBytes + kAddedBytes);
static_assert(kStreamHeaderBytes == crypto_secretstream_xchacha20poly1305_HEADERBYTES);

using State = crypto_secretstream_xchacha20poly1305_state;
static_assert(alignof(State) == 1);
State* state_in(Secret& memory) { return reinterpret_cast<State*>(memory.data()); }
unsigned char* writable(std::string& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

// Of the file descriptors in a control message.
union ControlSpace {
  std::array<char, CMSG_SPACE(sizeof(int) * kMaxFrameDescriptors)> bytes;
  cmsghdr alignment;
};
msghdr message_of(iovec& piece, ControlSpace& control) {
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  return message;
}

}  // namespace

// --- Frames on the wire ----------------------------------------------------------------------------------------------------------

Sealer::Sealer(const Secret& key) : header_(kStreamHeaderBytes, '\0'), state_(Secret::of_size(sizeof(State))) {
  crypto_secretstream_xchacha20poly1305_init_push(state_in(state_), writable(header_), key.data());
}

std::string Sealer::seal(std::uint16_t type, std::size_t descriptor_count, std::string_view body, bool is_last) {
  if (!state_.is_set()) return {};
  const std::string plain = ByteWriter().number(type).number(static_cast<std::uint16_t>(descriptor_count)).bytes(body).take();
  std::string sealed = ByteWriter().number(static_cast<std::uint32_t>(plain.size() + kAddedBytes)).take();
  sealed.resize(kFrameOverheadBytes + body.size());
  const unsigned char tag =
      is_last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL : crypto_secretstream_xchacha20poly1305_TAG_MESSAGE;
  crypto_secretstream_xchacha20poly1305_push(state_in(state_), writable(sealed) + kLengthBytes, nullptr, unsigned_bytes(plain),
                                             plain.size(), unsigned_bytes(sealed), kLengthBytes, tag);
  return sealed;
}

Opener::Opener(const Secret& key, std::string_view header) : state_(Secret::of_size(sizeof(State))) {
  crypto_secretstream_xchacha20poly1305_init_pull(state_in(state_), unsigned_bytes(header), key.data());
}

Opener::Found Opener::open(std::string_view& bytes, OpenedFrame& frame) {
  if (bytes.size() < kLengthBytes) return Found::incomplete;
  const std::size_t rest_bytes = ByteReader(bytes).number<std::uint32_t>();
  if (rest_bytes < kHeadBytes + kAddedBytes || rest_bytes > kHeadBytes + kMaxFrameBytes + kAddedBytes) return Found::too_long;
  if (bytes.size() < kLengthBytes + rest_bytes) return Found::incomplete;
  std::string plain(rest_bytes - kAddedBytes, '\0');
  unsigned char tag = 0;
  if (!state_.is_set() || crypto_secretstream_xchacha20poly1305_pull(state_in(state_), writable(plain), nullptr, &tag,
                                                                     unsigned_bytes(bytes) + kLengthBytes, rest_bytes,
                                                                     unsigned_bytes(bytes), kLengthBytes) != 0) {
    state_ = Secret();
    return Found::forged;
  }
  frame.is_last = tag == crypto_secretstream_xchacha20poly1305_TAG_FINAL;
  ByteReader head(plain);
  frame.type = head.number<std::uint16_t>();
  frame.descriptor_count = head.number<std::uint16_t>();
  plain.erase(0, kHeadBytes);
  frame.body = std::move(plain);
  bytes.remove_prefix(kLengthBytes + rest_bytes);
  return Found::frame;
}

// --- The channel -----------------------------------------------------------------------------------------------------------------

Channel::Channel(Rank rank, Established established, Watched process_watch, const QueueLimits& limits)
    : rank_(rank),
      limits_(limits),
      sealer_(std::move(established.sealer)),
      opener_(std::move(established.opener)),
      connection_(std::move(established.connection)),
      process_watch_(std::move(process_watch)) {}

void Channel::cut() noexcept {
  is_cut_ = true;
  ::shutdown(socket(), SHUT_RDWR);
}

Fault Channel::end() const {
  if (fault_) return *fault_;
  if (is_cut_) return {"this rank closed it: the peer broke the protocol, or this process had no memory for what it sent", {}};
  return *send_fault_;
}

void Channel::break_off(std::string cause, NativeCode native) {
  if (!fault_) fault_ = Fault{std::move(cause), std::move(native)};
}

// Why a frame can never be sent; empty: it can.
std::string Channel::fault_of(const Frame& frame) const {
  const std::size_t count = frame.descriptors.size();
  if (frame.type >= kFirstImpossibleType) return text("type ", frame.type, " is not below ", kFirstImpossibleType);
  if (frame.body.size() > kMaxFrameBytes) return text("a body of ", frame.body.size(), " bytes; ", kMaxFrameBytes, " are possible");
  if (count > kMaxFrameDescriptors) return text(count, " descriptors; ", kMaxFrameDescriptors, " are possible");
  if (count > 0 && !connection_.is_unix) return text("descriptors do not pass over TCP (", connection_.where, ")");
  if (!std::ranges::all_of(frame.descriptors, &Descriptor::is_open)) return "one of the descriptors is not open";
  return {};
}

Result<void> Channel::send(Frame frame) {
  const auto refused = [&](Status status, std::string cause, const char* remedy, NativeCode native = {}) {
    return make_error(status, "send frame", text("rank ", rank_), std::move(cause), remedy, std::move(native));
  };
  constexpr const char* kLater = "poll, and send again later";
  if (is_broken()) return refused(Status::peer_lost, end().cause, "", end().native);
  if (std::string fault = fault_of(frame); !fault.empty()) return refused(Status::invalid_argument, std::move(fault), "");
  if (queued_bytes_ + frame.body.size() + kFrameOverheadBytes > limits_.max_queued_bytes)
    return refused(Status::busy, text("it has not taken the ", queued_bytes_, " bytes that wait for it"), kLater);
  if (queued_descriptors_ + frame.descriptors.size() > kMaxQueuedDescriptors)
    return refused(Status::busy, text("it has not taken the ", queued_descriptors_, " descriptors that wait for it"), kLater);
  enqueue(std::move(frame), false);
  return {};
}

// The place first: a frame that is sealed and not sent would be missed at the other end.
void Channel::enqueue(Frame frame, bool is_last) {
  Outgoing& outgoing = outgoing_.emplace_back();
  Undo forget([&] { outgoing_.pop_back(); });
  outgoing.bytes = sealer_.seal(frame.type, frame.descriptors.size(), frame.body, is_last);
  forget.call_off();
  outgoing.descriptors = std::move(frame.descriptors);
  queued_bytes_ += outgoing.bytes.size();
  queued_descriptors_ += outgoing.descriptors.size();
}

// The kernel hands descriptors out with the first byte of the same call: a call sends of one frame only.
ssize_t Channel::send_some() {
  Outgoing& first = outgoing_.front();
  iovec piece{first.bytes.data() + first_sent_bytes_, first.bytes.size() - first_sent_bytes_};
  ControlSpace control{};
  msghdr message = message_of(piece, control);
  message.msg_controllen = 0;
  const std::vector<Descriptor>& descriptors = first.descriptors;
  if (!descriptors.empty()) {
    message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    for (std::size_t index = 0; index < descriptors.size(); ++index) {
      const int number = descriptors[index].get();
      std::memcpy(CMSG_DATA(header) + index * sizeof number, &number, sizeof number);
    }
  }
  return ::sendmsg(socket(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Channel::drop_sent(std::size_t bytes) {
  // Gone with the first byte.
  Outgoing& first = outgoing_.front();
  queued_descriptors_ -= first.descriptors.size();
  first.descriptors.clear();
  first_sent_bytes_ += bytes;
  if (first_sent_bytes_ < first.bytes.size()) return;
  queued_bytes_ -= std::exchange(first_sent_bytes_, 0);
  outgoing_.pop_front();
}

bool Channel::flush() {
  while (!outgoing_.empty() && !send_fault_) {
    const ssize_t count = send_some();
    if (count >= 0) {
      drop_sent(static_cast<std::size_t>(count));
      continue;
    }
    const int code = errno;
    if (code == EINTR) continue;
    if (code == EAGAIN) {
      connection_.socket.want(EPOLLOUT | (is_backpressured() ? 0U : kReadable));
      return true;
    }
    // No memory, or too many descriptors of this user are on their way: the socket will not say when that has passed.
    if (code == ENOBUFS || code == ENOMEM || code == ETOOMANYREFS) {
      connection_.socket.want(kReadable);
      return false;
    }
    send_fault_ = Fault{text("sending failed: ", std::strerror(code)), errno_code(code)};
  }
  connection_.socket.want(kReadable);
  return true;
}

void Channel::keep_descriptors(msghdr& message) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t index = 0; index < count; ++index) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header) + index * sizeof number, sizeof number);
      descriptors_.emplace_back(number);  // there is room
    }
  }
}

// False: nothing more is there, or the channel has ended.
bool Channel::read_some(ReadBuffer& buffer) {
  iovec piece{buffer.data(), buffer.size()};
  ControlSpace control{};
  msghdr message = message_of(piece, control);
  // All that come are owned before anything can throw.
  descriptors_.reserve(descriptors_.size() + kMaxFrameDescriptors);
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    const int code = errno;
    if (code != EAGAIN) break_off(text("its socket broke: ", std::strerror(code)), errno_code(code));
    return false;
  }
  keep_descriptors(message);
  if (count == 0) {
    break_off("its socket closed without a sealed end: its process has ended");
    return false;
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    if (descriptors_.size() >= kMaxFrameDescriptors) {
      break_off("it sent more descriptors than a frame has");
      return false;
    }
    // There was no room for them in this process: the frame does without.
    descriptors_.clear();
    has_lost_descriptors_ = true;
  }
  incoming_.append(buffer.data(), static_cast<std::size_t>(count));
  return true;
}

// False: it did not send what it says. Descriptors come with the first byte of their frame, so they are here by now.
bool Channel::take_descriptors(OpenedFrame& frame) {
  if (frame.descriptor_count > 0 && std::exchange(has_lost_descriptors_, false)) {
    frame.lacks_descriptors = true;
    return frame.descriptor_count <= kMaxFrameDescriptors;
  }
  if (frame.descriptor_count > kMaxFrameDescriptors || frame.descriptor_count > descriptors_.size()) return false;
  const auto end = descriptors_.begin() + static_cast<std::ptrdiff_t>(frame.descriptor_count);
  frame.descriptors.assign(std::move_iterator(descriptors_.begin()), std::move_iterator(end));
  descriptors_.erase(descriptors_.begin(), end);
  return true;
}

void Channel::deliver_frames(ChannelEvents& events) {
  std::string_view bytes = incoming_;
  // Also when `events` throw: what was told is not told again.
  const Undo use([&] { incoming_.erase(0, incoming_.size() - bytes.size()); });
  while (!is_over() && !is_backpressured()) {
    OpenedFrame frame;
    switch (opener_.open(bytes, frame)) {
      case Opener::Found::incomplete: return;
      case Opener::Found::too_long: return break_off("it sent a frame of an impossible length");
      case Opener::Found::forged: return break_off("it sent a frame that is not authentic: something on the way changed it");
      case Opener::Found::frame: break;
    }
    if (frame.is_last) return break_off("it disconnected");
    if (frame.type >= kFirstImpossibleType)
      return break_off(text("it sent a frame of type ", frame.type, ", which does not exist"));
    if (!take_descriptors(frame)) return break_off("it sent a frame without its descriptors");
    events.frame(rank_, static_cast<Frame&&>(frame));
  }
}

bool Channel::receive(ReadBuffer& buffer, ChannelEvents& events) {
  for (int turn = 0; turn < kMaxReadsPerTurn && !is_over(); ++turn) {
    deliver_frames(events);  // what was left because the peer did not take the answers
    if (is_backpressured()) connection_.socket.want(EPOLLOUT);
    if (is_over() || is_backpressured() || !read_some(buffer)) return false;
    deliver_frames(events);
    if (incoming_.empty() && incoming_.capacity() > kMaxIdleBytes) std::string().swap(incoming_);
    // What is left belongs to the one frame that has begun.
    if (descriptors_.size() > kMaxFrameDescriptors || (incoming_.empty() && !descriptors_.empty())) {
      break_off("it sent descriptors without a frame that says so");
    }
  }
  return !is_over();
}

void Channel::seal_end() noexcept {
  if (is_broken()) return;
  // Without the memory for it the peer sees the socket close, and takes it for a loss.
  quietly([&] {
    enqueue({}, true);
    flush();
  });
}

std::size_t Channel::memory_bytes() const noexcept {
  return sizeof *this + where().capacity() + incoming_.capacity() + queued_bytes_ + outgoing_.size() * sizeof(Outgoing);
}

}  // namespace gigabar::secure
