// SPDX-License-Identifier: Apache-2.0
// The checks of the GPUs: doctor/checks_gpu.cpp.
#include <gtest/gtest.h>

#include "unit/doctor/driver_machine.hpp"

namespace gigabar::test {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TestPatient two_gpus() {
  TestPatient machine = machine_with_driver();
  machine.gpu(kOtherGpu, {"0000:5d:00.0"});
  return machine;
}

// --- findings of many GPUs

TEST(GpuChecks, SayOnceWhatAllGpusShare) {
  TestPatient machine = two_gpus();
  for (GpuAnswers& gpu : machine.answers.gpus) gpu.is_persistence_enabled = true;
  const Finding both = only_finding(machine, "gpu.persist");
  EXPECT_EQ(both.subject, "all 2 GPUs");
  EXPECT_TRUE(has_reading(both, kGpu, "yes"));
  EXPECT_TRUE(has_reading(both, kOtherGpu, "yes"));
  machine.answers.gpus[1].is_persistence_enabled = false;
  EXPECT_EQ(finding_of(machine, "gpu.persist", "GPU 0000:3b:00.0").verdict, Verdict::pass);
  EXPECT_EQ(finding_of(machine, "gpu.persist", "GPU 0000:5e:00.0").verdict, Verdict::warn);
}

TEST(GpuChecks, AreUnknownWhenNoGpuCanBeFound) {
  TestPatient machine;
  machine.file("/proc/driver/nvidia/version", version_text("580.1.2"));
  for (const char* check :
       {"gpu.rdma", "gpu.persist", "gpu.mig", "gpu.ecc", "gpu.throttle", "gpu.p2p", "nvlink", "bar1.size", "bar1.used"}) {
    expect_finding(only_finding(machine, check), Verdict::unknown, "no GPU could be found", "drv.gpus");
  }
}

TEST(GpuChecks, AreUnknownForAGpuWithoutAnswers) {
  TestPatient machine = machine_with_driver();
  machine.answers.gpus.clear();
  for (const char* check : {"gpu.rdma", "gpu.persist", "gpu.mig", "gpu.ecc", "gpu.throttle", "nvlink", "bar1.size", "bar1.used"}) {
    EXPECT_EQ(machine.verdict(check), Verdict::unknown) << check;
  }
}

// --- gpu.rdma

TEST(GpuRdma, PassesAndTellsTheWay) {
  TestPatient machine = machine_with_driver();
  auto& attributes = machine.answers.gpus[0].cuda_attributes;
  attributes = {{"gpu_direct_rdma", 1}, {"dma_buf", 1}, {"gpu_direct_rdma_writes_ordering", 100}};
  const Finding finding = only_finding(machine, "gpu.rdma");
  expect_finding(finding, Verdict::pass, "by dma-buf too; what arrives is visible to it in order");
  EXPECT_TRUE(has_reading(finding, "GPU_DIRECT_RDMA_SUPPORTED", "1"));
  attributes = {{"gpu_direct_rdma", 1}, {"dma_buf", 0}, {"gpu_direct_rdma_writes_ordering", 0}};
  expect_finding(only_finding(machine, "gpu.rdma"), Verdict::pass,
                 "only through nvidia-peermem: it exports no dma-buf; what arrives needs a flush");
  attributes = {{"gpu_direct_rdma", 1}};
  expect_finding(only_finding(machine, "gpu.rdma"), Verdict::pass, "whether by dma-buf is not told");
}

TEST(GpuRdma, FailsWithoutIt) {
  TestPatient machine = machine_with_driver();
  auto& attributes = machine.answers.gpus[0].cuda_attributes;
  attributes = {{"gpu_direct_rdma", 0}, {"integrated", 0}};
  expect_finding(only_finding(machine, "gpu.rdma"), Verdict::fail, "does not support GPUDirect RDMA", "pinned host memory");
  attributes["integrated"] = 1;
  expect_finding(only_finding(machine, "gpu.rdma"), Verdict::fail, "integrated GPU", "cudaHostAlloc");
}

TEST(GpuRdma, IsUnknownWithoutTheAttribute) {
  expect_finding(only_finding(machine_with_driver(), "gpu.rdma"), Verdict::unknown, "CUDA did not say", "where CUDA works");
}

// --- gpu.persist, gpu.mig

TEST(GpuPersist, OfEachAnswer) {
  TestPatient machine = machine_with_driver();
  expect_finding(only_finding(machine, "gpu.persist"), Verdict::unknown, "did not say", "nvidia-smi -q");
  machine.answers.gpus[0].is_persistence_enabled = true;
  expect_finding(only_finding(machine, "gpu.persist"), Verdict::pass, "is on");
  machine.answers.gpus[0].is_persistence_enabled = false;
  expect_finding(only_finding(machine, "gpu.persist"), Verdict::warn, "is off", "nvidia-persistenced");
}

TEST(GpuMig, OfEachAnswer) {
  TestPatient machine = machine_with_driver();
  expect_finding(only_finding(machine, "gpu.mig"), Verdict::unknown, "did not say", "mig.mode.current");
  machine.answers.gpus[0].is_mig_enabled = false;
  expect_finding(only_finding(machine, "gpu.mig"), Verdict::pass, "MIG is off");
  machine.answers.gpus[0].is_mig_enabled = true;
  expect_finding(only_finding(machine, "gpu.mig"), Verdict::warn, "no peer access", "-mig 0");
  machine.answers.gpus[0].is_mig_enabled.reset();
  machine.answers.gpus[0].is_persistence_enabled = true;
  expect_finding(only_finding(machine, "gpu.mig"), Verdict::pass, "reports no MIG mode");
}

// --- gpu.ecc

TEST(GpuEcc, PassesWhenHealthy) {
  TestPatient machine = machine_with_driver();
  machine.answers.gpus[0].is_row_remap_pending = false;
  machine.answers.gpus[0].has_row_remap_failed = false;
  expect_finding(only_finding(machine, "gpu.ecc"), Verdict::pass, "log could not be read for Xid");
  machine.answers.kernel_log = {{"NVRM: loading NVIDIA UNIX Open Kernel Module"}};
  expect_finding(only_finding(machine, "gpu.ecc"), Verdict::pass, "no Xid is in the kernel's log");
}

TEST(GpuEcc, FailsOnPendingAndFailedRepairs) {
  TestPatient machine = machine_with_driver();
  GpuAnswers& gpu = machine.answers.gpus[0];
  gpu.is_page_retirement_pending = true;
  expect_finding(only_finding(machine, "gpu.ecc"), Verdict::fail, "page of this GPU's memory waits", "--gpu-reset -i 0000:3b:00.0");
  gpu.is_row_remap_pending = true;
  expect_finding(only_finding(machine, "gpu.ecc"), Verdict::fail, "row of this GPU's memory waits", "--gpu-reset");
  gpu.has_row_remap_failed = true;
  const Finding failed = only_finding(machine, "gpu.ecc");
  expect_finding(failed, Verdict::fail, "remapping a broken row", "replacement");
  EXPECT_TRUE(has_reading(failed, "failure", "yes"));
}

TEST(GpuEcc, WarnsOfXidsOfThatGpu) {
  TestPatient machine = two_gpus();
  for (GpuAnswers& gpu : machine.answers.gpus) gpu.is_row_remap_pending = false;
  machine.answers.kernel_log = {{"[7.1] NVRM: Xid (PCI:0000:5e:00): 31, pid=1, MMU Fault",
                                 "[7.2] NVRM: Xid (PCI:0000:5e:00): 79, pid=2", "[7.3] NVRM: Xid (PCI:0000:5e:00): 79, again",
                                 "[7.4] NVRM: Xid (PCI:0000:5e:00): nonsense", "[7.5] NVRM: Xid (PCI:0000:5e:00"}};
  EXPECT_EQ(finding_of(machine, "gpu.ecc", "GPU 0000:3b:00.0").verdict, Verdict::pass);
  const Finding ill = finding_of(machine, "gpu.ecc", "GPU 0000:5e:00.0");
  expect_finding(ill, Verdict::warn, "Xid 31 (a memory fault, usually the program's fault), 79 (the GPU has fallen off the bus)",
                 "dmesg");
  EXPECT_TRUE(has_reading(ill, "Xid", "79, again"));
  machine.answers.kernel_log = {{"NVRM: Xid (PCI:0000:5e:00): 777, x"}};
  expect_finding(finding_of(machine, "gpu.ecc", "GPU 0000:5e:00.0"), Verdict::warn, "Xid 777", "dmesg");
}

TEST(GpuEcc, IsUnknownWithoutFacts) {
  expect_finding(only_finding(machine_with_driver(), "gpu.ecc"), Verdict::unknown, "did not say", "ROW_REMAPPER");
}

// --- gpu.throttle

TEST(GpuThrottle, OfEachReason) {
  TestPatient machine = machine_with_driver();
  expect_finding(only_finding(machine, "gpu.throttle"), Verdict::unknown, "did not say", "nvidia-smi -q -d PERFORMANCE");
  struct Case {
    std::uint64_t bits;
    Verdict verdict;
    const char* words;
  };
  for (const Case& one :
       {Case{0, Verdict::pass, "nothing slows this GPU down"}, Case{0x1, Verdict::pass, "idle"},
        Case{0x4, Verdict::pass, "software power cap"}, Case{0x112, Verdict::pass, "display clocks"},
        Case{0x8, Verdict::warn, "hardware slowdown"}, Case{0x20, Verdict::warn, "software thermal slowdown"},
        Case{0x40, Verdict::warn, "hardware thermal slowdown"}, Case{0x80 | 0x4, Verdict::warn, "right now: hardware power brake"},
        Case{0x48, Verdict::warn, "hardware slowdown, hardware thermal slowdown"}}) {
    machine.answers.gpus[0].clocks_event_reasons = one.bits;
    expect_finding(only_finding(machine, "gpu.throttle"), one.verdict, one.words, one.verdict == Verdict::warn ? "cooling" : "");
  }
}

// --- gpu.p2p

PeerAnswers peers(const std::string& from, const std::string& to, bool can_access, const std::string& read,
                  const std::string& write) {
  PeerAnswers pair;
  pair.from = from;
  pair.to = to;
  pair.can_access = can_access;
  pair.read = read;
  pair.write = write;
  pair.atomics = "not_supported";
  return pair;
}

TestPatient many_gpus(int count) {
  TestPatient machine;
  machine.file("/proc/driver/nvidia/version", version_text("580.1.2"));
  for (int i = 0; i < count; ++i) machine.gpu("0000:0" + std::to_string(i + 1) + ":00.0");
  for (const GpuAnswers& from : machine.answers.gpus) {
    for (const GpuAnswers& to : machine.answers.gpus) {
      if (from.pci != to.pci) machine.answers.peers.push_back(peers(from.pci, to.pci, true, "ok", "ok"));
    }
  }
  return machine;
}

TEST(GpuP2p, MergesPairsThatAgree) {
  const Finding finding = only_finding(many_gpus(8), "gpu.p2p");
  EXPECT_EQ(finding.subject, "all 56 ordered pairs of 8 GPUs");
  expect_finding(finding, Verdict::pass, "read ok, write ok, atomics not_supported");
}

TEST(GpuP2p, TellsPairsThatDeviate) {
  TestPatient machine = many_gpus(4);
  machine.answers.peers[5] = peers("0000:02:00.0", "0000:04:00.0", false, "topology_not_supported", "topology_not_supported");
  EXPECT_EQ(machine.run("gpu.p2p").size(), 2u);
  EXPECT_EQ(finding_of(machine, "gpu.p2p", "11 of 12 ordered pairs of 4 GPUs").verdict, Verdict::pass);
  expect_finding(finding_of(machine, "gpu.p2p", "GPU 0000:02:00.0 to GPU 0000:04:00.0"), Verdict::warn, "(TNS)",
                 "gigabar topology");
}

TEST(GpuP2p, TellsThoseWithoutAccessOneByOneWhenHalfHaveIt) {
  TestPatient machine = many_gpus(3);
  for (PeerAnswers& pair : machine.answers.peers) {
    if (pair.from == "0000:03:00.0" || pair.to == "0000:01:00.0")
      pair = peers(pair.from, pair.to, false, "not_supported", "not_supported");
  }
  EXPECT_EQ(machine.run("gpu.p2p").size(), 4u) << to_text(machine.run("gpu.p2p"));
  EXPECT_EQ(finding_of(machine, "gpu.p2p", "3 of 6 ordered pairs of 3 GPUs").verdict, Verdict::pass);
  EXPECT_EQ(finding_of(machine, "gpu.p2p", "GPU 0000:03:00.0 to GPU 0000:02:00.0").verdict, Verdict::warn);
}

TEST(GpuP2p, TellsBothDirectionsWhenTheyDiffer) {
  TestPatient machine = many_gpus(2);
  machine.answers.peers[0] = peers("0000:01:00.0", "0000:02:00.0", true, "chipset_not_supported", "ok");
  expect_finding(finding_of(machine, "gpu.p2p", "GPU 0000:01:00.0 to GPU 0000:02:00.0"), Verdict::warn, "can write but not read",
                 "push it");
  EXPECT_EQ(finding_of(machine, "gpu.p2p", "GPU 0000:02:00.0 to GPU 0000:01:00.0").verdict, Verdict::pass);
}

TEST(GpuP2p, WarnsWithTheReason) {
  struct Case {
    const char* status;
    const char* words;
    const char* remedy;
  };
  for (const Case& one : {Case{"chipset_not_supported", "(CNS)", "one PCI switch"},
                          Case{"gpu_not_supported", "(GNS)", "host memory"}, Case{"disabled_by_regkey", "(DR)", "RegistryDwords"},
                          Case{"not_supported", "(NS)", "pci.acs"}, Case{"unknown", "names no reason", "nvidia-smi topo"}}) {
    TestPatient machine = many_gpus(2);
    for (PeerAnswers& pair : machine.answers.peers) pair = peers(pair.from, pair.to, false, one.status, one.status);
    expect_finding(only_finding(machine, "gpu.p2p"), Verdict::warn, one.words, one.remedy);
  }
}

TEST(GpuP2p, BelievesEitherLibrary) {
  TestPatient machine = many_gpus(2);
  for (PeerAnswers& pair : machine.answers.peers) pair.read = pair.write = pair.atomics = std::nullopt;
  expect_finding(only_finding(machine, "gpu.p2p"), Verdict::pass, "were not told one by one");
  for (PeerAnswers& pair : machine.answers.peers) {
    pair.can_access.reset();
    pair.read = pair.write = "ok";
  }
  expect_finding(only_finding(machine, "gpu.p2p"), Verdict::pass, "read ok, write ok, atomics not told");
}

TEST(GpuP2p, IsUnknownWithoutAnswers) {
  TestPatient machine = many_gpus(2);
  for (PeerAnswers& pair : machine.answers.peers) {
    pair.can_access.reset();
    pair.read = pair.write = pair.atomics = std::nullopt;
  }
  expect_finding(only_finding(machine, "gpu.p2p"), Verdict::unknown, "nothing says", "where CUDA works");
  machine.answers.peers.clear();
  expect_finding(only_finding(machine, "gpu.p2p"), Verdict::unknown, "nothing says whether the 2 GPUs", "where CUDA works");
  TestPatient partly = many_gpus(3);
  partly.answers.peers.resize(4);
  expect_finding(finding_of(partly, "gpu.p2p", ""), Verdict::unknown, "2 of 6 ordered pairs were not asked",
                 "CUDA_VISIBLE_DEVICES");
}

TEST(GpuP2p, SkipsForOneGpu) { expect_finding(only_finding(machine_with_driver(), "gpu.p2p"), Verdict::skip, "one GPU"); }

TEST(GpuP2p, ListsABoundedNumberOfPairs) {
  TestPatient machine = many_gpus(9);
  int status = 0;
  for (PeerAnswers& pair : machine.answers.peers) pair.read = "odd" + std::to_string(status++);
  const std::vector<Finding> findings = machine.run("gpu.p2p");
  EXPECT_EQ(findings.size(), 65u);
  expect_finding(findings.back(), Verdict::unknown, "8 more pairs", "topo -p2p");
}

// --- nvlink

std::vector<nvml::NvLink> links(unsigned active, unsigned total, bool is_switch = true) {
  std::vector<nvml::NvLink> list(total);
  for (unsigned i = 0; i < total; ++i) {
    list[i].is_active = i < active;
    list[i].is_switch = is_switch;
  }
  return list;
}

TEST(Nvlink, PassesWithAllLinks) {
  TestPatient machine = two_gpus();
  for (GpuAnswers& gpu : machine.answers.gpus) {
    gpu.nvlinks = links(18, 18);
    gpu.fabric_state = "completed";
  }
  const Finding finding = only_finding(machine, "nvlink");
  expect_finding(finding, Verdict::pass, "all 18 NVLinks of this GPU are active, through NVSwitches");
  EXPECT_EQ(finding.subject, "all 2 GPUs");
}

TEST(Nvlink, FailsOnInactiveLinks) {
  TestPatient machine = two_gpus();
  machine.answers.gpus[0].nvlinks = links(18, 18);
  machine.answers.gpus[1].nvlinks = links(15, 18);
  expect_finding(finding_of(machine, "nvlink", "GPU 0000:5e:00.0"), Verdict::fail, "3 of the 18 NVLinks", "nvidia-smi nvlink -e");
  EXPECT_EQ(finding_of(machine, "nvlink", "GPU 0000:3b:00.0").verdict, Verdict::pass);
  machine.answers.gpus[1].nvlinks = links(0, 18);
  expect_finding(finding_of(machine, "nvlink", "GPU 0000:5e:00.0"), Verdict::fail, "18 of the 18 NVLinks", "reset");
}

TEST(Nvlink, WarnsWithoutABridge) {
  TestPatient alone = machine_with_driver();
  alone.answers.gpus[0].nvlinks = links(0, 4, false);
  expect_finding(only_finding(alone, "nvlink"), Verdict::pass, "no other GPU to join");
  alone.answers.gpus[0].nvlinks = links(0, 18, true);
  EXPECT_EQ(alone.verdict("nvlink"), Verdict::warn);
  TestPatient machine = two_gpus();
  for (GpuAnswers& gpu : machine.answers.gpus) gpu.nvlinks = links(0, 4, false);
  expect_finding(only_finding(machine, "nvlink"), Verdict::warn, "none of the 4 NVLinks", "bridge");
}

TEST(Nvlink, FailsWhileTheFabricIsNotSetUp) {
  for (const char* state : {"not_started", "in_progress"}) {
    TestPatient machine = machine_with_driver();
    machine.answers.gpus[0].nvlinks = links(18, 18);
    machine.answers.gpus[0].fabric_state = state;
    expect_finding(only_finding(machine, "nvlink"), Verdict::fail, "error 802", "nvidia-fabricmanager");
  }
  TestPatient machine = machine_with_driver();
  machine.answers.gpus[0].nvlinks = links(18, 18);
  machine.answers.cuda = {AvailabilityCode::no_device, "system not yet initialized", "", {NativeDomain::cuda_driver, 802, ""}};
  expect_finding(finding_of(machine, "nvlink", ""), Verdict::fail, "error 802", "version must be the driver's");
}

TEST(Nvlink, SkipsWithoutLinks) {
  TestPatient machine = machine_with_driver();
  machine.answers.gpus[0].nvlinks.emplace();
  machine.answers.gpus[0].fabric_state = "not_supported";
  expect_finding(only_finding(machine, "nvlink"), Verdict::skip, "no GPU here has NVLinks");
}

TEST(Nvlink, IsUnknownWithoutNvml) {
  expect_finding(only_finding(machine_with_driver(), "nvlink"), Verdict::unknown, "did not say", "nvidia-smi nvlink -s");
  TestPatient machine = machine_with_driver();
  machine.topology.gpus[0].nvlinks_total = machine.topology.gpus[0].nvlinks_active = 4;
  expect_finding(only_finding(machine, "nvlink"), Verdict::pass, "all 4 NVLinks");
}

// --- bar1.size

constexpr const char* kRegisters = "0x00000000fa000000 0x00000000faffffff 0x0000000000040200\n";
constexpr const char* kEmpty = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";

TEST(Bar1Size, FromNvml) {
  TestPatient machine = machine_with_driver();
  machine.answers.gpus[0].bar1_total_bytes = 64 * kGiB;
  expect_finding(only_finding(machine, "bar1.size"), Verdict::pass, "is 64 GiB");
  machine.answers.gpus[0].bar1_total_bytes = 256 * kMiB;
  expect_finding(only_finding(machine, "bar1.size"), Verdict::warn, "only 256 MiB", "Resizable BAR");
  machine.topology.gpus[0].is_coherent = true;
  EXPECT_EQ(machine.verdict("bar1.size"), Verdict::pass);
}

TEST(Bar1Size, FromTheKernelsList) {
  TestPatient machine = machine_with_driver();
  machine.pci_file(kGpu, "resource",
                   std::string(kRegisters) + "0x00000000e0000000 0x00000000efffffff 0x000000000014220c\n" + kEmpty);
  expect_finding(only_finding(machine, "bar1.size"), Verdict::warn, "only 256 MiB", "Above 4G");
  // With 64-bit registers the second line is empty, and the third is the aperture.
  machine.pci_file(kGpu, "resource",
                   std::string(kRegisters) + kEmpty + "0x0000206000000000 0x0000207fffffffff 0x000000000014220c\n");
  const Finding finding = only_finding(machine, "bar1.size");
  expect_finding(finding, Verdict::pass, "is 128 GiB");
  EXPECT_TRUE(has_reading(finding, "/sys/bus/pci/devices/0000:3b:00.0/resource", "128 GiB"));
}

TEST(Bar1Size, IsUnknownWhenItCannotBeRead) {
  TestPatient machine = machine_with_driver();
  expect_finding(only_finding(machine, "bar1.size"), Verdict::unknown, "could not be read", "lspci -vs 0000:3b:00.0");
  for (const std::string& resource : {std::string(), std::string("words\nmore words\n"), std::string(kRegisters) + kEmpty + kEmpty,
                                      std::string(kRegisters) + "0x9 0x1 0x0\n" + "0x0 0xffffffffffffffff 0x0\n"}) {
    machine.pci_file(kGpu, "resource", resource);
    EXPECT_EQ(machine.verdict("bar1.size"), Verdict::unknown) << resource;
  }
}

// --- bar1.used

TEST(Bar1Used, OfEachFill) {
  TestPatient machine = machine_with_driver();
  GpuAnswers& gpu = machine.answers.gpus[0];
  gpu.bar1_total_bytes = 256 * kMiB;
  expect_finding(only_finding(machine, "bar1.used"), Verdict::unknown, "did not say", "nvidia-smi -q -d MEMORY");
  gpu.bar1_used_bytes = 6 * kMiB;
  expect_finding(only_finding(machine, "bar1.used"), Verdict::pass, "250 MiB of 256 MiB");
  gpu.bar1_used_bytes = 230 * kMiB;
  expect_finding(only_finding(machine, "bar1.used"), Verdict::warn, "26 MiB of 256 MiB is free", "fuser");
  gpu.bar1_used_bytes = 250 * kMiB;
  expect_finding(only_finding(machine, "bar1.used"), Verdict::fail, "is full: 6 MiB of 256 MiB is free", "end the programs");
  gpu.bar1_used_bytes = 300 * kMiB;
  expect_finding(only_finding(machine, "bar1.used"), Verdict::fail, "0 MiB of 256 MiB", "end the programs");
  gpu.bar1_total_bytes = 0;
  EXPECT_EQ(machine.verdict("bar1.used"), Verdict::unknown);
}

}  // namespace
}  // namespace gigabar::test
