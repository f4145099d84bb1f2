// SPDX-License-Identifier: Apache-2.0
// Frames as they stand on the wire, encrypted and authenticated: libsodium's secretstream, one for each direction.
//
//   length of the rest   4 bytes, in the clear, authenticated
//   sealed               the stream's tag (1), type (2), count of descriptors (2), body
//   authenticator        16 bytes
//
// A frame that is changed, left out, repeated or moved does not open, nor does any after it. The last frame of an orderly end has
// the stream's final tag: who cuts the connection cannot make one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "secure/secret.hpp"

namespace gigabar::secure {

inline constexpr std::size_t kMaxFrameBytes = 65536;
inline constexpr std::size_t kMaxFrameDescriptors = 8;
inline constexpr std::size_t kStreamHeaderBytes = 24;
inline constexpr std::size_t kFrameOverheadBytes = 4 + 4 + 17;  // what sealing adds to a body

// Neither is copied, they are moved only: two that go on from the same state would encrypt with the same numbers. One that was
// moved from has no key.
class Sealer {
 public:
  Sealer() noexcept = default;
  explicit Sealer(const Secret& key);
  Sealer(Sealer&&) noexcept = default;
  Sealer& operator=(Sealer&&) noexcept = default;

  // What the other end needs to open the frames; no secret.
  const std::string& header() const noexcept { return header_; }
  // Nothing without a key.
  std::string seal(std::uint16_t type, std::size_t descriptor_count, std::string_view body, bool is_last = false);

 private:
  std::string header_;
  Secret state_;
};

struct OpenedFrame {
  std::uint16_t type = 0;
  std::size_t descriptor_count = 0;
  std::string body;
  bool is_last = false;
};

class Opener {
 public:
  enum class Found : std::uint8_t { frame, incomplete, too_long, forged };

  Opener() noexcept = default;
  Opener(const Secret& key, std::string_view header);
  Opener(Opener&&) noexcept = default;
  Opener& operator=(Opener&&) noexcept = default;

  // The frame at the front of `bytes`, which it is then removed from. After forged nothing can be opened any more; after too_long
  // the caller ends the stream, because nothing tells where the next frame begins.
  Found open(std::string_view& bytes, OpenedFrame& frame);

 private:
  Secret state_;
};

}  // namespace gigabar::secure
