// SPDX-License-Identifier: Apache-2.0
#include "streams/device_code.hpp"

#include <algorithm>
#include <vector>

#include "memory/runtime.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{8} << 20;

class HostSide final : public DeviceCode {
 public:
  Result<void> fill(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed, const GiveUp& give_up) override {
    return send(device, address, bytes, give_up,
                [seed](std::byte* piece, std::size_t at, std::size_t length) { fill_pattern(piece, length, seed, at / 8); });
  }

  Result<void> poison(int device, std::uintptr_t address, std::size_t bytes, const GiveUp& give_up) override {
    return send(device, address, bytes, give_up,
                [](std::byte* piece, std::size_t, std::size_t length) { fill_poison(piece, length); });
  }

  Result<std::optional<PatternMismatch>> check(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed,
                                               const GiveUp& give_up) override {
    std::vector<std::byte> piece(std::min(bytes, kPieceBytes));
    for (std::size_t at = 0; at < bytes && !give_up(); at += piece.size()) {
      const std::size_t length = std::min(piece.size(), bytes - at);
      if (Result<void> copied = engine_copy_from(device, piece.data(), address + at, length); !copied)
        return std::move(copied).error();
      if (const auto mismatch = check_pattern(piece.data(), length, seed, at / 8)) return mismatch;
    }
    return std::optional<PatternMismatch>{};
  }

 private:
  template <class Make>
  static Result<void> send(int device, std::uintptr_t address, std::size_t bytes, const GiveUp& give_up, const Make& make) {
    std::vector<std::byte> piece(std::min(bytes, kPieceBytes));
    for (std::size_t at = 0; at < bytes && !give_up(); at += piece.size()) {
      const std::size_t length = std::min(piece.size(), bytes - at);
      make(piece.data(), at, length);
      if (Result<void> copied = engine_copy_to(device, address + at, piece.data(), length); !copied) return copied;
    }
    return {};
  }
};

}  // namespace

DeviceCode& host_side_device_code() {
  static HostSide code;
  return code;
}

}  // namespace gigabar::inline v0
