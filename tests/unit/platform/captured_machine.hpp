// SPDX-License-Identifier: Apache-2.0
// A machine made of files and drivers' answers, opened from an archive as a user's would be.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gigabar/machine.hpp"
#include "gigabar/topology.hpp"
#include "platform/driver_answers.hpp"
#include "support/temporary_folder.hpp"
#include "unit/platform/document.hpp"

namespace gigabar::test {

class CapturedMachine {
 public:
  DriverAnswers answers;

  void file(const std::string& path, std::string content) { files_[path] = std::move(content); }
  void unreadable(const std::string& path) { unreadable_[path] = "permission denied"; }
  void link(const std::string& path, std::string target) { links_[path] = std::move(target); }

  // CPUs in pairs: a package and a NUMA node for each two.
  void cpus(int count) {
    const std::string all = "0-" + std::to_string(count - 1) + "\n";
    for (const char* list : {"online", "possible", "present"}) file(std::string("/sys/devices/system/cpu/") + list, all);
    for (int cpu = 0; cpu < count; ++cpu) {
      const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
      file(folder + "physical_package_id", std::to_string(cpu / 2) + "\n");
      file(folder + "core_id", std::to_string(cpu % 2) + "\n");
      for (const char* name : {"thread_siblings", "core_cpus"}) file(folder + name, mask(1ULL << cpu));
      for (const char* name : {"core_siblings", "package_cpus"}) file(folder + name, mask(3ULL << (cpu / 2 * 2)));
    }
    file("/sys/devices/system/node/online", "0-" + std::to_string(count / 2 - 1) + "\n");
    for (int node = 0; node < count / 2; ++node) {
      this->node(node, mask(3ULL << (node * 2)), std::to_string(node * 2) + "-" + std::to_string(node * 2 + 1));
    }
  }
  void node(int number, const std::string& cpumap, const std::string& cpulist) {
    const std::string name = std::to_string(number), folder = "/sys/devices/system/node/node" + name + "/";
    file(folder + "cpumap", cpumap);
    file(folder + "cpulist", cpulist + "\n");
    file(folder + "meminfo", "Node " + name + " MemTotal:       1048576 kB\nNode " + name + " MemFree: 1 kB\n");
  }

  // `place` is "pci0000:3a/0000:3a:01.0/0000:3b:00.0".
  void pci(const std::string& place, const std::string& class_code, const std::string& vendor, int numa_node,
           const std::string& link_now = "32.0 GT/s PCIe", const std::string& width = "16") {
    const std::string address = place.substr(place.rfind('/') + 1);
    const std::string folder = "/sys/devices/" + place + "/";
    link("/sys/bus/pci/devices/" + address, "../../../devices/" + place);
    file(folder + "class", class_code + "\n");
    file(folder + "vendor", vendor + "\n");
    file(folder + "device", "0x1234\n");
    file(folder + "numa_node", std::to_string(numa_node) + "\n");
    file(folder + "current_link_speed", link_now + "\n");
    file(folder + "current_link_width", width + "\n");
    file(folder + "max_link_speed", "32.0 GT/s PCIe\n");
    file(folder + "max_link_width", "16\n");
  }
  // An RDMA device below `place`, with one port; empty: below no PCI function.
  void rdma(const std::string& name, const std::string& place, const std::string& state = "4: ACTIVE",
            const std::string& rate = "400 Gb/sec (4X NDR)") {
    const std::string real =
        place.empty() ? "/sys/devices/virtual/infiniband/" + name : "/sys/devices/" + place + "/infiniband/" + name;
    link("/sys/class/infiniband/" + name, "../.." + real.substr(4));
    if (!place.empty()) link(real + "/device", "../../../" + place.substr(place.rfind('/') + 1));
    file(real + "/ports/1/state", state + "\n");
    file(real + "/ports/1/rate", rate + "\n");
    file(real + "/ports/1/link_layer", "Ethernet\n");
  }
  void gid(const std::string& device, int index, const std::string& value, const std::string& type, const std::string& netdev) {
    const std::string port = "/sys/class/infiniband/" + device + "/ports/1/";
    const std::string real = resolved(port);
    file(real + "gids/" + std::to_string(index), value + "\n");
    if (!type.empty()) file(real + "gid_attrs/types/" + std::to_string(index), type + "\n");
    if (!netdev.empty()) file(real + "gid_attrs/ndevs/" + std::to_string(index), netdev + "\n");
  }
  // `below` is the folder of the device that it belongs to, below /sys/devices; empty: none.
  void net(const std::string& name, const std::string& below, const std::string& state = "up", const std::string& speed = "") {
    const std::string real = below.empty() ? "/sys/devices/virtual/net/" + name : "/sys/devices/" + below + "/net/" + name;
    link("/sys/class/net/" + name, "../.." + real.substr(4));
    if (!below.empty()) link(real + "/device", "../../../" + below.substr(below.rfind('/') + 1));
    file(real + "/operstate", state + "\n");
    file(real + "/mtu", "1500\n");
    if (!speed.empty()) file(real + "/speed", speed + "\n");
  }
  void gpu_answers(const std::string& address, int cuda_index, std::vector<nvml::NvLink> nvlinks = {}) {
    GpuAnswers gpu;
    gpu.pci = address;
    gpu.cuda_index = cuda_index;
    gpu.uuid = "GPU-" + address;
    gpu.name = "NVIDIA H200";
    gpu.nvlinks = std::move(nvlinks);
    answers.gpus.push_back(std::move(gpu));
  }

  Machine open() const {
    folder_.write("machine.json", nlohmann::json{{"format", "gigabar-machine"},
                                                 {"version", 1},
                                                 {"remark", "constructed"},
                                                 {"date", "2026-01-01T00:00:00Z"},
                                                 {"files", files_},
                                                 {"unreadable", unreadable_},
                                                 {"links", links_},
                                                 {"answers", document_of(answers)}}
                                      .dump());
    auto machine = Machine::open(folder_.path() + "/machine.json");
    if (!machine) throw std::runtime_error(machine.error().message());
    return std::move(machine).value();
  }
  Topology topology() const {
    auto found = discover_topology(open());
    if (!found) throw std::runtime_error(found.error().message());
    return std::move(found).value();
  }

 private:
  static std::string mask(unsigned long long bits) {
    std::string digits;
    for (; bits != 0; bits >>= 4) digits.insert(digits.begin(), "0123456789abcdef"[bits & 15]);
    return (digits.empty() ? "0" : digits) + "\n";
  }
  // A path below a link of a class, with the link followed: an archive's files lie where they really are.
  std::string resolved(const std::string& path) const {
    for (const auto& [from, target] : links_) {
      if (path.starts_with(from + "/")) return "/sys" + target.substr(5) + path.substr(from.size());
    }
    return path;
  }

  std::map<std::string, std::string> files_, unreadable_, links_;
  TemporaryFolder folder_;
};

}  // namespace gigabar::test
