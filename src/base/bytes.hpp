// SPDX-License-Identifier: Apache-2.0
// What processes write to each other, byte by byte: numbers in little-endian order, strings with their length before them. The
// reader trusts nothing: from the first value on that is missing or wrong it is not ok and gives zeros.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace gigabar::inline v0 {

static_assert(std::endian::native == std::endian::little, "the order of bytes is the machine's own");

class ByteWriter {
 public:
  // `begin`: what stands in front, a magic word for example.
  explicit ByteWriter(std::string_view begin = {}) : bytes_(begin) {}

  template <class Number>
    requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>)
  ByteWriter& number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  ByteWriter& bytes(std::string_view value) {
    bytes_.append(value);
    return *this;
  }
  ByteWriter& string(std::string_view value) { return number(static_cast<std::uint32_t>(value.size())).bytes(value); }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) noexcept : rest_(bytes), size_(bytes.size()) {}

  template <class Number>
    requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>)
  Number number() noexcept {
    Number value{};
    bytes(sizeof value).copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
  }
  // Empty, unless so many are there.
  std::string_view bytes(std::size_t count) noexcept {
    expect(count <= rest_.size());
    if (!is_ok_) return {};
    const std::string_view value = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return value;
  }
  template <std::size_t kCount>
  std::array<std::uint8_t, kCount> array() noexcept {
    std::array<std::uint8_t, kCount> values{};
    bytes(kCount).copy(reinterpret_cast<char*>(values.data()), kCount);
    return values;
  }
  std::string_view string(std::size_t most_bytes) noexcept {
    const auto length = number<std::uint32_t>();
    expect(length <= most_bytes);
    return bytes(length);
  }
  // Of what was read last: false is an error too.
  void expect(bool condition) noexcept { is_ok_ = is_ok_ && condition; }

  bool is_ok() const noexcept { return is_ok_; }
  // Everything was read and nothing was missing or wrong.
  bool is_done() const noexcept { return is_ok_ && rest_.empty(); }
  // Of an error: where it is.
  std::size_t offset() const noexcept { return size_ - rest_.size(); }

 private:
  std::string_view rest_;
  std::size_t size_;
  bool is_ok_ = true;
};

inline const unsigned char* unsigned_bytes(std::string_view bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
template <class Byte, std::size_t kCount>
  requires(sizeof(Byte) == 1)
std::string_view view_of(const std::array<Byte, kCount>& bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), kCount};
}

}  // namespace gigabar::inline v0
