// SPDX-License-Identifier: Apache-2.0
// Numbers as they stand on the wire: little-endian, whatever the processor.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gigabar::fabric::wireup {

template <std::unsigned_integral Number>
void append_number(std::string& bytes, Number number) {
  for (std::size_t index = 0; index < sizeof(Number); ++index) {
    bytes.push_back(static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * index)));
  }
}

// `bytes` has at least offset + sizeof(Number) bytes.
template <std::unsigned_integral Number>
Number number_at(std::string_view bytes, std::size_t offset) {
  std::uint64_t number = 0;
  for (std::size_t index = 0; index < sizeof(Number); ++index) {
    number |= std::uint64_t{static_cast<unsigned char>(bytes[offset + index])} << (8 * index);
  }
  return static_cast<Number>(number);
}

// Takes pieces from the front of untrusted bytes; each answers nothing when there are not enough.
class Reader {
 public:
  explicit Reader(std::string_view bytes) noexcept : left_(bytes) {}

  template <std::unsigned_integral Number>
  std::optional<Number> number() {
    const auto piece = bytes(sizeof(Number));
    if (!piece) return {};
    return number_at<Number>(*piece, 0);
  }
  std::optional<std::string_view> bytes(std::size_t count) {
    if (left_.size() < count) return {};
    const std::string_view piece = left_.substr(0, count);
    left_.remove_prefix(count);
    return piece;
  }
  bool is_at_end() const noexcept { return left_.empty(); }

 private:
  std::string_view left_;
};

inline const unsigned char* unsigned_bytes(std::string_view bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace gigabar::fabric::wireup
