// SPDX-License-Identifier: Apache-2.0
// The checks of kernel modules and their settings: doctor/checks_driver.cpp.
#include <gtest/gtest.h>

#include "unit/doctor/driver_machine.hpp"

namespace gigabar::test {
namespace {

constexpr const char* kConfig = "/boot/config-6.1.0-28-amd64";
constexpr const char* kParams = "/proc/driver/nvidia/params";
constexpr const char* kChannel = "/dev/nvidia-caps-imex-channels/channel0";

// --- kern.dmabuf

TEST(KernDmabuf, PassesWithKernelAndLibrary) {
  const TestPatient machine = machine_with_rdma();
  const Finding kernel = finding_of(machine, "kern.dmabuf", "kernel");
  expect_finding(kernel, Verdict::pass, "6.1.0-28-amd64 takes a dma-buf");
  EXPECT_TRUE(has_reading(kernel, "CONFIG_PCI_P2PDMA", "y"));
  EXPECT_TRUE(has_reading(kernel, "/proc/sys/kernel/osrelease", "6.1.0-28-amd64"));
  expect_finding(finding_of(machine, "kern.dmabuf", "libibverbs"), Verdict::pass, "ibv_reg_dmabuf_mr");
}

TEST(KernDmabuf, FailsOnOldKernels) {
  for (const char* release : {"4.18.0-553.el8.x86_64", "5.11.22", "3.10.0"}) {
    TestPatient machine = machine_with_rdma();
    machine.file("/proc/sys/kernel/osrelease", release);
    const Finding kernel = finding_of(machine, "kern.dmabuf", "kernel");
    expect_finding(kernel, Verdict::fail, "older than 5.12", "kernel 5.12 or newer");
    EXPECT_TRUE(kernel.needs_reboot);
  }
  TestPatient first = machine_with_rdma();
  first.file("/proc/sys/kernel/osrelease", "5.12.0\n");
  first.file("/boot/config-5.12.0", "CONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n");
  EXPECT_EQ(finding_of(first, "kern.dmabuf", "kernel").verdict, Verdict::pass);
}

TEST(KernDmabuf, FailsWithoutAnOption) {
  TestPatient machine = machine_with_rdma();
  machine.file(kConfig, "CONFIG_DMA_SHARED_BUFFER=y\n# CONFIG_PCI_P2PDMA is not set\n# CONFIG_DMABUF_MOVE_NOTIFY is not set\n");
  expect_finding(finding_of(machine, "kern.dmabuf", "kernel"), Verdict::fail,
                 "without CONFIG_PCI_P2PDMA, CONFIG_DMABUF_MOVE_NOTIFY", "general one");
  machine.file(kConfig, "CONFIG_PCI_P2PDMA=y\n");
  expect_finding(finding_of(machine, "kern.dmabuf", "kernel"), Verdict::fail, "without CONFIG_DMA_SHARED_BUFFER", "kernel");
  // A kernel that has no such choice any more.
  machine.file(kConfig, "CONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\n");
  EXPECT_EQ(finding_of(machine, "kern.dmabuf", "kernel").verdict, Verdict::pass);
}

TEST(KernDmabuf, FailsWithAnOldLibrary) {
  TestPatient machine = machine_with_rdma();
  machine.answers.verbs_has_dmabuf = false;
  expect_finding(finding_of(machine, "kern.dmabuf", "libibverbs"), Verdict::fail, "no ibv_reg_dmabuf_mr", "rdma-core 34");
}

TEST(KernDmabuf, IsUnknownWhenItCannotBeRead) {
  TestPatient machine = machine_with_rdma();
  machine.remove(kConfig);
  machine.answers.verbs_has_dmabuf.reset();
  expect_finding(finding_of(machine, "kern.dmabuf", "kernel"), Verdict::unknown, "could not be read", "cat /boot/config-");
  expect_finding(finding_of(machine, "kern.dmabuf", "libibverbs"), Verdict::unknown, "could not be asked", "libibverbs 34");
  machine.file("/proc/config.gz", "\x1f\x8b");
  expect_finding(finding_of(machine, "kern.dmabuf", "kernel"), Verdict::unknown, "could not be read", "zcat /proc/config.gz");
  machine.unreadable(kConfig);
  EXPECT_EQ(finding_of(machine, "kern.dmabuf", "kernel").verdict, Verdict::unknown);
  for (const char* release : {"", "six", "6", "99999999999999999999.1", "5."}) {
    machine.file("/proc/sys/kernel/osrelease", release);
    expect_finding(finding_of(machine, "kern.dmabuf", "kernel"), Verdict::unknown, "version could not be read", "uname -r");
  }
}

TEST(KernDmabuf, SkipsWithoutAnAdapter) {
  expect_finding(only_finding(machine_with_driver(), "kern.dmabuf"), Verdict::skip, "no RDMA device");
}

// --- mod.peermem

TEST(ModPeermem, PassesWhenLoaded) {
  for (const char* file : {"/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version",
                           "/sys/kernel/mm/memory_peers/nv_mem_nc/version", "/sys/module/nv_peer_mem/version"}) {
    TestPatient machine = machine_with_rdma("535.1.2", false);
    machine.file(file, "580.1.2\n");
    const Finding finding = only_finding(machine, "mod.peermem");
    expect_finding(finding, Verdict::pass, "nvidia-peermem is loaded");
    EXPECT_TRUE(has_reading(finding, file, "580.1.2"));
  }
  TestPatient nameless = machine_with_rdma("535.1.2", false);
  nameless.folder("/sys/module/nvidia_peermem");
  expect_finding(only_finding(nameless, "mod.peermem"), Verdict::pass, "is loaded");
}

TEST(ModPeermem, FailsWhenLoadedAndNotAtWork) {
  TestPatient machine = machine_with_rdma("535.1.2", false);
  machine.file("/sys/module/nvidia_peermem/version", "535.1.2\n").file("/sys/module/nvidia_peermem/initstate", "coming\n");
  expect_finding(only_finding(machine, "mod.peermem"), Verdict::fail, "its state is 'coming'", "modprobe -r nvidia-peermem");
  machine.file("/sys/module/nvidia_peermem/initstate", "live\n");
  expect_finding(only_finding(machine, "mod.peermem"), Verdict::pass, "is loaded");
  machine.folder("/sys/kernel/mm/memory_peers");
  expect_finding(only_finding(machine, "mod.peermem"), Verdict::fail, "does not list it among its memory peers", "modprobe");
  machine.file("/sys/kernel/mm/memory_peers/nv_mem/num_alloc_mrs", "0\n");
  expect_finding(only_finding(machine, "mod.peermem"), Verdict::pass, "is loaded");
  TestPatient with_dmabuf = machine_with_rdma();
  with_dmabuf.file("/sys/module/nvidia_peermem/version", "580.1.2\n").folder("/sys/kernel/mm/memory_peers");
  expect_finding(only_finding(with_dmabuf, "mod.peermem"), Verdict::warn, "only programs that know dma-bufs", "modprobe");
}

TEST(ModPeermem, IsNotNeededWithDmabuf) {
  expect_finding(only_finding(machine_with_rdma(), "mod.peermem"), Verdict::pass, "not needed");
}

TEST(ModPeermem, FailsWithNeither) {
  const Finding closed = only_finding(machine_with_rdma("535.1.2", false), "mod.peermem");
  expect_finding(closed, Verdict::fail, "proprietary kernel modules", "modprobe nvidia-peermem");
  EXPECT_NE(closed.remedy.find("Invalid argument"), std::string::npos);
  EXPECT_NE(closed.remedy.find("nvidia-open"), std::string::npos);
  TestPatient old = machine_with_rdma();
  old.file("/proc/sys/kernel/osrelease", "4.18.0\n");
  expect_finding(only_finding(old, "mod.peermem"), Verdict::fail, "older than 5.12", "modprobe nvidia-peermem");
  TestPatient told = machine_with_rdma();
  told.answers.gpus[0].cuda_attributes["dma_buf"] = 0;
  expect_finding(only_finding(told, "mod.peermem"), Verdict::fail, "CUDA reports a GPU", "nvidia-open");
}

TEST(ModPeermem, BelievesCudaMoreThanTheVersion) {
  TestPatient machine = machine_with_rdma();
  machine.file("/proc/driver/nvidia/version", "unreadable words\n");
  machine.answers.gpus[0].cuda_attributes["dma_buf"] = 1;
  expect_finding(only_finding(machine, "mod.peermem"), Verdict::pass, "not needed");
}

TEST(ModPeermem, IsUnknownWhenNothingTells) {
  TestPatient machine = machine_with_rdma();
  machine.remove(kConfig);
  expect_finding(only_finding(machine, "mod.peermem"), Verdict::unknown, "cannot be told: how kernel", "/boot/config-");
  TestPatient hidden = machine_with_rdma("535.1.2", false);
  hidden.remove("/sys/module/nvidia/version");
  expect_finding(only_finding(hidden, "mod.peermem"), Verdict::unknown, "/sys/module cannot be listed", "lsmod");
}

// --- mod.peermem.dmesg

TEST(ModPeermemDmesg, OfEachLog) {
  TestPatient machine = machine_with_rdma();
  expect_finding(only_finding(machine, "mod.peermem.dmesg"), Verdict::unknown, "could not be read", "sudo dmesg");
  machine.answers.kernel_log = {{"nvidia_peermem: loaded", "other_module: Unknown symbol foo (err -2)"}};
  expect_finding(only_finding(machine, "mod.peermem.dmesg"), Verdict::pass, "no complaint");
  machine.answers.kernel_log = {{"nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client"}};
  const Finding finding = only_finding(machine, "mod.peermem.dmesg");
  expect_finding(finding, Verdict::fail, "disagrees about version of symbol", "dkms autoinstall");
  EXPECT_TRUE(has_reading(finding, "log", "ib_register_peer_memory_client"));
  machine.answers.kernel_log = {{"nv_peer_mem: Unknown symbol ib_register_peer_memory_client (err -22)"}};
  expect_finding(only_finding(machine, "mod.peermem.dmesg"), Verdict::fail, "refused nv_peer_mem", "after DOCA-OFED");
}

// --- mod.gdrdrv

TEST(ModGdrdrv, PassesWhenUsable) {
  TestPatient machine = machine_with_driver();
  machine.device("/dev/gdrdrv", true, true, 510, 0).file("/sys/module/gdrdrv/version", "2.5\n");
  const Finding finding = only_finding(machine, "mod.gdrdrv");
  expect_finding(finding, Verdict::pass, "gdrdrv 2.5 is loaded");
  EXPECT_TRUE(has_reading(finding, "/dev/gdrdrv", "readable and writable"));
}

TEST(ModGdrdrv, IsNotNeededWhenTheDriversNodesWork) {
  TestPatient machine = machine_with_driver();
  const Finding finding = only_finding(machine, "mod.gdrdrv");
  expect_finding(finding, Verdict::pass, "Gigabar does not need it");
  EXPECT_NE(finding.statement.find("GDRCopy's own library"), std::string::npos);
  machine.device("/dev/nvidiactl", false, false);
  expect_finding(only_finding(machine, "mod.gdrdrv"), Verdict::warn, "so is the other way", "modprobe gdrdrv");
}

TEST(ModGdrdrv, WarnsOfRightsNodeAndAge) {
  TestPatient machine = machine_with_driver();
  machine.file("/sys/module/gdrdrv/version", "2.4\n");
  expect_finding(only_finding(machine, "mod.gdrdrv"), Verdict::warn, "/dev/gdrdrv is missing", "mknod -m 666 /dev/gdrdrv");
  machine.file("/.dockerenv", "");
  expect_finding(only_finding(machine, "mod.gdrdrv"), Verdict::warn, "missing in a Docker container", "--device /dev/gdrdrv");
  machine.device("/dev/gdrdrv", true, false);
  expect_finding(only_finding(machine, "mod.gdrdrv"), Verdict::warn, "may not read and write", "60-gdrdrv.rules");
  machine.device("/dev/gdrdrv");
  expect_finding(only_finding(machine, "mod.gdrdrv"), Verdict::warn, "2.4 is older than 2.5", "2.5 or newer");
}

TEST(ModGdrdrv, IsUnknownWithoutAVersion) {
  TestPatient machine = machine_with_driver();
  machine.device("/dev/gdrdrv");
  expect_finding(only_finding(machine, "mod.gdrdrv"), Verdict::unknown, "version could not be read", "modinfo");
  machine.unreadable("/sys/module/gdrdrv/version");
  EXPECT_EQ(machine.verdict("mod.gdrdrv"), Verdict::unknown);
  machine.remove("/sys/module/gdrdrv/version").file("/sys/module/gdrdrv/version", "new\n");
  EXPECT_EQ(machine.verdict("mod.gdrdrv"), Verdict::unknown);
}

// --- mod.params

TEST(ModParams, PassWhenNothingStandsInTheWay) {
  TestPatient machine = machine_with_driver();
  machine.file(kParams,
               "ResmanDebugLevel: 4294967295\nNvLinkDisable: 0\nGrdmaPciTopoCheckOverride: 0\nDmaRemapPeerMmio: 1\n"
               "RegistryDwords: \"PeerMappingOverride=1;\"\n");
  const Finding finding = only_finding(machine, "mod.params");
  expect_finding(finding, Verdict::pass, "no setting");
  EXPECT_TRUE(has_reading(finding, "params: RegistryDwords", "PeerMappingOverride=1;"));
  EXPECT_TRUE(has_reading(finding, "params: NvLinkDisable", "0"));
}

TEST(ModParams, TellEachBadSetting) {
  TestPatient machine = machine_with_driver();
  machine.file(kParams, "NvLinkDisable: 1\nGrdmaPciTopoCheckOverride: 2\nDmaRemapPeerMmio: 0\n");
  ASSERT_EQ(machine.run("mod.params").size(), 3u);
  expect_finding(finding_of(machine, "mod.params", "NVreg_GrdmaPciTopoCheckOverride=2"), Verdict::fail,
                 "refuse every network adapter", "modprobe.d");
  const Finding nvlink = finding_of(machine, "mod.params", "NVreg_NvLinkDisable=1");
  expect_finding(nvlink, Verdict::warn, "NVLink is switched off", "update-initramfs");
  EXPECT_TRUE(nvlink.needs_reboot);
  EXPECT_TRUE(has_reading(nvlink, "params: NvLinkDisable", "1"));
  expect_finding(finding_of(machine, "mod.params", "NVreg_DmaRemapPeerMmio=0"), Verdict::warn, "IOMMU", "reboot");
}

TEST(ModParams, AreUnknownWhenUnreadable) {
  TestPatient machine = machine_with_driver();
  expect_finding(only_finding(machine, "mod.params"), Verdict::unknown, "could not be read", "cat /proc/driver/nvidia/params");
  machine.unreadable(kParams);
  const Finding finding = only_finding(machine, "mod.params");
  EXPECT_EQ(finding.verdict, Verdict::unknown);
  EXPECT_TRUE(has_reading(finding, kParams, "permission denied"));
}

// --- imex

// A coherent GPU of a rack's fabric.
TestPatient of_fabric() {
  TestPatient machine = machine_with_driver();
  machine.topology.gpus[0].is_coherent = true;
  machine.answers.gpus[0].fabric_state = "completed";
  machine.file("/proc/devices", "Character devices:\n  1 mem\n195 nvidia\n498 nvidia-caps-imex-channels\n\nBlock devices:\n");
  return machine;
}

TEST(Imex, PassesWithAChannel) {
  TestPatient machine = of_fabric();
  machine.device(kChannel, true, true, 498, 0);
  const Finding finding = only_finding(machine, "imex");
  expect_finding(finding, Verdict::pass, "IMEX channel 0 is there");
  EXPECT_TRUE(has_reading(finding, "/proc/devices", "498"));
}

TEST(Imex, FailsOnTheWrongMajorNumber) {
  TestPatient machine = of_fabric();
  machine.device(kChannel, true, true, 497, 4323);
  expect_finding(only_finding(machine, "imex"), Verdict::fail,
                 "the number 497:4323, but that of nvidia-caps-imex-channels is 498:0", "c 498 0");
}

TEST(Imex, FailsWithoutRights) {
  TestPatient machine = of_fabric();
  machine.device(kChannel, true, false, 498, 0);
  expect_finding(only_finding(machine, "imex"), Verdict::fail, "may not read and write", "chmod 666");
}

TEST(Imex, FailsWithoutAChannelInAFabric) {
  TestPatient machine = of_fabric();
  expect_finding(only_finding(machine, "imex"), Verdict::fail, "no IMEX channel", "c 498 0");
  EXPECT_NE(only_finding(machine, "imex").remedy.find("NVreg_CreateImexChannel0=1"), std::string::npos);
  machine.file("/.dockerenv", "");
  expect_finding(only_finding(machine, "imex"), Verdict::fail, "a Docker container has no IMEX channel", "NVIDIA_IMEX_CHANNELS=0");
  machine.remove("/.dockerenv").remove("/proc/devices");
  expect_finding(only_finding(machine, "imex"), Verdict::fail, "no IMEX channel", "550 or newer");
}

TEST(Imex, IsUnknownWhenTheFabricOrTheMajorIsNotTold) {
  TestPatient machine = of_fabric();
  machine.answers.gpus[0].fabric_state.reset();
  expect_finding(only_finding(machine, "imex"), Verdict::unknown, "could not be asked", "grep -A 3 Fabric");
  machine.remove("/proc/devices").device(kChannel, true, true, 498, 0);
  expect_finding(only_finding(machine, "imex"), Verdict::unknown, "does not name its driver", "grep imex /proc/devices");
}

TEST(Imex, SkipsOnOrdinaryMachines) {
  TestPatient machine = machine_with_driver();
  machine.answers.gpus[0].fabric_state = "completed";  // of the NVSwitches inside of one machine
  expect_finding(only_finding(machine, "imex"), Verdict::skip, "several machines");
}

// --- gin

TEST(Gin, PassesWithBothSettings) {
  TestPatient machine = machine_with_rdma();
  for (const char* dwords : {"PeerMappingOverride=1;", "ForceP2P=0x11; PeerMappingOverride=0x1", "A=1;PeerMappingOverride=1"}) {
    machine.file(kParams, std::string("EnableStreamMemOPs: 1\nRegistryDwords: \"") + dwords + "\"\n");
    expect_finding(only_finding(machine, "gin"), Verdict::pass, "PeerMappingOverride=1 and EnableStreamMemOPs=1");
  }
}

// As in a container that the adapter's nodes were not passed into.
TEST(Gin, WarnsWhereNoProgramCanOpenTheAdapter) {
  TestPatient machine = machine_with_rdma();
  machine.file(kParams, "EnableStreamMemOPs: 1\nRegistryDwords: \"PeerMappingOverride=1;\"\n");
  machine.remove("/dev/infiniband/uverbs0");
  expect_finding(only_finding(machine, "gin"), Verdict::warn, "no device node", "rdma.dev");
}

TEST(Gin, WarnsOfWhatIsMissing) {
  TestPatient machine = machine_with_rdma();
  machine.file(kParams, "EnableStreamMemOPs: 0\nRegistryDwords: \"\"\n");
  const Finding both = only_finding(machine, "gin");
  expect_finding(both, Verdict::warn, "without PeerMappingOverride=1 and EnableStreamMemOPs=1",
                 "options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" NVreg_EnableStreamMemOPs=1");
  EXPECT_TRUE(both.needs_reboot);
  machine.file(kParams, "EnableStreamMemOPs: 1\nRegistryDwords: \"NotPeerMappingOverride=1;PeerMappingOverride=0\"\n");
  expect_finding(only_finding(machine, "gin"), Verdict::warn, "runs without PeerMappingOverride=1:", "/etc/modprobe.d/");
  machine.file(kParams, "EnableStreamMemOPs: 0\nRegistryDwords: \"PeerMappingOverride=1;\"\n");
  expect_finding(only_finding(machine, "gin"), Verdict::warn, "runs without EnableStreamMemOPs=1:", "reboot");
}

TEST(Gin, WarnsOfProprietaryModules) {
  expect_finding(only_finding(machine_with_rdma("535.1.2", false), "gin"), Verdict::warn, "proprietary kernel modules",
                 "nvidia-open");
}

TEST(Gin, IsUnknownWithoutTheSettings) {
  expect_finding(only_finding(machine_with_rdma(), "gin"), Verdict::unknown, "/proc/driver/nvidia/params could not be read",
                 "grep -E");
  TestPatient machine = machine_with_rdma();
  machine.file(kParams, "EnableStreamMemOPs: 1\n").remove("/proc/driver/nvidia/version");
  expect_finding(only_finding(machine, "gin"), Verdict::unknown, "/proc/driver/nvidia/version could not be read", "grep -E");
}

TEST(Gin, SkipsWithoutMlx5) {
  TestPatient machine = machine_with_driver();
  machine.nic("efa_0", "0000:3c:00.0");
  machine.topology.nics[0].driver = "efa";
  expect_finding(only_finding(machine, "gin"), Verdict::skip, "no NVIDIA ConnectX or BlueField");
}

}  // namespace
}  // namespace gigabar::test
