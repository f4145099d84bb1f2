// SPDX-License-Identifier: Apache-2.0
#include "platform/fingerprint.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/errors.hpp"
#include "base/fnv.hpp"
#include "base/hexadecimal.hpp"
#include "platform/nvidia.hpp"
#include "platform/roots.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::size_t kMaxTextBytes = 200;
constexpr std::size_t kMaxNics = 64;

// What can be written to a file and be read again.
std::string printable(std::string text) {
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e; });
  return text.substr(0, kMaxTextBytes);
}

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return printable(line);
}

std::vector<std::string> nics() {
  std::vector<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator devices(platform_roots().sys + "/class/infiniband", error), end;
  for (; !error && devices != end && found.size() < kMaxNics; devices.increment(error)) {
    found.push_back(printable(devices->path().filename().string()) + " " + first_line(devices->path() / "node_guid"));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string list_text(const std::vector<std::string>& parts) { return parts.empty() ? "none" : joined(parts); }

}  // namespace

std::string processor_name() {
  std::ifstream info(platform_roots().proc + "/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return printable(line.substr(colon + 2));
  }
  utsname system{};
  return ::uname(&system) == 0 ? system.machine : "";
}

std::string MachineFingerprint::digits() const {
  constexpr std::string_view kEnd = "\xff";  // no letter of a part
  std::uint64_t hash = fnv1a(kEnd, fnv1a(driver_version, fnv1a(kEnd, fnv1a(processor))));
  for (const std::string& nic : nics) hash = fnv1a(kEnd, fnv1a(nic, hash));
  return hexadecimal_text(hash, 16);
}

std::string MachineFingerprint::difference(const MachineFingerprint& other) const {
  if (processor != other.processor) return text("processor '", processor, "', not '", other.processor, "'");
  if (driver_version != other.driver_version) return text("NVIDIA driver '", driver_version, "', not '", other.driver_version, "'");
  if (nics != other.nics) return text("RDMA devices ", list_text(nics), ", not ", list_text(other.nics));
  return {};
}

MachineFingerprint machine_fingerprint() { return {processor_name(), printable(nvidia_driver_version()), nics()}; }

}  // namespace gigabar::inline v0
