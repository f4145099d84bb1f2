// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_loss.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "base/errors.hpp"
#include "doctor/gpu_facts.hpp"
#include "platform/pci_config.hpp"

namespace gigabar::doctor {
namespace {

constexpr std::size_t kMaxFallen = 64;

bool is_of_address(char letter) { return std::isxdigit(static_cast<unsigned char>(letter)) != 0 || letter == ':' || letter == '.'; }

// "0000:3b:00.0" of "0000:3b:00.0", "0000:3B:00", "00000000:3b:00.0" and "3b:00.0"; nothing for other words.
std::optional<std::string> address_in(std::string_view word) {
  while (!word.empty() && (word.back() == ':' || word.back() == '.')) word.remove_suffix(1);
  while (!word.empty() && (word.front() == ':' || word.front() == '.')) word.remove_prefix(1);
  std::string whole(word);
  if (whole.find('.') == std::string::npos) whole += ".0";
  const auto address = PciAddress::parse(whole);
  return address ? std::optional(address->to_string()) : std::nullopt;
}

// The first address in a line of the driver's: "NVRM: Xid (PCI:0000:3b:00): 79, ...", "NVRM: GPU 0000:3b:00.0: GPU has fallen off
// the bus.". Behind "PCI:" the digits of an address begin at once.
std::optional<std::string> address_of_line(std::string_view line) {
  for (std::size_t at = 0; at < line.size();) {
    if (!is_of_address(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && is_of_address(line[end])) ++end;
    const std::string_view word = line.substr(at, end - at);
    const bool is_behind_letters = at > 0 && std::isalpha(static_cast<unsigned char>(line[at - 1])) != 0 && word.front() != ':';
    if (!is_behind_letters && std::count(word.begin(), word.end(), ':') >= 1) {
      if (auto address = address_in(word)) return address;
    }
    at = end;
  }
  return {};
}

// "Xid (PCI:0000:3b:00): 79, ..." in lower case: the number of the event that means a lost GPU.
bool is_xid_of_loss(std::string_view line) {
  const std::size_t at = line.find("xid (");
  const std::size_t closed = at == std::string_view::npos ? at : line.find("): ", at);
  if (closed == std::string_view::npos) return false;
  const std::string_view number = line.substr(closed + 3);
  return number.starts_with("79") && (number.size() == 2 || std::isdigit(static_cast<unsigned char>(number[2])) == 0);
}

bool tells_of_loss(const std::string& line) {
  std::string small = line;
  std::transform(small.begin(), small.end(), small.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return small.find("fallen off the bus") != std::string::npos || is_xid_of_loss(small);
}

// A line may leave out the PCI domain or the function, and the function of a GPU need not be 0.
std::string known_address(const std::vector<std::string>& known, const std::string& address) {
  const std::string device = address.substr(0, address.rfind('.'));
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const std::string& one) { return one.starts_with(device + "."); });
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
