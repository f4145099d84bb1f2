// SPDX-License-Identifier: Apache-2.0
#include "doctor/words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/errors.hpp"

namespace gigabar::doctor {

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string lower(std::string_view mixed) {
  std::string small(mixed);
  std::ranges::transform(small, small.begin(), [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return small;
}

std::optional<std::string> field_of(std::string_view content, std::string_view name) {
  while (!content.empty()) {
    std::string_view line = next_line(content);
    if (!line.starts_with(name)) continue;
    line = trimmed(line.substr(name.size()));
    return printable(line.substr(line.starts_with(':') ? 1 : 0));
  }
  return {};
}

std::optional<Version> version_of(std::string_view text) {
  Version version;
  const char* const end = text.data() + text.size();
  const auto major = std::from_chars(text.data(), text.data() + text.size(), version.major);
  if (major.ec != std::errc{} || major.ptr == end || *major.ptr != '.') return {};
  if (std::from_chars(major.ptr + 1, end, version.minor).ec != std::errc{}) return {};
  return version;
}

std::string printable(std::string_view text, std::size_t most) {
  text = trimmed(text, std::string_view(" \t\r\n\v\f\0", 7));
  std::string line(text.substr(0, most));
  for (char& letter : line) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte < 0x20 || byte == 0x7f) letter = ' ';
    if (byte >= 0x80) letter = '?';  // a binary file's bytes are no characters of any encoding that the reader has
  }
  return text.size() > most ? line + "..." : line;
}

std::string value_of(const FileText& file) {
  if (file.is_present()) return printable(file.content);
  if (file.state == FileState::missing) return "missing";
  return file.reason.empty() ? "not readable" : file.reason;
}

std::string yes_or_no(const std::optional<bool>& fact) { return !fact ? "not told" : *fact ? "yes" : "no"; }

std::string list_text(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) list += text(i == 0 ? "" : i + 1 == words.size() ? " and " : ", ", words[i]);
  return list;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20, kGiB = std::uint64_t{1} << 30;
  const std::uint64_t unit = bytes >= kGiB ? kGiB : kMiB;
  const std::uint64_t tenth = bytes % unit * 10 / unit;
  return text(bytes / unit, tenth == 0 ? "" : text('.', tenth), unit == kGiB ? " GiB" : " MiB");
}

std::string rounded(double number, int digits) {
  std::array<char, 400> line{};  // as long as the longest double
  std::snprintf(line.data(), line.size(), "%.*f", digits, std::isfinite(number) ? number : 0.0);
  return line.data();
}

}  // namespace gigabar::doctor
