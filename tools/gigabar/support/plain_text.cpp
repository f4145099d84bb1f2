// SPDX-License-Identifier: Apache-2.0
#include "support/plain_text.hpp"

#include <algorithm>
#include <cstdint>

#include "base/options.hpp"

namespace gigabar::tool {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: no UTF-8 begins here
};

// The character that `text` (not empty) begins with. Overlong forms, surrogates and codes above 10FFFF are no UTF-8 (RFC 3629).
Character first_character(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xF0 ? 4 : (first >= 0xE0 ? 3 : 2);
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
  std::uint32_t code = first & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    code = (code << 6U) | (byte(i) & 0x3FU);
  }
  const bool is_overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (is_overlong || is_surrogate || code > 0x10FFFF) return {};
  return {code, bytes};
}

// C0 and C1 controls, DEL, and the format characters that turn or split a line (Unicode UAX #9, UAX #14).
bool is_harmful(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || (code >= 0x200B && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF || code == 0x061C;
}

void append_line(std::string& lines, std::string_view line, std::size_t width, std::size_t indent) {
  const std::string margin(indent + std::min(line.find_first_not_of(' '), line.size()), ' ');
  std::string current;
  for (const std::string_view word : words_of(line, " ")) {
    if (!current.empty() && margin.size() + current.size() + 1 + word.size() > width) {
      lines += margin + current + "\n";
      current.clear();
    }
    if (!current.empty()) current += ' ';
    current += word;
  }
  lines += current.empty() ? "\n" : margin + current + "\n";
}

}  // namespace

std::string plain(std::string_view text, std::size_t most_bytes) {
  std::string result;
  while (!text.empty()) {
    const Character character = first_character(text);
    const bool is_kept = character.bytes > 0 && !is_harmful(character.code);
    const std::size_t added = is_kept ? character.bytes : 1;
    if (result.size() + added > most_bytes) return result + "...";
    const bool is_space = text.front() == '\n' || text.front() == '\t';
    result += is_kept ? text.substr(0, character.bytes) : (is_space ? " " : "?");
    text.remove_prefix(std::max<std::size_t>(character.bytes, 1));
  }
  return result;
}

std::string replaced(std::string_view text, std::initializer_list<std::pair<char, std::string_view>> words) {
  std::string result;
  for (const char& letter : text) {
    const auto* const found = std::find_if(words.begin(), words.end(), [letter](const auto& each) { return each.first == letter; });
    result += found == words.end() ? std::string_view(&letter, 1) : found->second;
  }
  return result;
}

std::string csv_quoted(std::string_view text) { return '"' + replaced(text, {{'"', "\"\""}}) + '"'; }

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    append_line(lines, text.substr(0, end), width, indent);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace gigabar::tool
