// SPDX-License-Identifier: Apache-2.0
// Presence is not function. For every check of the program's list: a machine on which the thing that the check looks at is there
// and does not do what it is there for, and the check must not be content; or a sentence why there is no such machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <string>

#include "gigabar/doctor.hpp"
#include "unit/doctor/pci_machines.hpp"

namespace gigabar::test {
namespace {

using Build = std::function<TestPatient()>;

struct Case {
  const char* machine = "";  // what is there and does not work
  Build build;
  const char* statement = "";  // part of what the check says
  const char* why_none = nullptr;
};

constexpr const char* kOtherGpu = "0000:5d:00.0";

// A GPU with its driver and an adapter below one switch, and what the driver says of itself.
TestPatient whole() {
  TestPatient machine = one_switch();
  machine.file("/proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n");
  machine.file("/proc/driver/nvidia/gpus/" + kGpu + "/information", "Bus Type: \t PCIe\nDevice Minor: \t 0\n");
  machine.file("/proc/driver/nvidia/params", "EnableStreamMemOPs: 1\nRegistryDwords: \"PeerMappingOverride=1;\"\n");
  machine.file("/proc/devices",
               "Character devices:\n 10 misc\n195 nvidia\n231 infiniband_verbs\n236 gdrdrv\n498 nvidia-caps-imex-channels\n"
               "509 nvidia-uvm\n");
  machine.file("/sys/module/gdrdrv/version", "2.5\n").file("/sys/module/nvidia_peermem/version", "580.95.05\n");
  machine.file("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n")
      .file("/sys/class/infiniband_verbs/uverbs0/dev", "231:192\n");
  machine.file("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
  machine.file("/sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
  machine.file("/proc/sys/kernel/osrelease", "6.1.0\n");
  machine.file("/boot/config-6.1.0", "CONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n");
  machine.device("/dev/nvidiactl", true, true, 195, 255).device("/dev/nvidia0", true, true, 195, 0);
  machine.device("/dev/nvidia-uvm", true, true, 509, 0).device("/dev/gdrdrv", true, true, 236, 0);
  machine.device("/dev/infiniband/uverbs0", true, true, 231, 192).device("/dev/infiniband/rdma_cm", true, true, 10, 58);
  machine.answers.verbs_has_dmabuf = true;
  machine.answers.rdma_devices = {{"mlx5_0", {}, {4096}}};
  machine.answers.kernel_log = std::vector<std::string>{};
  return machine;
}

Build with(const std::function<void(TestPatient&)>& change) {
  return [change] {
    TestPatient machine = whole();
    change(machine);
    return machine;
  };
}

Build with_answers(const std::function<void(GpuAnswers&)>& change) {
  return with([change](TestPatient& machine) { change(machine.answers.gpus.at(0)); });
}

void give_translation(TestPatient& machine) {
  machine.folder("/sys/class/iommu/dmar0");
  machine.file("/sys/kernel/iommu_groups/12/type", "DMA\n");
  machine.link("/sys/devices/pci0000:3a/" + kRoot + "/" + kUpper + "/" + kGpuPort + "/" + kGpu + "/iommu_group",
               "/sys/kernel/iommu_groups/12");
}

// A coherent GPU and the DMA function of a NIC below one bridge, in groups of their own.
TestPatient with_apart_groups() {
  TestPatient machine;
  machine.file("/proc/cpuinfo", kArm);
  const int gpu = machine.gpu(kGpu, {kRoot, kUpper, kGpuPort});
  machine.topology.gpus.at(static_cast<std::size_t>(gpu)).is_coherent = true;
  machine.pci("0000:3f:00.0", {kRoot, kUpper, kNicPort}, 0x080100);
  int group = 1;
  for (const std::string& path : {kGpuPort + "/" + kGpu, kNicPort + "/0000:3f:00.0"}) {
    const std::string folder = "/sys/kernel/iommu_groups/" + std::to_string(group++);
    machine.folder(folder);
    machine.link("/sys/devices/pci0000:3a/" + kRoot + "/" + kUpper + "/" + path + "/iommu_group", folder);
  }
  return machine;
}

void make_roce(TestPatient& machine, const std::string& gid) {
  RdmaPort& port = machine.topology.nics.at(0).ports.at(0);
  port.link_layer = "Ethernet";
  port.gids = {{3, gid, "RoCE v2", "eth0"}};
  machine.topology.nics.at(0).net_devices = {{"eth0", "up", 1500, 400.0}};
}

constexpr const char* kProbe = "it does the thing itself; its failures are played in probes_test.cpp";

const std::map<std::string, Case>& cases() {
  static const auto* const all = new std::map<std::string, Case>{
      {"drv.loaded",
       {"a node of the driver has the number of an earlier start",
        with([](TestPatient& machine) { machine.device("/dev/nvidia-uvm", true, true, 511, 0); }), "is stale"}},
      {"drv.flavour",
       {"a driver that exports no memory", with([](TestPatient& machine) {
          machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n");
        }),
        "cannot be exported"}},
      {"drv.gpus",
       {"the driver has a GPU that does not answer",
        with([](TestPatient& machine) { machine.pci_file(kGpu, "config", std::string(64, '\xff')); }), "does not answer"}},
      {"libs",
       {"a provider of libibverbs that does not load", with([](TestPatient& machine) { machine.answers.rdma_devices.clear(); }),
        "does not list it"}},
      {"kern.dmabuf",
       {"a new kernel, built without peer-to-peer", with([](TestPatient& machine) {
          machine.file("/boot/config-6.1.0", "# CONFIG_PCI_P2PDMA is not set\nCONFIG_DMA_SHARED_BUFFER=y\n");
        }),
        "built without CONFIG_PCI_P2PDMA"}},
      {"mod.peermem",
       {"a module that is loaded and not registered with the RDMA stack", with([](TestPatient& machine) {
          machine.folder("/sys/kernel/mm/memory_peers");
          machine.answers.verbs_has_dmabuf = false;
        }),
        "does not list it among its memory peers"}},
      {"mod.peermem.dmesg",
       {"a module that the kernel refused", with([](TestPatient& machine) {
          machine.answers.kernel_log = std::vector<std::string>{"nvidia_peermem: Unknown symbol ib_register_peer_memory_client"};
        }),
        "the kernel refused nvidia_peermem"}},
      {"mod.gdrdrv",
       {"a folder in the node's place", with([](TestPatient& machine) { machine.remove("/dev/gdrdrv").folder("/dev/gdrdrv"); }),
        "is a folder, not a device"}},
      {"mod.params",
       {"NVLinks that a setting switches off",
        with([](TestPatient& machine) { machine.file("/proc/driver/nvidia/params", "NvLinkDisable: 1\n"); }),
        "NVLink is switched off"}},
      {"drv.grdma_topo",
       {"an adapter that the driver refuses because of its place",
        [] {
          TestPatient machine = two_roots(kArm);
          node(machine, kRoot).vendor = 0x10de;
          node(machine, kRoot).device = 0x22b2;
          machine.file("/proc/driver/nvidia/params", "GrdmaPciTopoCheckOverride: 0\n");
          return machine;
        },
        "refuses an adapter"}},
      {"drv.dmabuf.log",
       {"a dma-buf that the driver refused", with([](TestPatient& machine) {
          machine.answers.kernel_log =
              std::vector<std::string>{"NVRM: dma-buf attach failed: PCI topology not supported for dma-buf"};
        }),
        "refused a dma-buf"}},
      {"imex",
       {"a channel that may not be opened", with([](TestPatient& machine) {
          machine.device("/dev/nvidia-caps-imex-channels/channel0", true, true, 498, 0);
          machine.opened("/dev/nvidia-caps-imex-channels/channel0", EPERM);
        }),
        "cannot be opened (EPERM)"}},
      {"gin",
       {"a willing driver, and an adapter whose node does not open",
        with([](TestPatient& machine) { machine.opened("/dev/infiniband/uverbs0", EPERM); }), "cannot be opened (EPERM)"}},
      {"gpu.rdma",
       {"a GPU whose memory no other device reaches",
        with_answers([](GpuAnswers& gpu) { gpu.cuda_attributes["gpu_direct_rdma"] = 0; }), "does not support GPUDirect"}},
      {"gpu.persist",
       {"a GPU that is put away between programs", with_answers([](GpuAnswers& gpu) { gpu.is_persistence_enabled = false; }),
        "persistence mode is off"}},
      {"gpu.mig",
       {"a GPU of which a program sees a part", with_answers([](GpuAnswers& gpu) { gpu.is_mig_enabled = true; }), "MIG is on"}},
      {"gpu.ecc",
       {"memory with a broken row", with_answers([](GpuAnswers& gpu) { gpu.is_row_remap_pending = true; }),
        "waits to be remapped"}},
      {"gpu.throttle",
       {"a GPU that is too hot", with_answers([](GpuAnswers& gpu) { gpu.clocks_event_reasons = 0x40; }), "slowed down"}},
      {"gpu.p2p",
       {"a pair that CUDA lets through and whose reads fail", with([](TestPatient& machine) {
          machine.gpu(kOtherGpu, {"0000:5c:00.0"});
          machine.answers.peers = {{kGpu, kOtherGpu, true, "chipset_not_supported", "ok", "ok"},
                                   {kOtherGpu, kGpu, true, "chipset_not_supported", "ok", "ok"}};
        }),
        "write but not read"}},
      {"nvlink",
       {"links of which one is down", with_answers([](GpuAnswers& gpu) {
          nvml::NvLink up;
          up.is_active = true;
          gpu.nvlinks = std::vector<nvml::NvLink>{up, nvml::NvLink{}};
        }),
        "inactive"}},
      {"bar1.size",
       {"an aperture that holds little of the memory",
        with_answers([](GpuAnswers& gpu) { gpu.bar1_total_bytes = std::uint64_t{256} << 20; }), "only 256 MiB"}},
      {"bar1.used",
       {"an aperture without room",
        with_answers([](GpuAnswers& gpu) { gpu.bar1_total_bytes = gpu.bar1_used_bytes = std::uint64_t{128} << 30; }), "is full"}},
      {"vm.detect", {"", nullptr, "", "it tells what kind of machine this is, and nothing that could fail to work"}},
      {"pci.link",
       {"an adapter that does not answer",
        with([](TestPatient& machine) { machine.pci_file(kNic, "config", std::string(256, '\xff')); }), "does not answer"}},
      {"pci.bottleneck",
       {"a way that is narrower than the port", with([](TestPatient& machine) { give_link(machine, kNic, 4, 16); }),
        "less than the"}},
      {"pci.topo", {"an adapter at the other socket", [] { return two_roots(kXeon, 1); }, "on another NUMA node"}},
      {"pci.acs",
       {"a switch that sends everything up to the root",
        with([](TestPatient& machine) { give_config(machine, kNicPort, ConfigSpace(0x1000).express(6).acs(0x1d)); }), "ACS ("}},
      {"iommu.mode", {"an IOMMU that translates", with(give_translation), "translates its addresses"}},
      {"iommu.group", {"a DMA function in another group than its GPU", with_apart_groups, "different IOMMU groups"}},
      {"pci.mps",
       {"an adapter that reads in small pieces",
        with([](TestPatient& machine) { give_config(machine, kNic, ConfigSpace(0x15b3).express(0, 0x2030)); }),
        "reads at most 512"}},
      {"pci.ro",
       {"ordered writes on a CPU that is slow with them", with([](TestPatient& machine) {
          machine.file("/proc/cpuinfo", kEpyc);
          give_config(machine, kNic, ConfigSpace(0x15b3).express(0, 0x5020));
        }),
        "relaxed ordering is off"}},
      {"pci.vendorp2p", {"root ports that carry no reads", [] { return two_roots(kCore); }, "does not carry reads"}},
      {"rdma.dev",
       {"a node that a device cgroup refuses", with([](TestPatient& machine) { machine.opened("/dev/infiniband/uverbs0", EPERM); }),
        "device cgroup"}},
      {"rdma.port",
       {"an ACTIVE port that is a limited member of its partition",
        with([](TestPatient& machine) { machine.file("/sys/class/infiniband/mlx5_0/ports/1/pkeys/0", "0x7fff\n"); }),
        "two limited members cannot talk"}},
      {"rdma.mtu",
       {"a network device whose MTU makes small packets", with([](TestPatient& machine) {
          make_roce(machine, "0000:0000:0000:0000:0000:ffff:0a00:0005");
          machine.answers.rdma_devices.at(0).active_mtu = {1024};
        }),
        "carry 1024 bytes of 4096"}},
      {"rdma.gid",
       {"an address that no router passes on",
        with([](TestPatient& machine) { make_roce(machine, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001"); }), "link-local"}},
      {"rdma.qos",
       {"a port on which nothing prevents loss", with([](TestPatient& machine) {
          make_roce(machine, "0000:0000:0000:0000:0000:ffff:0a00:0005");
          for (const char* point : {"roce_np", "roce_rp"}) {
            for (int priority = 0; priority < 8; ++priority) {
              machine.file(std::string("/sys/class/net/eth0/ecn/") + point + "/enable/" + std::to_string(priority), "0\n");
            }
          }
        }),
        ""}},
      {"rdma.counters",
       {"a port that drops packets", with([](TestPatient& machine) {
          machine.file("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "17\n");
        }),
        "out_of_sequence 17"}},
      {"lim.memlock",
       {"a right to lock memory that counts in a container's user namespace only", with([](TestPatient& machine) {
          machine.answers.can_lock_memory = true;
          machine.answers.memlock_bytes = 65536;
          machine.file("/proc/self/uid_map", "         0     100000      65536\n");
        }),
        "64 KiB only"}},
      {"numa.cpu",
       {"a process that may not run beside its devices",
        [] {
          TestPatient machine = two_roots(kXeon, 1);
          machine.topology.numa_nodes = {{0, 0, {0, 1}, 1024}, {1, 1, {2, 3}, 1024}};
          machine.answers.allowed_cpus = "0-1";
          return machine;
        },
        ""}},
      {"numa.balance",
       {"pages that the kernel moves away", with([](TestPatient& machine) {
          machine.topology.numa_nodes = {{0, 0, {0, 1}, 1024}, {1, 1, {2, 3}, 1024}};
          machine.file("/proc/sys/kernel/numa_balancing", "1\n");
        }),
        "moves pages"}},
      {"cpu.governor",
       {"a CPU that lowers its clock",
        with([](TestPatient& machine) { machine.file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"); }),
        "lower their clock"}},
      {"huge", {"", nullptr, "", "it informs about a pool that programs may use or not; a pool in use is not a fault"}},
      {"probe.mapping", {"", nullptr, "", kProbe}},
      {"probe.copy", {"", nullptr, "", kProbe}},
      {"probe.link", {"", nullptr, "", kProbe}},
      {"probe.host", {"", nullptr, "", kProbe}},
      {"probe.dmabuf", {"", nullptr, "", kProbe}},
      {"probe.peermem", {"", nullptr, "", kProbe}},
      {"probe.loop", {"", nullptr, "", kProbe}},
  };
  return *all;
}

TEST(Function, EveryCheckHasAMachineOrASentence) {
  for (const CheckInfo& check : checks()) EXPECT_TRUE(cases().contains(std::string(check.id))) << check.id << " has neither";
  for (const auto& [id, one] : cases()) {
    EXPECT_NE(find_check(id), nullptr) << id << " is no check";
    const bool has_machine = one.build != nullptr && *one.machine != '\0';
    EXPECT_NE(has_machine, one.why_none != nullptr) << id;
    if (one.why_none != nullptr) {
      EXPECT_GT(std::string_view(one.why_none).size(), 20u) << id;
    }
  }
}

class FunctionOf : public testing::TestWithParam<std::string> {};

TEST_P(FunctionOf, IsNotTakenFromPresence) {
  const Case& one = cases().at(GetParam());
  if (one.why_none != nullptr) return;  // the sentence is checked above
  const std::vector<Finding> findings = one.build().run(GetParam());
  const bool is_told = std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    const bool is_bad = finding.verdict == Verdict::fail || finding.verdict == Verdict::warn;
    return is_bad && has(finding.statement, one.statement) && !finding.remedy.empty();
  });
  EXPECT_TRUE(is_told) << one.machine << ": wanted '" << one.statement << "' in\n" << to_text(findings);
}

std::vector<std::string> ids() {
  std::vector<std::string> all;
  for (const auto& [id, one] : cases()) all.push_back(id);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Checks, FunctionOf, testing::ValuesIn(ids()), [](const testing::TestParamInfo<std::string>& check) {
  std::string name = check.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

// The machine that the cases change: none of the nodes, files and answers that they spoil is bad from the start.
TEST(Function, TheMachineThatIsSpoiledIsSound) {
  for (const char* id :
       {"drv.loaded", "drv.gpus", "libs", "kern.dmabuf", "mod.peermem", "mod.peermem.dmesg", "mod.gdrdrv", "mod.params",
        "drv.dmabuf.log", "gin", "rdma.dev", "rdma.port", "pci.link", "pci.topo", "pci.bottleneck"}) {
    for (const Finding& finding : whole().run(id)) EXPECT_EQ(finding.verdict, Verdict::pass) << to_text({finding});
  }
}

}  // namespace
}  // namespace gigabar::test
