// SPDX-License-Identifier: Apache-2.0
// The checks of the driver itself: doctor/checks_driver.cpp and checks_driver_bus.cpp.
#include <gtest/gtest.h>

#include <set>

#include "unit/doctor/driver_machine.hpp"

namespace gigabar::test {
namespace {

// --- every check of driver and GPUs

std::vector<CheckInfo> driver_and_gpu_checks() {
  return checks_of({"drv", "kern", "mod", "libs", "imex", "gin", "gpu", "nvlink", "bar1"});
}

TEST(DriverAndGpuPages, AreCompleteAndOfReadableLength) {
  std::set<std::string_view> ids;
  for (const CheckInfo& info : driver_and_gpu_checks()) {
    EXPECT_TRUE(ids.insert(info.id).second) << info.id << " is there twice";
    EXPECT_FALSE(info.id.empty());
    EXPECT_FALSE(info.is_probe) << info.id;
    for (const std::string_view text : {info.title, info.why, info.what, info.impact, info.confirm, info.remedy, info.source}) {
      EXPECT_FALSE(text.empty()) << info.id;
      EXPECT_LE(text.size(), 1200u) << info.id << ": " << text;
      EXPECT_EQ(text.find("  "), std::string_view::npos) << info.id << ": " << text;
    }
    EXPECT_EQ(info.why.find('\n'), std::string_view::npos) << info.id;
    EXPECT_TRUE(info.why.ends_with('.')) << info.id;
  }
  const std::set<std::string_view> expected{
      "drv.loaded", "drv.flavour",    "drv.gpus",       "libs",   "kern.dmabuf", "mod.peermem", "mod.peermem.dmesg", "mod.gdrdrv",
      "mod.params", "drv.grdma_topo", "drv.dmabuf.log", "imex",   "gin",         "gpu.rdma",    "gpu.persist",       "gpu.mig",
      "gpu.ecc",    "gpu.throttle",   "gpu.p2p",        "nvlink", "bar1.size",   "bar1.used"};
  EXPECT_EQ(ids, expected);
}

TEST(DriverAndGpuChecks, SkipOnceWithoutAGpu) {
  TestPatient machine;
  machine.pci("0000:01:00.0");
  for (const CheckInfo& info : driver_and_gpu_checks()) {
    const Finding finding = only_finding(machine, info.id);
    EXPECT_EQ(finding.verdict, Verdict::skip) << to_text({finding});
    EXPECT_NE(finding.statement.find("NVIDIA GPU"), std::string::npos) << to_text({finding});
  }
}

TEST(DriverAndGpuChecks, AreUnknownWhereTheBusCannotBeListed) {
  TestPatient machine;
  machine.folder("/sys/bus/pci/devices").unreadable("/sys/bus/pci/devices");
  for (const CheckInfo& info : driver_and_gpu_checks()) {
    expect(machine, info.id, Verdict::unknown, "/sys/bus/pci/devices cannot be read (permission denied)", "run as root");
  }
}

TEST(DriverAndGpuChecks, SaySomethingOfTheirOwnForEveryMachine) {
  TestPatient bare;
  bare.gpu(kGpu);
  TestPatient hidden;  // the driver's node and nothing else
  hidden.device("/dev/nvidiactl");
  for (const TestPatient& machine : {bare, hidden, machine_with_driver(), machine_with_rdma()}) {
    for (const CheckInfo& info : driver_and_gpu_checks()) {
      const std::vector<Finding> findings = machine.run(info.id);
      ASSERT_FALSE(findings.empty());
      for (const Finding& finding : findings) {
        EXPECT_EQ(finding.statement.find("came to no verdict"), std::string::npos) << to_text(findings);
        const bool needs_remedy = finding.verdict != Verdict::pass && finding.verdict != Verdict::skip;
        EXPECT_EQ(finding.remedy.empty(), !needs_remedy) << to_text(findings);
      }
    }
  }
}

// --- drv.loaded

TEST(DrvLoaded, PassesWithDriverAndNodes) {
  const Finding finding = only_finding(machine_with_driver(), "drv.loaded");
  expect_finding(finding, Verdict::pass, "580.159.04 is loaded");
  EXPECT_TRUE(has_reading(finding, "/proc/driver/nvidia/version", "Open Kernel Module"));
  EXPECT_TRUE(has_reading(finding, "/dev/nvidia0", "readable and writable"));
}

TEST(DrvLoaded, FailsWithoutTheDriver) {
  TestPatient machine;
  machine.gpu(kGpu);
  machine.answers.cuda.code = AvailabilityCode::library_missing;
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "not loaded", "modprobe nvidia");
  machine.file("/.dockerenv", "");
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "inside a Docker container", "--gpus all");
}

TEST(DrvLoaded, FailsWithoutNodes) {
  TestPatient machine = machine_with_driver();
  machine.remove("/dev/nvidiactl");
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "/dev/nvidiactl is missing", "nvidia-modprobe");
  machine.file("/run/systemd/container", "nspawn\n");
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "in a container (nspawn)", "give the GPUs to the container");
  machine.device("/dev/nvidiactl").remove("/dev/nvidia0");
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "no /dev/nvidia0", "give the GPUs");
}

TEST(DrvLoaded, FailsWithoutRights) {
  TestPatient machine = machine_with_driver();
  machine.device("/dev/nvidiactl", true, false);
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "may not read and write /dev/nvidiactl",
                 "NVreg_DeviceFileMode");
  machine.device("/dev/nvidiactl").device("/dev/nvidia0", false, false);
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "may not read and write /dev/nvidia0", "ls -l");
}

TEST(DrvLoaded, WarnsWithoutUnifiedMemoryNode) {
  TestPatient machine = machine_with_driver();
  machine.remove("/dev/nvidia-uvm");
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::warn, "nvidia-uvm", "nvidia-modprobe -u");
  machine.file("/run/.containerenv", "");
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::fail, "in a Podman container", "--gpus all");
}

TEST(DrvLoaded, IsUnknownWhenItCannotBeRead) {
  TestPatient machine;
  machine.gpu(kGpu);
  machine.unreadable("/proc/driver/nvidia/version");
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::unknown, "could not be read", "as root");
  machine.remove("/proc/driver/nvidia/version");
  machine.answers.cuda = {AvailabilityCode::ok, "driver", {}, {}};
  expect_finding(only_finding(machine, "drv.loaded"), Verdict::unknown, "CUDA works", "on the host");
}

// --- drv.flavour

TEST(DrvFlavour, OfEachKind) {
  expect_finding(only_finding(machine_with_driver(), "drv.flavour"), Verdict::pass, "open kernel modules 580.159.04");
  const Finding closed = only_finding(machine_with_driver("535.216.03", false), "drv.flavour");
  expect_finding(closed, Verdict::warn, "proprietary kernel modules 535.216.03", "nvidia-open");
  EXPECT_TRUE(closed.needs_reboot);
  expect_finding(only_finding(machine_with_driver("510.1.2"), "drv.flavour"), Verdict::warn, "older than 515", "newer driver");
}

TEST(DrvFlavour, IsUnknownWithoutTheFile) {
  TestPatient machine = machine_with_driver();
  machine.remove("/proc/driver/nvidia/version");
  expect_finding(only_finding(machine, "drv.flavour"), Verdict::unknown, "could not be read", "cat /proc/driver/nvidia/version");
  machine.unreadable("/proc/driver/nvidia/version");
  expect_finding(only_finding(machine, "drv.flavour"), Verdict::unknown, "could not be read", "cat");
  machine.remove("/proc/driver/nvidia/version").file("/proc/driver/nvidia/version", "something else\n");
  EXPECT_EQ(machine.verdict("drv.flavour"), Verdict::unknown);
  machine.remove("/sys/module/nvidia/version");
  machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64\n");
  expect_finding(only_finding(machine, "drv.flavour"), Verdict::unknown, "version could not be read", "modinfo");
}

// --- drv.gpus

std::string information_of(const std::string& address) { return "/proc/driver/nvidia/gpus/" + address + "/information"; }

TEST(DrvGpus, PassesWhenAllBelongToTheDriver) {
  const Finding finding = only_finding(machine_with_driver(), "drv.gpus");
  expect_finding(finding, Verdict::pass, "every GPU of the bus (1)");
  EXPECT_TRUE(has_reading(finding, "/proc/driver/nvidia/gpus", "1 GPU"));
}

TEST(DrvGpus, NamesWhoHasTheOthers) {
  TestPatient machine = machine_with_driver();
  machine.gpu(kOtherGpu);
  const std::string driver = std::string("/sys/bus/pci/devices/") + kOtherGpu + "/driver";
  const auto bound_to = [&](const std::string& name) {
    TestPatient copy = machine;
    copy.folder("/sys/bus/pci/drivers/" + name);
    copy.link("/sys/devices/pci0000:5e/0000:5e:00.0/driver", "/sys/bus/pci/drivers/" + name);
    return copy;
  };
  expect_finding(only_finding(machine, "drv.gpus"), Verdict::fail, "no NVIDIA driver has this GPU", "drivers/nvidia/bind");
  expect_finding(only_finding(bound_to("vfio-pci"), "drv.gpus"), Verdict::warn, "kept for a virtual machine by vfio-pci", "unbind");
  const Finding nouveau = only_finding(bound_to("nouveau"), "drv.gpus");
  expect_finding(nouveau, Verdict::fail, "belongs to nouveau", "blacklist nouveau");
  EXPECT_TRUE(nouveau.needs_reboot);
  EXPECT_EQ(nouveau.subject, std::string("GPU ") + kOtherGpu);
  EXPECT_TRUE(has_reading(nouveau, driver, "nouveau"));
}

TEST(DrvGpus, TellsAGpuThatFellOffTheBus) {
  TestPatient machine = machine_with_driver();
  machine.gpu(kOtherGpu);
  machine.folder("/sys/bus/pci/drivers/nvidia");
  machine.link("/sys/devices/pci0000:5e/0000:5e:00.0/driver", "/sys/bus/pci/drivers/nvidia");
  machine.answers.kernel_log = {{"NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."}};
  const Finding lost = only_finding(machine, "drv.gpus");
  expect_finding(lost, Verdict::fail, "lost to its driver", "dmesg");
  EXPECT_TRUE(has_reading(lost, "log", "Xid (PCI:0000:5e:00): 79"));
  // In a container that is a GPU that was not given to it.
  machine.file("/.dockerenv", "");
  expect_finding(only_finding(machine, "drv.gpus"), Verdict::pass, "1 of the machine's 2 GPUs are given to a Docker container");
}

TEST(DrvGpus, TellsAGpuThatLeftTheBus) {
  TestPatient machine = machine_with_driver();
  machine.file(information_of(kOtherGpu), "Bus Type: \t PCIe\nGPU Excluded:\t No\n");
  expect_finding(only_finding(machine, "drv.gpus"), Verdict::fail, "no longer on the PCI bus", "dmesg");
  // One inside of a chip never was on it.
  machine.file(information_of(kOtherGpu), "Bus Type: \t SoC\n");
  expect_finding(only_finding(machine, "drv.gpus"), Verdict::pass, "every GPU");
}

TEST(DrvGpus, TellsAnExcludedGpu) {
  TestPatient machine = machine_with_driver();
  machine.file(information_of(kGpu), "Bus Type: \t PCIe\nGPU Excluded:\t Yes\n");
  expect_finding(only_finding(machine, "drv.gpus"), Verdict::warn, "leave this GPU out", "NVreg_ExcludedGpus");
}

TEST(DrvGpus, FailsForAGpuThatFellOffTheBus) {
  const char* const lines[] = {"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                               "NVRM: Xid (PCI:0000:3B:00): 79, pid=1234, name=python",
                               "NVRM: GPU at PCI:0000:3b:00: GPU has fallen off the bus",
                               "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
                               "NVRM: GPU at 00000000:3b:00.0 has fallen off the bus.",
                               "[ 1234.5678] NVRM: GPU 3b:00.0: GPU has fallen off the bus."};
  for (const char* line : lines) {
    TestPatient machine = machine_with_driver();
    machine.answers.kernel_log = std::vector<std::string>{"NVRM: loading NVIDIA UNIX Open Kernel Module", line};
    const Finding finding = only_finding(machine, "drv.gpus");
    expect_finding(finding, Verdict::fail, "has fallen off the bus", "restart the machine");
    EXPECT_EQ(finding.subject, std::string("GPU ") + kGpu) << line;
    EXPECT_TRUE(has_reading(finding, "the kernel's log", "3"));
    EXPECT_TRUE(finding.needs_reboot);
  }
}

TEST(DrvGpus, FailsForAGpuThatReadsAllOnes) {
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{4096}}) {
    TestPatient machine = machine_with_driver();
    machine.gpu(kOtherGpu, {"0000:5d:00.0"});
    machine.file(information_of(kOtherGpu), "Bus Type: \t PCIe\n");
    machine.pci_file(kOtherGpu, "config", std::string(bytes, '\xff'));
    const Finding finding = only_finding(machine, "drv.gpus");
    expect_finding(finding, Verdict::fail, "does not answer", "power cables");
    EXPECT_EQ(finding.subject, std::string("GPU ") + kOtherGpu);
    machine.answers.kernel_log = std::vector<std::string>{"NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."};
    expect_finding(only_finding(machine, "drv.gpus"), Verdict::fail, "the kernel's log says so, and the device does not answer",
                   "restart");
  }
}

TEST(DrvGpus, NamesAFallenGpuThatNothingElseShows) {
  TestPatient machine = machine_with_driver();
  machine.answers.kernel_log = std::vector<std::string>{"NVRM: GPU 0000:5e:00.0: GPU has fallen off the bus."};
  EXPECT_EQ(only_finding(machine, "drv.gpus").subject, std::string("GPU ") + kOtherGpu);
  machine.answers.kernel_log = std::vector<std::string>{"NVRM: A GPU has fallen off the bus."};
  expect_finding(only_finding(machine, "drv.gpus"), Verdict::fail, "without naming it", "dmesg");
  TestPatient no_driver;
  no_driver.gpu(kGpu);
  no_driver.answers.kernel_log = std::vector<std::string>{"NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."};
  EXPECT_EQ(finding_of(no_driver, "drv.gpus", std::string("GPU ") + kGpu).verdict, Verdict::fail);
}

TEST(DrvGpus, OtherLinesAreNoLoss) {
  TestPatient machine = machine_with_driver();
  machine.answers.kernel_log =
      std::vector<std::string>{"NVRM: Xid (PCI:0000:3b:00): 790, something", "NVRM: Xid (PCI:0000:3b:00): 13, pid=79, 79",
                               "NVRM: GPU at PCI:0000:3b:00: GPU-5a4d4c1b", "pcieport 0000:3a:00.0: AER: Corrected error"};
  EXPECT_EQ(machine.verdict("drv.gpus"), Verdict::pass);
}

TEST(DrvGpus, IsUnknownWithoutOneOfTheTwo) {
  TestPatient no_driver;
  no_driver.gpu(kGpu);
  expect_finding(only_finding(no_driver, "drv.gpus"), Verdict::unknown, "not loaded", "drv.loaded");
  TestPatient no_bus;
  no_bus.file("/proc/driver/nvidia/version", version_text("580.1.2"));
  no_bus.file(information_of(kGpu), "Bus Type: \t PCIe\n");
  expect_finding(only_finding(no_bus, "drv.gpus"), Verdict::unknown, "PCI bus does not show", "on the host");
  no_bus.remove(information_of(kGpu));
  no_bus.pci("0000:01:00.0");
  expect_finding(only_finding(no_bus, "drv.gpus"), Verdict::warn, "no NVIDIA GPU is on the PCI bus", "lspci");
}

TEST(DrvGpus, ReadsTheBusFromFilesWhenThereIsNoTopology) {
  TestPatient machine;
  machine.file("/proc/driver/nvidia/version", version_text("580.1.2"));
  machine.file("/sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n")
      .file("/sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n");
  machine.file("/sys/bus/pci/devices/0000:3c:00.0/vendor", "0x10de\n")
      .file("/sys/bus/pci/devices/0000:3c:00.0/class", "0x068000\n");
  machine.file(information_of(kGpu), "Bus Type: \t PCIe\n");
  expect_finding(only_finding(machine, "drv.gpus"), Verdict::pass, "every GPU of the bus (1)");
}

// --- libs

TEST(Libs, ThatWereNotAskedAreUnknown) {
  TestPatient machine;
  machine.gpu("0000:3b:00.0");
  machine.nic("mlx5_0", "0000:5e:00.0");
  machine.answers.cuda = machine.answers.nvml = machine.answers.verbs = not_asked();
  for (const char* library : {"CUDA", "NVML", "libibverbs"}) {
    expect_finding(finding_of(machine, "libs", library), Verdict::unknown, "does not hold", "--capture");
  }
}

TEST(Libs, PassWithEverything) {
  TestPatient machine = machine_with_rdma();
  machine.file("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
  expect_finding(finding_of(machine, "libs", "CUDA"), Verdict::pass, "CUDA's driver library can be used");
  expect_finding(finding_of(machine, "libs", "NVML"), Verdict::pass, "NVML can be used");
  expect_finding(finding_of(machine, "libs", "libibverbs"), Verdict::pass, "provider for mlx5_0 (mlx5)");
}

TEST(Libs, FailWithTheLibrarysOwnReason) {
  TestPatient machine = machine_with_rdma();
  machine.answers.cuda = {AvailabilityCode::library_missing, "libcuda.so.1 cannot be opened", "install libcuda1", {}};
  machine.answers.nvml = {AvailabilityCode::library_missing, "libnvidia-ml.so.1 cannot be opened", "", {}};
  machine.answers.verbs = {AvailabilityCode::library_missing, "libibverbs.so.1 cannot be opened", "", {}};
  expect_finding(finding_of(machine, "libs", "CUDA"), Verdict::fail, "libcuda.so.1 cannot be opened", "install libcuda1");
  expect_finding(finding_of(machine, "libs", "NVML"), Verdict::warn, "libnvidia-ml.so.1 cannot be opened", "same version");
  expect_finding(finding_of(machine, "libs", "libibverbs"), Verdict::fail, "libibverbs.so.1 cannot be opened", "ibverbs-providers");
}

TEST(Libs, FailWithoutTheProvider) {
  TestPatient machine;
  machine.nic("bnxt_re0", "0000:3c:00.0");
  machine.topology.nics[0].driver = "bnxt_en";
  machine.file("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
  const Finding finding = only_finding(machine, "libs");
  expect_finding(finding, Verdict::fail, "no provider 'bnxt_re' for bnxt_re0", "ibverbs-providers");
  EXPECT_TRUE(has_reading(finding, "/etc/libibverbs.d", "mlx5.driver"));
  // The library's own word counts more than the files'.
  machine.answers.rdma_devices = {{"bnxt_re0", {}, {}}};
  expect_finding(only_finding(machine, "libs"), Verdict::pass, "bnxt_re0");
}

TEST(Libs, NameTheProviderWhenTheLibraryFindsNoDevice) {
  TestPatient machine;
  machine.nic("mlx5_0", "0000:3c:00.0");
  machine.answers.verbs = {
      AvailabilityCode::no_device, "libibverbs is installed but finds no RDMA device", "pass in /dev/infiniband", {}};
  machine.file("/etc/libibverbs.d/rxe.driver", "driver rxe\n");
  expect_finding(only_finding(machine, "libs"), Verdict::fail, "no provider 'mlx5' for mlx5_0", "ibverbs-providers");
  machine.file("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
  expect_finding(only_finding(machine, "libs"), Verdict::fail,
                 "1 RDMA device, but libibverbs cannot be used: libibverbs is installed", "pass in /dev/infiniband");
}

TEST(Libs, FailWhenTheLibraryPassesADeviceOverThatCanBeOpened) {
  TestPatient machine = machine_with_rdma();
  machine.file("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n").file("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
  expect_finding(finding_of(machine, "libs", "libibverbs"), Verdict::fail, "does not list it", "--reinstall");
  machine.answers.rdma_devices = {{"mlx5_0", {}, {}}};
  expect_finding(finding_of(machine, "libs", "libibverbs"), Verdict::pass, "provider for mlx5_0");
  machine.answers.rdma_devices.clear();
  machine.remove("/dev/infiniband/uverbs0");
  expect_finding(finding_of(machine, "libs", "libibverbs"), Verdict::pass, "provider for mlx5_0");
}

TEST(Libs, KnowRenamedDevicesByTheirDriver) {
  TestPatient machine;
  machine.nic("rocep60s0", "0000:3c:00.0");
  machine.topology.nics[0].driver.clear();
  machine.folder("/sys/bus/pci/drivers/irdma");
  machine.link("/sys/devices/pci0000:3c/0000:3c:00.0/driver", "/sys/bus/pci/drivers/irdma");
  machine.file("/etc/libibverbs.d/irdma.driver", "driver irdma\n");
  expect_finding(only_finding(machine, "libs"), Verdict::pass, "rocep60s0 (irdma)");
}

TEST(Libs, AreUnknownWhenTheProviderCannotBeTold) {
  TestPatient machine;
  machine.nic("mystery", "0000:3c:00.0");
  machine.topology.nics[0].driver.clear();
  machine.file("/etc/libibverbs.d/mlx5.driver", "driver mlx5\n");
  expect_finding(only_finding(machine, "libs"), Verdict::unknown, "mystery cannot be told", "ibv_devices");
  TestPatient no_folder;
  no_folder.nic("mlx5_0", "0000:3c:00.0");
  expect_finding(only_finding(no_folder, "libs"), Verdict::unknown, "mlx5_0 cannot be told", "ibv_devices");
}

// --- drv.grdma_topo

// Two GPUs and two adapters; GPU and adapter 0 share a bridge, the others hang alone.
TestPatient grace_like() {
  TestPatient machine = machine_with_rdma();
  machine.gpu(kOtherGpu, {"0000:5d:00.0"});
  machine.nic("mlx5_1", "0000:8a:00.0", {"0000:89:00.0"});
  machine.topology.pci[static_cast<std::size_t>(machine.topology.find_pci(*PciAddress::parse("0000:3a:00.0")))].vendor = 0x10de;
  machine.topology.pci[static_cast<std::size_t>(machine.topology.find_pci(*PciAddress::parse("0000:3a:00.0")))].device = 0x22b2;
  machine.file("/proc/driver/nvidia/params", "GrdmaPciTopoCheckOverride: 0\nRegistryDwords: \"\"\n");
  machine.file("/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n");
  return machine;
}

TEST(DrvGrdmaTopo, PassesOnOtherCpus) {
  TestPatient machine = machine_with_rdma();
  machine.file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\n");
  machine.nic("mlx5_1", "0000:8a:00.0");
  expect_finding(only_finding(machine, "drv.grdma_topo"), Verdict::pass, "no such restriction");
}

TEST(DrvGrdmaTopo, FailsPairByPair) {
  const TestPatient machine = grace_like();
  const std::vector<Finding> findings = machine.run("drv.grdma_topo");
  ASSERT_EQ(findings.size(), 4u) << to_text(findings);
  const Finding pair = finding_of(machine, "drv.grdma_topo", "GPU 0000:3b:00.0 and mlx5_1");
  expect_finding(pair, Verdict::fail, "on NVIDIA Grace the NVIDIA driver refuses", "below the GPU's own switch");
  EXPECT_NE(pair.remedy.find("NVreg_GrdmaPciTopoCheckOverride=1"), std::string::npos);
  EXPECT_TRUE(pair.needs_reboot);
  for (const Finding& finding : findings) {
    EXPECT_TRUE(has_reading(finding, "PCI root port 0000:3a:00.0", "NVIDIA Grace")) << to_text({finding});
    EXPECT_TRUE(has_reading(finding, "GrdmaPciTopoCheckOverride", "0")) << to_text({finding});
  }
  expect_finding(finding_of(machine, "drv.grdma_topo", "1 of 4 pairs of GPU and adapter"), Verdict::pass, "common PCI switch");
}

TEST(DrvGrdmaTopo, MergesWhenAllPairsAreRefused) {
  TestPatient machine = grace_like();
  for (PciNode& node : machine.topology.pci) node.parent = -1;
  const Finding finding = only_finding(machine, "drv.grdma_topo");
  EXPECT_EQ(finding.subject, "all 4 pairs of GPU and adapter");
  EXPECT_EQ(finding.verdict, Verdict::fail);
}

TEST(DrvGrdmaTopo, HasItsExceptions) {
  TestPatient coherent = grace_like();
  for (Gpu& gpu : coherent.topology.gpus) gpu.is_coherent = true;
  expect_finding(only_finding(coherent, "drv.grdma_topo"), Verdict::pass, "of 4 pairs every one does, or need not");

  TestPatient overridden = grace_like();
  overridden.file("/proc/driver/nvidia/params", "GrdmaPciTopoCheckOverride: 1\n");
  expect_finding(only_finding(overridden, "drv.grdma_topo"), Verdict::pass, "overridden");
  overridden.file("/proc/driver/nvidia/params", "GrdmaPciTopoCheckOverride: 2\n");
  expect_finding(only_finding(overridden, "drv.grdma_topo"), Verdict::fail, "told to refuse every adapter", "modprobe.d");

  TestPatient old = grace_like();
  old.file("/proc/driver/nvidia/params", "NvLinkDisable: 0\n");
  expect_finding(only_finding(old, "drv.grdma_topo"), Verdict::pass, "no rule");

  TestPatient guest = grace_like();
  guest.file("/sys/class/dmi/id/sys_vendor", "QEMU\n");
  expect_finding(only_finding(guest, "drv.grdma_topo"), Verdict::pass, "virtual machine");
}

TEST(DrvGrdmaTopo, KnowsAmpereByRootPort) {
  TestPatient machine = grace_like();
  for (PciNode& node : machine.topology.pci) {
    if (node.device == 0x22b2) {
      node.vendor = 0x1def;
      node.device = 0xe100;
    }
  }
  expect_finding(finding_of(machine, "drv.grdma_topo", "GPU 0000:5e:00.0 and mlx5_0"), Verdict::fail, "Ampere Altra", "switch");
  for (PciNode& node : machine.topology.pci) {
    if (node.device == 0xe100) node.device = 0xe203;
  }
  expect_finding(finding_of(machine, "drv.grdma_topo", "GPU 0000:5e:00.0 and mlx5_0"), Verdict::fail, "AmpereOne-160", "switch");
}

TEST(DrvGrdmaTopo, IsUnknownWhenOnlyTheCoresAreKnown) {
  TestPatient machine = grace_like();
  for (PciNode& node : machine.topology.pci) node.device = 0;
  expect_finding(finding_of(machine, "drv.grdma_topo", "GPU 0000:5e:00.0 and mlx5_0"), Verdict::unknown, "cores of NVIDIA Grace",
                 "errno 524");
  machine.file("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
  expect_finding(only_finding(machine, "drv.grdma_topo"), Verdict::pass, "no such restriction");
  machine.remove("/sys/class/dmi/id/sys_vendor").remove("/proc/cpuinfo");
  expect_finding(finding_of(machine, "drv.grdma_topo", "GPU 0000:5e:00.0 and mlx5_0"), Verdict::unknown,
                 "a CPU that could not be read", "register GPU memory");
}

TEST(DrvGrdmaTopo, SkipsWithoutPairs) {
  expect_finding(only_finding(machine_with_driver(), "drv.grdma_topo"), Verdict::skip, "no RDMA device");
  TestPatient soft = machine_with_driver();
  Nic nic;
  nic.name = nic.rdma_device = "rxe0";
  soft.topology.nics.push_back(nic);
  expect_finding(only_finding(soft, "drv.grdma_topo"), Verdict::skip, "no pair");
}

// --- drv.dmabuf.log

TEST(DrvDmabufLog, PassesWithoutRefusals) {
  TestPatient machine = machine_with_driver();
  machine.answers.kernel_log = {{"nvidia 0000:3b:00.0: enabling device"}};
  expect_finding(only_finding(machine, "drv.dmabuf.log"), Verdict::pass, "no dma-buf that the driver refused");
}

TEST(DrvDmabufLog, TellsEachReason) {
  TestPatient machine = machine_with_driver();
  machine.answers.kernel_log = {{"[1.0] NVRM: dma-buf attach failed: topology not supported for mapping type FORCE_PCIE",
                                 "[2.0] NVRM: dma-buf attach failed: PCI topology not supported for dma-buf",
                                 "[3.0] NVRM: dma-buf attach failed: PCI topology not supported for dma-buf",
                                 "[4.0] NVRM: dma-buf attach failed: importer unable to handle MMIO without struct page",
                                 "[5.0] NVRM: dma-buf attach failed: moon in the wrong phase"}};
  const std::vector<Finding> findings = machine.run("drv.dmabuf.log");
  ASSERT_EQ(findings.size(), 4u) << to_text(findings);
  expect_finding(findings[0], Verdict::fail, "PCIe mapping type", "iommu.group");
  expect_finding(findings[1], Verdict::fail, "cannot do peer-to-peer", "newer kernel");
  expect_finding(findings[2], Verdict::fail, "(2 times since", "drv.grdma_topo");
  expect_finding(findings[3], Verdict::fail, "no page yet", "dmesg");
  EXPECT_TRUE(has_reading(findings[3], "log", "moon"));
}

TEST(DrvDmabufLog, IsUnknownWithoutTheLog) {
  expect_finding(only_finding(machine_with_driver(), "drv.dmabuf.log"), Verdict::unknown, "could not be read", "sudo dmesg");
}

}  // namespace
}  // namespace gigabar::test
