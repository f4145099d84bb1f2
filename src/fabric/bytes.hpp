// SPDX-License-Identifier: Apache-2.0
// What ranks write to each other beside the data: numbers in little-endian order and byte strings with their length before them.
// The reader trusts nothing: after a value that is not there, it is not ok and gives zeros.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace gigabar::fabric {

static_assert(std::endian::native == std::endian::little, "the wire format is the machine's own");

class ByteWriter {
 public:
  template <class Number>
    requires std::is_arithmetic_v<Number>
  ByteWriter& number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  ByteWriter& string(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) noexcept : rest_(bytes) {}

  template <class Number>
    requires std::is_arithmetic_v<Number>
  Number number() noexcept {
    Number value{};
    if (!has(sizeof value)) return value;
    rest_.copy(reinterpret_cast<char*>(&value), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view string(std::size_t most_bytes) noexcept {
    const auto length = number<std::uint32_t>();
    if (length > most_bytes || !has(length)) {
      is_ok_ = false;
      return {};
    }
    const std::string_view value = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return value;
  }
  bool is_ok() const noexcept { return is_ok_; }
  // Everything was read and nothing lacked.
  bool is_done() const noexcept { return is_ok_ && rest_.empty(); }

 private:
  bool has(std::size_t count) noexcept {
    if (rest_.size() < count) is_ok_ = false;
    return is_ok_;
  }
  std::string_view rest_;
  bool is_ok_ = true;
};

// What a peer says, for a message of this rank's: one line, whose characters can be shown.
inline std::string shown(std::string_view said, std::size_t most_bytes) {
  std::string line(said.substr(0, most_bytes));
  for (char& letter : line) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return line;
}

}  // namespace gigabar::fabric
