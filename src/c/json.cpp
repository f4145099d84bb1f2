// SPDX-License-Identifier: Apache-2.0
#include "c/json.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace gigabar::c {
namespace {

// Bytes of the character of UTF-8 that `text` begins with; 0 when it begins with none.
std::size_t character_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
  const auto is_next = [&](std::size_t at) { return (byte(at) & 0xc0U) == 0x80; };
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xc2 && byte(0) <= 0xdf && is_next(1)) return 2;
  const bool is_low = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);      // longer than need be
  const bool is_outside = (byte(0) == 0xed && byte(1) > 0x9f) || (byte(0) == 0xf4 && byte(1) > 0x8f);  // surrogates; no characters
  if (is_low || is_outside) return 0;
  if ((byte(0) & 0xf0U) == 0xe0 && is_next(1) && is_next(2)) return 3;
  if (byte(0) >= 0xf0 && byte(0) <= 0xf4 && is_next(1) && is_next(2) && is_next(3)) return 4;
  return 0;
}

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

void JsonText::raw(std::string_view content) {
  if (needs_comma_) text_ += ", ";
  text_ += content;
  needs_comma_ = true;
}

void JsonText::quote(std::string_view text) {
  raw("\"");
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const char first = text.front();
    if (bytes == 0) {
      text_ += kReplacement;
    } else if (first == '"' || first == '\\') {
      text_ += '\\';
      text_ += first;
    } else if (static_cast<unsigned char>(first) < 0x20 || first == 0x7f) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      text_ += "\\u00";
      text_ += kDigits[static_cast<unsigned char>(first) >> 4];
      text_ += kDigits[first & 0xf];
    } else {
      text_ += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  text_ += '"';
}

void JsonText::add_number(double number) {
  if (!std::isfinite(number)) return raw("null");
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  raw({digits.data(), static_cast<std::size_t>(end - digits.data())});
}

void JsonText::begin(char bracket) {
  raw({&bracket, 1});
  needs_comma_ = false;
}

void JsonText::end(char bracket) {
  text_ += bracket;
  needs_comma_ = true;
}

}  // namespace gigabar::c
