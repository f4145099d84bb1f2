// SPDX-License-Identifier: Apache-2.0
// Tar files made by hand, also such as no program writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace gigabar::test {

// Source: POSIX, pax, "ustar Interchange Format"; GNU tar's manual, "Basic Tar Format".
class TarFile {
 public:
  TarFile& file(std::string_view path, std::string_view content) { return entry(path, '0', content.size()).content(content); }
  TarFile& link(std::string_view path, std::string_view target) { return entry(path, '2', 0, target); }
  TarFile& folder(std::string_view path) { return entry(path, '5', 0); }

  // A header alone. A size of more than 33 bits is written as GNU does.
  TarFile& entry(std::string_view path, char type, std::uint64_t bytes, std::string_view target = {}) {
    std::string header(512, '\0');
    header.replace(0, std::min<std::size_t>(path.size(), 100), path.substr(0, 100));
    header.replace(100, 8, std::string_view("0000644\0", 8));
    header.replace(108, 8, std::string_view("0000000\0", 8));
    header.replace(116, 8, std::string_view("0000000\0", 8));
    header.replace(124, 12, size_field(bytes));
    header.replace(136, 12, std::string_view("00000000000\0", 12));
    header[156] = type;
    header.replace(157, std::min<std::size_t>(target.size(), 100), target.substr(0, 100));
    header.replace(257, 8, std::string_view("ustar  \0", 8));
    return block(std::move(header));
  }
  // The block with its checksum.
  TarFile& block(std::string header) {
    header.replace(148, 8, 8, ' ');
    unsigned sum = 0;
    for (const char byte : header) sum += static_cast<unsigned char>(byte);
    char digits[8] = {};
    std::snprintf(digits, sizeof digits, "%06o", sum);
    header.replace(148, 7, digits, 7);
    bytes_ += header;
    return *this;
  }
  TarFile& content(std::string_view content) {
    bytes_ += content;
    bytes_.append((512 - content.size() % 512) % 512, '\0');
    return *this;
  }
  // With the two empty blocks at the end.
  std::string take() const { return bytes_ + std::string(1024, '\0'); }

 private:
  static std::string size_field(std::uint64_t bytes) {
    char octal[16] = {};
    if (bytes >> 33 == 0) {
      std::snprintf(octal, sizeof octal, "%011llo", static_cast<unsigned long long>(bytes));
      return {octal, 12};
    }
    std::string binary(12, '\0');
    binary[0] = static_cast<char>(0x80);
    for (std::size_t i = 0; i < 8; ++i) binary[11 - i] = static_cast<char>(bytes >> (8 * i));
    return binary;
  }

  std::string bytes_;
};

}  // namespace gigabar::test
