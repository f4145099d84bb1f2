// SPDX-License-Identifier: Apache-2.0
// GPUs that were lost while the machine ran.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "doctor/gpu_facts.hpp"
#include "platform/pci_config.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::size_t kMaxFallen = 64;

// "0000:3b:00.0" of "0000:3b:00.0", "0000:3B:00", "00000000:3b:00.0" and "3b:00.0"; nothing for other words.
std::optional<std::string> address_in(std::string_view word) {
  std::string whole(trimmed(word, ":."));
  if (whole.find('.') == std::string::npos) whole += ".0";
  const auto address = PciAddress::parse(whole);
  return address ? std::optional(address->to_string()) : std::nullopt;
}

// The first address in a line of the driver's: "NVRM: Xid (PCI:0000:3b:00): 79, ...", "NVRM: GPU 0000:3b:00.0: GPU has fallen off
// the bus.". Behind "PCI:" the digits of an address begin at once.
std::optional<std::string> address_of_line(std::string_view line) {
  constexpr std::string_view kOfAddress = "0123456789abcdefABCDEF:.";
  std::size_t end = 0;
  for (std::size_t at = line.find_first_of(kOfAddress); at != std::string_view::npos; at = line.find_first_of(kOfAddress, end)) {
    end = std::min(line.find_first_not_of(kOfAddress, at), line.size());
    const std::string_view word = line.substr(at, end - at);
    const bool is_behind_letters = at > 0 && std::isalpha(static_cast<unsigned char>(line[at - 1])) != 0 && word.front() != ':';
    if (is_behind_letters || word.find(':') == std::string_view::npos) continue;
    if (auto address = address_in(word)) return address;
  }
  return {};
}

bool tells_of_loss(const std::string& line) {
  constexpr std::uint64_t kOffTheBus = 79;
  return lower(line).find("fallen off the bus") != std::string::npos || xid_in(line) == kOffTheBus;
}

// A line may leave out the PCI domain or the function, and the function of a GPU need not be 0.
std::string known_address(const std::vector<std::string>& known, const std::string& address) {
  const std::string device = address.substr(0, address.rfind('.'));
  const auto found = std::ranges::find_if(known, [&](const std::string& one) { return one.starts_with(device + "."); });
  return found == known.end() ? address : *found;
}

}  // namespace

std::string FallenGpu::statement() const {
  if (address.empty()) return "a GPU has fallen off the bus, as the kernel's log says without naming it";
  if (is_silent && !log_line.empty())
    return "this GPU has fallen off the bus: the kernel's log says so, and the device does not answer";
  if (is_silent)
    return "this GPU does not answer: its configuration space reads all ones, as after it has fallen off the bus or lost its power";
  return "this GPU has fallen off the bus since the machine started, as the kernel's log says";
}

bool is_silent(const Patient& patient, const std::string& address) {
  const FileText content = patient.files.read("/sys/bus/pci/devices/" + address + "/config");
  if (!content.is_present()) return false;
  const auto config = PciConfig::parse(content.content);
  return config && config->is_gone;
}

std::vector<FallenGpu> fallen_gpus(const Patient& patient) {
  std::map<std::string, FallenGpu> fallen;
  const std::vector<std::string> known = gpus_on_pci(patient);
  for (const std::string& address : known) {
    if (fallen.size() < kMaxFallen && is_silent(patient, address)) fallen[address] = {address, true, {}};
  }
  for (const std::string& line : patient.answers.kernel_log.value_or(std::vector<std::string>{})) {
    if (!tells_of_loss(line)) continue;
    const auto named = address_of_line(line);
    const std::string address = named ? known_address(known, *named) : std::string();
    if (fallen.size() >= kMaxFallen && !fallen.contains(address)) continue;
    FallenGpu& gpu = fallen[address];
    gpu.address = address;
    gpu.log_line = line;
  }
  std::vector<FallenGpu> list;
  for (auto& [address, gpu] : fallen) list.push_back(std::move(gpu));
  return list;
}

}  // namespace gigabar::doctor
