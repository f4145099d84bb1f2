// SPDX-License-Identifier: Apache-2.0
// Configuration space of a PCI device: what the bytes of its file "config" in /sys say. Linux gives all of it (256 bytes, or 4096
// of a PCIe device) only to who has CAP_SYS_ADMIN, and the first 64 bytes to everybody else. Source: PCI Express Base
// Specification 6.0, sections 7.5 (header, capabilities), 7.6 (extended ones), 7.7.11 (ACS), 10.5.1 (ATS).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gigabar {

// A capability is there, or the device has none, or the bytes end (or its list is damaged) before that could be told.
template <class Registers>
struct PciCapability {
  std::optional<Registers> registers;
  bool is_hidden = true;  // nobody can tell; never with registers

  explicit operator bool() const noexcept { return registers.has_value(); }
  const Registers* operator->() const noexcept { return &*registers; }
  bool is_absent() const noexcept { return !registers && !is_hidden; }
};

enum class PciPortType : std::uint8_t {
  endpoint = 0,
  legacy_endpoint = 1,
  root_port = 4,
  upstream_port = 5,
  downstream_port = 6,
  bridge_to_pci = 7,
  bridge_from_pci = 8,
  integrated_endpoint = 9,
  event_collector = 10,
};
std::string_view name_of(PciPortType type) noexcept;  // "root port"

// The PCI Express capability, 0x10. Registers that its version does not have are nothing.
struct PciExpressCapability {
  unsigned offset = 0;  // bytes from the start of the space
  unsigned version = 0;
  PciPortType type = PciPortType::endpoint;

  std::optional<unsigned> most_payload_bytes;       // that the device can take in one packet
  std::optional<unsigned> payload_bytes;            // that it may send now (MPS); nothing: a reserved value
  std::optional<unsigned> most_read_request_bytes;  // that it may ask for at once (MRRS); nothing: a reserved value
  bool has_relaxed_ordering = false;                // it may set the attribute in what it sends
  bool has_no_snoop = false;
  bool has_extended_tags = false;

  unsigned most_link_speed = 0;  // 1: 2.5 GT/s ... 6: 64 GT/s
  unsigned most_link_width = 0;  // lanes
  unsigned link_speed = 0;       // now
  unsigned link_width = 0;

  std::optional<bool> can_route_atomics;         // a switch or a root port
  std::optional<bool> can_complete_atomics;      // of 32 or 64 bits
  std::optional<bool> has_atomics;               // it may send them
  std::optional<bool> can_complete_10_bit_tags;  // more than 256 reads under way
  std::optional<bool> has_10_bit_tags;
};

// Access Control Services, 0x000D. Bits of `can` and `control`.
struct PciAcsCapability {
  static constexpr std::uint16_t kSourceValidation = 1U << 0U;
  static constexpr std::uint16_t kTranslationBlocking = 1U << 1U;
  static constexpr std::uint16_t kRequestRedirect = 1U << 2U;
  static constexpr std::uint16_t kCompletionRedirect = 1U << 3U;
  static constexpr std::uint16_t kUpstreamForwarding = 1U << 4U;
  static constexpr std::uint16_t kEgressControl = 1U << 5U;
  static constexpr std::uint16_t kDirectTranslated = 1U << 6U;

  unsigned offset = 0;
  std::uint16_t can = 0;
  std::uint16_t control = 0;

  bool redirects() const noexcept { return (control & (kRequestRedirect | kCompletionRedirect)) != 0; }
};
std::string acs_text(std::uint16_t bits);  // "SV RR CR UF"; "none"

// Address Translation Services, 0x000F.
struct PciAtsCapability {
  unsigned offset = 0;
  bool is_enabled = false;
};

// Advanced Error Reporting, 0x0001.
struct PciAerCapability {
  unsigned offset = 0;
};

struct PciConfig {
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint32_t class_code = 0;  // 0x030200: base class, subclass, interface
  std::uint8_t header_type = 0;  // 0: device, 1: bridge
  std::size_t bytes = 0;         // how many there were

  bool is_full = false;           // the first 256 bytes are there: every ordinary capability
  bool is_extended_full = false;  // all 4096 are there: every extended capability
  // Every read gives ones: the device is gone, or held in reset. Its capabilities are hidden.
  bool is_gone = false;

  PciCapability<PciExpressCapability> express;
  PciCapability<PciAcsCapability> acs;
  PciCapability<PciAtsCapability> ats;
  PciCapability<PciAerCapability> aer;

  // Nothing for less than the header's 64 bytes. Never looks past the end; lists that loop end.
  static std::optional<PciConfig> parse(std::string_view bytes);
};

}  // namespace gigabar
