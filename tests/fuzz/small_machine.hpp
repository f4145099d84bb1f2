// SPDX-License-Identifier: Apache-2.0
// A constructed machine that never ran: two processors, one GPU and one RoCE adapter below a PCIe switch, with everything that the
// checks read. What tests of hostile input start from.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "platform/driver_answers.hpp"
#include "platform/system_archive.hpp"
#include "unit/platform/document.hpp"

namespace gigabar::test {

class SmallMachine {
 public:
  SmallMachine() {
    document_ = {
        {"format", "gigabar-machine"}, {"version", 1}, {"remark", "constructed, never ran"}, {"date", "2026-01-01T00:00:00Z"}};
    document_["files"] = document_["links"] = document_["devices"] = document_["unreadable"] = nlohmann::json::object();
    document_["folders"] = nlohmann::json::array();
    add_processors();
    add_pci();
    add_adapter();
    add_drivers();
    document_["answers"] = document_of(answers());
  }

  const nlohmann::json& document() const { return document_; }

 private:
  void file(const std::string& path, const std::string& content) { document_["files"][path] = content; }

  void add_processors() {
    const std::string cpu = "/sys/devices/system/cpu", node = "/sys/devices/system/node";
    for (const char* list : {"online", "possible", "present"}) file(cpu + "/" + list, "0-1\n");
    for (const std::string index : {"0", "1"}) {
      const std::string own = index == "0" ? "1\n" : "2\n";
      file(cpu + "/cpu" + index + "/topology/physical_package_id", "0\n");
      file(cpu + "/cpu" + index + "/topology/core_id", index + "\n");
      file(cpu + "/cpu" + index + "/topology/core_cpus", own);
      file(cpu + "/cpu" + index + "/topology/thread_siblings", own);
      file(cpu + "/cpu" + index + "/topology/package_cpus", "3\n");
      file(cpu + "/cpu" + index + "/topology/core_siblings", "3\n");
      file(cpu + "/cpu" + index + "/cpufreq/scaling_governor", "powersave\n");
    }
    file(node + "/online", "0\n");
    file(node + "/possible", "0\n");
    file(node + "/has_memory", "0\n");
    file(node + "/node0/cpumap", "3\n");
    file(node + "/node0/cpulist", "0-1\n");
    file(node + "/node0/distance", "10\n");
    file(node + "/node0/meminfo", "Node 0 MemTotal:  16000000 kB\nNode 0 MemFree:  8000000 kB\n");
    file("/proc/cpuinfo",
         "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nflags\t\t: fpu\n\n"
         "processor\t: 1\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nflags\t\t: fpu\n\n");
    file("/proc/meminfo", "MemTotal: 16000000 kB\nHugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n");
    file("/proc/cmdline", "root=/dev/sda1 intel_iommu=on\n");
    file("/proc/version", "Linux version 6.1.0-test\n");
    file("/proc/sys/kernel/osrelease", "6.1.0-test\n");
    file("/proc/sys/kernel/numa_balancing", "1\n");
    file("/proc/self/status", "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-1\n");
    file("/proc/self/limits",
         "Limit                     Soft Limit           Hard Limit           Units     \n"
         "Max locked memory         65536                65536                bytes     \n");
    file("/proc/kallsyms", "");
    file("/boot/config-6.1.0-test", "CONFIG_PCI_P2PDMA=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\nCONFIG_DMA_SHARED_BUFFER=y\n");
    file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    file("/sys/class/dmi/id/sys_vendor", "Nobody\n");
  }

  // PCI config space of 4096 bytes: PCI Express capability at 0x40, ACS with request redirection at 0x100.
  static std::string config_space() {
    std::string config(4096, '\0');
    config[0x06] = 0x10;  // status: has capabilities
    config[0x34] = 0x40;
    config.replace(0x40, 2, std::string("\x10\x00", 2));
    config.replace(0x48, 2, std::string("\x30\x29", 2));  // relaxed ordering, payloads of 256 bytes, reads of 512
    config.replace(0x100, 4, std::string("\x0d\x00\x01\x00", 4));
    config[0x104] = 0x1f;
    config[0x106] = 0x0c;
    return config;
  }

  void pci(const std::string& path, const char* vendor, const char* device, const char* class_code) {
    const std::string address = path.substr(path.rfind('/') + 1);
    document_["links"]["/sys/bus/pci/devices/" + address] = "../../.." + path.substr(4);
    const std::vector<std::pair<const char*, const char*>> words{{"vendor", vendor},
                                                                 {"device", device},
                                                                 {"class", class_code},
                                                                 {"numa_node", "0"},
                                                                 {"local_cpulist", "0-1"},
                                                                 {"local_cpus", "3"},
                                                                 {"revision", "0x00"},
                                                                 {"enable", "1"},
                                                                 {"current_link_speed", "16.0 GT/s PCIe"},
                                                                 {"current_link_width", "8"},
                                                                 {"max_link_speed", "16.0 GT/s PCIe"},
                                                                 {"max_link_width", "16"},
                                                                 {"subsystem_vendor", vendor},
                                                                 {"subsystem_device", device}};
    for (const auto& [name, value] : words) file(path + "/" + name, std::string(value) + "\n");
    file(path + "/resource",
         "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n0x0000004000000000 0x000000400fffffff 0x000000000014220c\n");
    document_["files"][path + "/config"] = {{"base64", base64_of(config_space())}};
  }

  static std::string base64_of(const std::string& bytes) {
    static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string encoded;
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
      std::uint32_t group = 0;
      for (std::size_t i = at; i < at + 3; ++i) group = group << 8 | (i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U);
      for (std::size_t i = 0; i < 4; ++i) encoded.push_back(at + i <= bytes.size() ? kDigits[group >> (18 - 6 * i) & 63] : '=');
    }
    return encoded;
  }

  void add_pci() {
    pci(switch_.substr(0, switch_.rfind('/')), "0x8086", "0x347a", "0x060400");
    pci(switch_, "0x1000", "0xc030", "0x060400");
    pci(switch_ + "/0000:02:00.0", "0x1000", "0xc030", "0x060400");
    pci(switch_ + "/0000:02:01.0", "0x1000", "0xc030", "0x060400");
    pci(gpu_, "0x10de", "0x2330", "0x030200");
    pci(nic_, "0x15b3", "0x1021", "0x020000");
    for (const auto& [path, group, driver] :
         {std::array<std::string, 3>{gpu_, "17", "nvidia"}, std::array<std::string, 3>{nic_, "18", "mlx5_core"}}) {
      document_["links"][path + "/iommu_group"] = "/sys/kernel/iommu_groups/" + group;
      document_["links"][path + "/driver"] = "/sys/bus/pci/drivers/" + driver;
      document_["folders"].push_back("/sys/bus/pci/drivers/" + driver);
      file("/sys/kernel/iommu_groups/" + group + "/type", "DMA\n");
      document_["links"]["/sys/kernel/iommu_groups/" + group + "/devices/" + path.substr(path.rfind('/') + 1)] = path;
    }
    document_["folders"].push_back("/sys/class/iommu/dmar0");
  }

  void add_adapter() {
    const std::string net = nic_ + "/net/eth0", rdma = nic_ + "/infiniband/mlx5_0", port = rdma + "/ports/1";
    document_["links"]["/sys/class/net/eth0"] = net;
    document_["links"][net + "/device"] = "../../../0000:04:00.0";
    file(net + "/mtu", "1500\n");
    file(net + "/type", "1\n");
    file(net + "/operstate", "up\n");
    document_["unreadable"][net + "/speed"] = "Invalid argument";
    file(net + "/ecn/roce_np/enable/3", "0\n");
    document_["links"]["/sys/class/infiniband/mlx5_0"] = rdma;
    document_["links"][rdma + "/device"] = nic_;
    file(rdma + "/node_type", "1: CA\n");
    file(rdma + "/fw_ver", "28.39.1002\n");
    file(port + "/state", "4: ACTIVE\n");
    file(port + "/phys_state", "5: LinkUp\n");
    file(port + "/rate", "200 Gb/sec (4X HDR)\n");
    file(port + "/link_layer", "Ethernet\n");
    file(port + "/gids/0", "fe80:0000:0000:0000:0211:22ff:fe33:4455\n");
    file(port + "/gids/1", "0000:0000:0000:0000:0000:ffff:c0a8:0001\n");
    for (const std::string index : {"0", "1"}) {
      file(port + "/gid_attrs/types/" + index, "RoCE v2\n");
      file(port + "/gid_attrs/ndevs/" + index, "eth0\n");
    }
    file(port + "/counters/symbol_error", "7\n");
    file(port + "/hw_counters/out_of_sequence", "12\n");
    file(rdma + "/tc/1/traffic_class", "Global tclass=106\n");
    file("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
    file("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
    document_["devices"]["/dev/infiniband/uverbs0"] = device(231, 192);
  }

  static nlohmann::json device(unsigned major, unsigned minor) {
    return {{"mode", 0666}, {"major", major}, {"minor", minor}, {"can_read", true}, {"can_write", true}};
  }

  void add_drivers() {
    file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n");
    file("/proc/driver/nvidia/params", "EnableStreamMemOPs: 0\nRegistryDwords: \"\"\nGrdmaPciTopoCheckOverride: 0\n");
    file("/proc/driver/nvidia/gpus/0000:03:00.0/information", "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-0\nDevice Minor: \t 0\n");
    file("/proc/devices", "Character devices:\n195 nvidia\n511 nvidia-caps-imex-channels\n");
    for (const char* module : {"nvidia", "nvidia_peermem", "gdrdrv", "ib_uverbs", "mlx5_ib"}) {
      file("/sys/module/" + std::string(module) + "/version", "1.0\n");
    }
    document_["devices"]["/dev/nvidia0"] = device(195, 0);
    document_["devices"]["/dev/nvidiactl"] = device(195, 255);
    document_["devices"]["/dev/gdrdrv"] = device(500, 0);
  }

  static DriverAnswers answers() {
    GpuAnswers gpu;
    gpu.pci = "0000:03:00.0";
    gpu.uuid = "GPU-0";
    gpu.name = "NVIDIA H100";
    gpu.cuda_index = 0;
    gpu.cuda_attributes = {{"gpu_direct_rdma", 1}, {"dma_buf", 1}, {"vmm", 1}, {"gpu_direct_rdma_writes_ordering", 200}};
    gpu.bar1_total_bytes = std::uint64_t{1} << 37;
    gpu.bar1_used_bytes = std::uint64_t{1} << 20;
    gpu.is_mig_enabled = false;
    gpu.fabric_state = "not_supported";
    gpu.clocks_event_reasons = 1;
    DriverAnswers answers;
    answers.cuda_version = 13000;
    answers.driver_version = "580.159.04";
    answers.verbs_has_dmabuf = true;
    answers.gpus = {gpu};
    answers.rdma_devices = {{"mlx5_0", {}, {1024}}};
    answers.kernel_log = {"NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus."};
    answers.memlock_bytes = 65536;
    answers.can_lock_memory = false;
    answers.allowed_cpus = "0-1";
    return answers;
  }

  const std::string switch_ = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
  const std::string gpu_ = switch_ + "/0000:02:00.0/0000:03:00.0";
  const std::string nic_ = switch_ + "/0000:02:01.0/0000:04:00.0";
  nlohmann::json document_;
};

}  // namespace gigabar::test
