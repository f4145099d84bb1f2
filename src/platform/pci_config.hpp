// SPDX-License-Identifier: Apache-2.0
// Configuration space of a PCI device: what the bytes of its file "config" in /sys say. Linux gives all of it (256 bytes, or 4096
// of a PCIe device) only to who has CAP_SYS_ADMIN, and the first 64 bytes to everybody else. Source: PCI Express Base
// Specification 6.0, sections 7.5 (header, capabilities), 7.6 (extended ones), 7.7.11 (ACS), 7.9.3 (serial number), 10.5.1 (ATS).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gigabar::inline v0 {

// A capability is there, or the device has none, or the bytes end (or its list is damaged) before that could be told.
template <class Registers>
struct PciCapability {
  std::optional<Registers> registers;
  bool is_hidden = true;  // nobody can tell; never with registers

  explicit operator bool() const noexcept { return registers.has_value(); }
  const Registers* operator->() const noexcept { return &*registers; }
  bool is_absent() const noexcept { return !registers && !is_hidden; }
};

// Device Control of the PCI Express capability, 0x10.
struct PciExpressCapability {
  std::optional<unsigned> payload_bytes;            // that it may send now (MPS); nothing: a reserved value
  std::optional<unsigned> most_read_request_bytes;  // that it may ask for at once (MRRS); nothing: a reserved value
  bool has_relaxed_ordering = false;                // it may set the attribute in what it sends
};

// Access Control Services, 0x000D. Bits of `can` and `control`.
struct PciAcsCapability {
  static constexpr std::uint16_t kRequestRedirect = 1U << 2U;
  static constexpr std::uint16_t kCompletionRedirect = 1U << 3U;

  std::uint16_t can = 0;
  std::uint16_t control = 0;

  bool redirects() const noexcept { return (control & (kRequestRedirect | kCompletionRedirect)) != 0; }
};
std::string acs_text(std::uint16_t bits);  // "SV RR CR UF"; "none"

// Address Translation Services, 0x000F.
struct PciAtsCapability {
  bool is_enabled = false;
};

struct PciConfig {
  std::size_t bytes = 0;  // how many there were
  // Every read gives ones: the device is gone, or held in reset. Its capabilities are hidden.
  bool is_gone = false;

  PciCapability<PciExpressCapability> express;
  PciCapability<PciAcsCapability> acs;
  PciCapability<PciAtsCapability> ats;

  // Nothing for less than the header's 64 bytes. Never looks past the end; lists that loop end.
  static std::optional<PciConfig> parse(std::string_view bytes);
};

// The same bytes without the device's serial number: zeros instead.
std::string without_serial_number(const std::string& bytes);

}  // namespace gigabar::inline v0
