// SPDX-License-Identifier: Apache-2.0
// Frames as they stand on the wire, encrypted and authenticated.
//
//   length of the rest   4 bytes, in the clear, authenticated
//   sealed               type (2), count of descriptors (2), body
//   tag                  16 bytes
//
// The nonce is the frame's number in its direction: a frame that is changed, left out, repeated or moved does not open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "fabric/wireup/handshake.hpp"
#include "fabric/wireup/wireup.hpp"

namespace gigabar::fabric::wireup {

inline constexpr std::size_t kSealBytes = 4 + 4 + 16;  // what sealing adds to a body
inline constexpr std::size_t kMaxFrameDescriptors = 8;
inline constexpr std::uint16_t kFirstOwnType = 0x8000;
inline constexpr std::uint16_t kFarewell = kFirstOwnType;  // the last frame of an orderly disconnect

// Not copied: two that count on from the same number would use a nonce twice.
class Sealer {
 public:
  explicit Sealer(const Secret& key) noexcept : key_(key) {}
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;
  Sealer(Sealer&& other) noexcept : key_(std::exchange(other.key_, Secret())), frame_count_(other.frame_count_) {}
  Sealer& operator=(Sealer&&) = delete;
  ~Sealer() = default;
  std::string seal(std::uint16_t type, std::size_t descriptor_count, std::string_view body);

 private:
  Secret key_;
  std::uint64_t frame_count_ = 0;
};

struct OpenedFrame {
  std::uint16_t type = 0;
  std::size_t descriptor_count = 0;
  std::string body;
};

class Opener {
 public:
  enum class Found : std::uint8_t { frame, incomplete, too_long, forged };

  explicit Opener(const Secret& key) noexcept : key_(key) {}
  // The frame at the front of `bytes`, which it is then removed from. After too_long and forged nothing can be opened any more.
  Found open(std::string_view& bytes, OpenedFrame& frame);

 private:
  Secret key_;
  std::uint64_t frame_count_ = 0;
};

}  // namespace gigabar::fabric::wireup
