// SPDX-License-Identifier: Apache-2.0
// Bytes of a PCI device's configuration space, as a test wants them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gigabar::test {

class ConfigSpace {
 public:
  explicit ConfigSpace(std::uint16_t vendor = 0x10de, std::uint16_t device = 0x2330) {
    word(0x00, vendor).word(0x02, device);
    byte(0x34, 0).word(0x06, 0);
  }

  ConfigSpace& byte(std::size_t at, std::uint8_t value) {
    bytes_.at(at) = static_cast<char>(value);
    return *this;
  }
  ConfigSpace& word(std::size_t at, std::uint16_t value) {
    return byte(at, static_cast<std::uint8_t>(value & 0xffU)).byte(at + 1, static_cast<std::uint8_t>(value >> 8U));
  }
  ConfigSpace& double_word(std::size_t at, std::uint32_t value) {
    return word(at, static_cast<std::uint16_t>(value & 0xffffU)).word(at + 2, static_cast<std::uint16_t>(value >> 16U));
  }

  // An entry of the ordinary list; the first one begins it. `next` 0: the last.
  ConfigSpace& capability(std::uint8_t at, std::uint8_t id, std::uint8_t next = 0) {
    if (bytes_.at(0x34) == 0) {
      byte(0x34, at).word(0x06, 0x0010);
    }
    return byte(at, id).byte(at + 1U, next);
  }
  // An entry of the extended list; the first has to lie at 0x100.
  ConfigSpace& extended(std::size_t at, std::uint16_t id, std::uint16_t next = 0, std::uint8_t version = 1) {
    return double_word(at, std::uint32_t{id} | std::uint32_t{version} << 16U | std::uint32_t{next} << 20U);
  }

  // The PCI Express capability at 0x60, of version 2. Type 0: endpoint, 4: root port, 5: upstream port, 6: downstream port.
  // `control` is the Device Control register: relaxed ordering in bit 4, payload in bits 7:5, read request in bits 14:12.
  ConfigSpace& express(unsigned type = 0, std::uint16_t control = 0x5030) {
    capability(0x60, 0x10);
    word(0x62, static_cast<std::uint16_t>(2U | type << 4U));
    return word(0x68, control);
  }
  // Access Control Services, as the only extended capability.
  ConfigSpace& acs(std::uint16_t control, std::uint16_t can = 0x7f) {
    return extended(0x100, 0x000d).word(0x104, can).word(0x106, control);
  }
  ConfigSpace& ats(bool is_enabled = false) { return extended(0x100, 0x000f).word(0x106, is_enabled ? 0x8000 : 0); }

  // The first 64 bytes are what a user without rights is given.
  std::string bytes(std::size_t count = 4096) const { return bytes_.substr(0, count); }

 private:
  std::string bytes_ = std::string(4096, '\0');
};

}  // namespace gigabar::test
