// SPDX-License-Identifier: Apache-2.0
#include "platform/device_nodes.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "driver/system_calls.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::uint32_t kMaxMajor = 0xfff, kMaxMinor = 0xfffff;  // of Linux's dev_t
constexpr std::string_view kMisc = "misc";                       // the driver of all miscellaneous devices

struct Numbered {
  std::uint32_t number = 0;
  std::string name;
};

// Lines of a number and a name: /proc/misc, or the first section of /proc/devices.
std::vector<Numbered> numbered_names(const std::string& list, std::uint32_t most) {
  std::vector<Numbered> found;
  for (const std::string_view line : words_of(list, "\n")) {
    if (line.starts_with("Block")) break;
    const std::vector<std::string_view> words = words_of(line);
    const auto number = words.size() < 2 ? std::nullopt : parse_number<std::uint32_t>(words[0], 0, most);
    if (number) found.push_back({*number, std::string(words[1])});
  }
  return found;
}

// How a node is named, and which driver's it is.
struct Kind {
  std::string_view prefix;
  std::string_view driver;                  // in /proc/devices
  bool is_numbered = false;                 // a number follows, which is the minor number
  std::optional<std::uint32_t> minor = {};  // of a node without a number  NOLINT(readability-redundant-member-init)
};
constexpr std::array<Kind, 9> kKinds{{{"/dev/nvidiactl", "nvidia", false, 255},
                                      {"/dev/nvidia-modeset", "nvidia", false, 254},
                                      {"/dev/nvidia-uvm", "nvidia-uvm", false, 0},
                                      {"/dev/nvidia-uvm-tools", "nvidia-uvm", false, 1},
                                      {"/dev/nvidia-caps/nvidia-cap", "nvidia-caps", true},
                                      {"/dev/nvidia-caps-imex-channels/channel", "nvidia-caps-imex-channels", true},
                                      {"/dev/nvidia", "nvidia", true},
                                      {"/dev/gdrdrv", "gdrdrv", false, 0},
                                      {"/dev/infiniband/rdma_cm", kMisc, false}}};
constexpr std::string_view kVerbsPrefix = "/dev/infiniband/uverbs";
constexpr const char* kVerbsDriver = "infiniband_verbs";

std::optional<std::uint32_t> number_behind(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return {};
  return parse_number<std::uint32_t>(path.substr(prefix.size()), 0, kMaxMinor);
}

// Releases of the driver call their character devices "nvidia-frontend", "nvidia" or "nvidiactl", all with one number.
bool is_name_of(std::string_view driver, std::string_view name) {
  return name == driver || (driver == "nvidia" && (name == "nvidia-frontend" || name == "nvidiactl"));
}

NodeDriver driver_named(const SystemFiles& files, std::string_view name, std::optional<std::uint32_t> minor) {
  NodeDriver driver{std::string(name), false, {}, minor};
  const FileText devices = files.read("/proc/devices");
  driver.is_told = devices.is_present();
  for (const auto& [major, its_name] : numbered_names(devices.content, kMaxMajor)) {
    const bool is_known = std::find(driver.majors.begin(), driver.majors.end(), major) != driver.majors.end();
    if (is_name_of(name, its_name) && !is_known) driver.majors.push_back(major);
  }
  return driver;
}

// "231:192", as sysfs has it.
void take_number(NodeDriver& driver, const std::optional<std::string>& word) {
  if (!word) return;
  const std::size_t colon = std::min(word->find(':'), word->size());
  const auto major = parse_number<std::uint32_t>(std::string_view(*word).substr(0, colon), 0, kMaxMajor);
  const auto minor = parse_number<std::uint32_t>(std::string_view(*word).substr(std::min(colon + 1, word->size())), 0, kMaxMinor);
  if (!major || !minor) return;
  driver.is_told = true;
  driver.majors = {*major};
  driver.minor = minor;
}

NodeDriver misc_driver(const SystemFiles& files, const std::string& name) {
  NodeDriver driver = driver_named(files, kMisc, {});
  driver.name = name;
  take_number(driver, files.word(text("/sys/class/misc/", name, "/dev")));
  if (driver.minor) return driver;
  const FileText list = files.read("/proc/misc");
  const std::vector<Numbered> devices = numbered_names(list.content, kMaxMinor);
  if (const auto found = std::ranges::find(devices, name, &Numbered::name); found != devices.end()) driver.minor = found->number;
  if (list.is_present() && !driver.minor) driver.majors.clear();  // there is no such device
  return driver;
}

}  // namespace

std::optional<NodeDriver> driver_of_node(const SystemFiles& files, const std::string& path) {
  if (number_behind(path, kVerbsPrefix)) {
    NodeDriver driver = driver_named(files, kVerbsDriver, {});
    take_number(driver, files.word(text("/sys/class/infiniband_verbs/", path.substr(path.rfind('/') + 1), "/dev")));
    return driver;
  }
  for (const Kind& kind : kKinds) {
    const auto number = kind.is_numbered ? number_behind(path, kind.prefix) : kind.minor;
    if (kind.is_numbered ? !number.has_value() : path != kind.prefix) continue;
    return kind.driver == kMisc ? misc_driver(files, path.substr(path.rfind('/') + 1)) : driver_named(files, kind.driver, number);
  }
  return {};
}

bool is_number_of(const NodeDriver& driver, const NodeFacts& facts) {
  if (!driver.is_told) return true;
  const bool has_major = std::find(driver.majors.begin(), driver.majors.end(), facts.device_major) != driver.majors.end();
  return has_major && (!driver.minor || *driver.minor == facts.device_minor);
}

std::optional<int> try_to_open(const std::string& path, const NodeFacts& facts, const std::optional<NodeDriver>& driver) {
  const bool may_be_opened = facts.kind == NodeKind::character_device && facts.can_read && facts.can_write;
  if (!may_be_opened || !driver || !driver->is_told || !is_number_of(*driver, facts)) return {};
  errno = 0;
  const int descriptor = system_calls().open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) return errno;
  system_calls().close(descriptor);
  return 0;
}

std::string owner_of_major(const SystemFiles& files, std::uint32_t major) {
  const std::vector<Numbered> drivers = numbered_names(files.read("/proc/devices").content, kMaxMajor);
  const auto found = std::ranges::find(drivers, major, &Numbered::number);
  return found == drivers.end() ? std::string() : found->name;
}

}  // namespace gigabar::inline v0
