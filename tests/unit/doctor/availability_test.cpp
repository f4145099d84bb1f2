// SPDX-License-Identifier: Apache-2.0
// Which paths a machine has: doctor/availability.cpp.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "doctor/check.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar::test {
namespace {

// A machine with two GPUs, an mlx5 adapter, and everything that any path needs.
struct WholeMachine {
  std::map<std::string, std::string> files{
      {"/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  610.1.2  Release Build\n"},
      {"/proc/driver/nvidia/params", "EnableStreamMemOPs: 1\nRegistryDwords: \"PeerMappingOverride=1;\"\n"},
      {"/proc/sys/kernel/osrelease", "6.1.0\n"},
      {"/boot/config-6.1.0", "CONFIG_PCI_P2PDMA=y\nCONFIG_DMA_SHARED_BUFFER=y\nCONFIG_DMABUF_MOVE_NOTIFY=y\n"},
      {"/sys/module/nvidia_peermem/version", "610.1.2\n"},
      {"/sys/module/gdrdrv/version", "2.5\n"}};
  std::map<std::string, std::string> unreadable;
  std::map<std::string, bool> nodes{{"/dev/nvidiactl", true}, {"/dev/nvidia0", true}, {"/dev/gdrdrv", true}};
  DriverAnswers answers;
  Topology topology;

  WholeMachine() {
    answers.cuda_version = 13030;
    answers.verbs_has_dmabuf = true;
    for (const char* address : {"0000:01:00.0", "0000:02:00.0"}) {
      Gpu gpu;
      gpu.address = *PciAddress::parse(address);
      topology.gpus.push_back(gpu);
      GpuAnswers answer;
      answer.pci = address;
      answer.cuda_attributes = {{"gpu_direct_rdma", 1}, {"dma_buf", 1}, {"dma_buf_mmap", 1}};
      answer.nvlinks.emplace(4).front().is_active = true;
      answers.gpus.push_back(answer);
    }
    PeerAnswers pair;
    pair.can_access = true;
    answers.peers = {pair, pair};
    Nic nic;
    nic.name = nic.rdma_device = "mlx5_0";
    nic.driver = "mlx5_core";
    nic.ports.emplace_back().state = "ACTIVE";
    topology.nics.push_back(nic);
  }

  nlohmann::json archive() const {
    nlohmann::json devices = nlohmann::json::object();
    for (const auto& [path, is_usable] : nodes) {
      devices[path] = {{"mode", 0666}, {"major", 195}, {"minor", 0}, {"can_read", is_usable}, {"can_write", is_usable}};
    }
    return {{"format", "gigabar-machine"}, {"version", 1}, {"files", files}, {"unreadable", unreadable}, {"devices", devices}};
  }

  std::map<std::string, PathReport> paths() const {
    const Result<SystemFiles> found = SystemFiles::of_archive(archive().dump());
    EXPECT_TRUE(found);
    std::map<std::string, PathReport> reports;
    if (!found) return reports;
    for (PathReport& report : doctor::availability_of({*found, answers, topology, false})) reports[report.path] = std::move(report);
    return reports;
  }

  Availability path(const std::string& name) const { return paths().at(name).availability; }
};

void expect_not(const Availability& availability, AvailabilityCode code, std::string_view words) {
  EXPECT_EQ(availability.code, code) << name_of(availability.code) << ": " << availability.reason;
  EXPECT_NE(availability.reason.find(words), std::string::npos) << availability.reason;
}

TEST(Availability, OfAMachineWithEverything) {
  const auto paths = WholeMachine().paths();
  ASSERT_EQ(paths.size(), 9u);
  for (const auto& [name, report] : paths) {
    EXPECT_TRUE(report.availability.is_ok()) << name << ": " << report.availability.reason;
    EXPECT_FALSE(report.availability.reason.empty()) << name;
    EXPECT_FALSE(report.description.empty()) << name;
    EXPECT_NE(find_check(report.check), nullptr) << name << ": there is no check " << report.check;
  }
  for (const char* name :
       {"mapping.dmabuf", "mapping.gdrdrv", "mapping.rm", "gdr.dmabuf", "gdr.peermem", "p2p", "nvlink", "rdma", "gin"}) {
    EXPECT_TRUE(paths.contains(name)) << name;
  }
  EXPECT_NE(paths.at("p2p").availability.reason.find("2 of 2 ordered pairs"), std::string::npos);
  EXPECT_NE(paths.at("nvlink").availability.reason.find("2 of 8 NVLinks"), std::string::npos);
}

TEST(Availability, OfAMachineWithNothing) {
  WholeMachine machine;
  machine.files.clear();
  machine.nodes.clear();
  machine.answers = {};
  machine.topology = {};
  for (const auto& [name, report] : machine.paths()) {
    EXPECT_EQ(report.availability.code, AvailabilityCode::no_device) << name;
    EXPECT_NE(report.availability.reason.find("this machine has no"), std::string::npos) << report.availability.reason;
  }
}

TEST(Availability, OfAMachineWhoseDevicesAreHidden) {
  WholeMachine machine;
  machine.files.clear();
  machine.nodes.clear();
  machine.answers = {};
  machine.topology = {};
  machine.unreadable = {{"/sys/bus/pci/devices", "permission denied"}, {"/sys/class/infiniband", "permission denied"}};
  for (const auto& [name, report] : machine.paths()) {
    expect_not(report.availability, AvailabilityCode::driver_unknown, "cannot be read (permission denied)");
    EXPECT_FALSE(report.availability.remedy.empty()) << name;
  }
}

TEST(Availability, GivesTheLibrariesOwnReason) {
  WholeMachine machine;
  machine.answers.cuda = {AvailabilityCode::library_missing, "libcuda.so.1 cannot be opened", "install it", {}};
  for (const char* name : {"mapping.dmabuf", "mapping.gdrdrv", "mapping.rm", "p2p", "gin"}) {
    expect_not(machine.path(name), AvailabilityCode::library_missing, "libcuda.so.1");
    EXPECT_EQ(machine.path(name).remedy, "install it");
  }
  WholeMachine other;
  other.answers.verbs = {AvailabilityCode::symbol_missing, "libibverbs is too old", "", {}};
  for (const char* name : {"gdr.dmabuf", "gdr.peermem", "rdma", "gin"}) {
    expect_not(other.path(name), AvailabilityCode::symbol_missing, "libibverbs is too old");
  }
}

TEST(Availability, OfMapping) {
  WholeMachine machine;
  machine.answers.cuda_version = 13000;
  expect_not(machine.path("mapping.dmabuf"), AvailabilityCode::driver_too_old, "CUDA 13.0; 13.3 is needed");
  machine.answers.cuda_version.reset();
  expect_not(machine.path("mapping.dmabuf"), AvailabilityCode::driver_unknown, "cannot be told");
  machine.answers.cuda_version = 13030;
  for (GpuAnswers& gpu : machine.answers.gpus) gpu.cuda_attributes["dma_buf_mmap"] = 0;
  expect_not(machine.path("mapping.dmabuf"), AvailabilityCode::not_supported, "DMA_BUF_MMAP_SUPPORTED");
  for (GpuAnswers& gpu : machine.answers.gpus) gpu.cuda_attributes.erase("dma_buf_mmap");
  expect_not(machine.path("mapping.dmabuf"), AvailabilityCode::driver_unknown, "was not asked");

  machine.files["/sys/module/gdrdrv/version"] = "2.4\n";
  expect_not(machine.path("mapping.gdrdrv"), AvailabilityCode::driver_too_old, "gdrdrv 2.4");
  machine.files.erase("/sys/module/gdrdrv/version");
  expect_not(machine.path("mapping.gdrdrv"), AvailabilityCode::driver_unknown, "version of gdrdrv");
  machine.nodes["/dev/gdrdrv"] = false;
  expect_not(machine.path("mapping.gdrdrv"), AvailabilityCode::no_permission, "/dev/gdrdrv");
  machine.nodes.erase("/dev/gdrdrv");
  expect_not(machine.path("mapping.gdrdrv"), AvailabilityCode::no_device, "/dev/gdrdrv is missing");

  machine.nodes["/dev/nvidia0"] = false;
  expect_not(machine.path("mapping.rm"), AvailabilityCode::no_permission, "/dev/nvidia0");
  machine.nodes.erase("/dev/nvidiactl");
  expect_not(machine.path("mapping.rm"), AvailabilityCode::no_device, "/dev/nvidiactl is missing");
}

TEST(Availability, OfRdmaOnGpuMemory) {
  WholeMachine machine;
  machine.files["/proc/sys/kernel/osrelease"] = "5.4.0\n";
  expect_not(machine.path("gdr.dmabuf"), AvailabilityCode::not_supported, "older than 5.12");
  machine.files["/proc/sys/kernel/osrelease"] = "6.2.0\n";
  expect_not(machine.path("gdr.dmabuf"), AvailabilityCode::driver_unknown, "how kernel 6.2.0 was built");
  machine.files.erase("/sys/module/nvidia_peermem/version");
  expect_not(machine.path("gdr.peermem"), AvailabilityCode::no_device, "nvidia-peermem is not loaded");
  for (GpuAnswers& gpu : machine.answers.gpus) gpu.cuda_attributes["gpu_direct_rdma"] = 0;
  expect_not(machine.path("gdr.dmabuf"), AvailabilityCode::not_supported, "no GPU here supports");
  expect_not(machine.path("gdr.peermem"), AvailabilityCode::not_supported, "no GPU here supports");
}

TEST(Availability, OfGpusAmongEachOther) {
  WholeMachine machine;
  for (PeerAnswers& pair : machine.answers.peers) pair.can_access = false;
  expect_not(machine.path("p2p"), AvailabilityCode::not_supported, "none of 2 ordered pairs");
  machine.answers.peers.clear();
  expect_not(machine.path("p2p"), AvailabilityCode::driver_unknown, "cannot be told");
  for (GpuAnswers& gpu : machine.answers.gpus) gpu.nvlinks->front().is_active = false;
  expect_not(machine.path("nvlink"), AvailabilityCode::not_supported, "none of 8 NVLinks");
  machine.answers.gpus[0].fabric_state = "in_progress";
  expect_not(machine.path("nvlink"), AvailabilityCode::not_supported, "fabric is not set up");
  machine.answers.gpus[0].fabric_state.reset();
  for (GpuAnswers& gpu : machine.answers.gpus) gpu.nvlinks->clear();
  expect_not(machine.path("nvlink"), AvailabilityCode::no_device, "no GPU here has NVLinks");
  for (GpuAnswers& gpu : machine.answers.gpus) gpu.nvlinks.reset();
  expect_not(machine.path("nvlink"), AvailabilityCode::driver_unknown, "cannot be told");
  machine.answers.gpus.pop_back();
  machine.topology.gpus.pop_back();
  expect_not(machine.path("p2p"), AvailabilityCode::no_device, "one GPU");
}

TEST(Availability, OfTheNetwork) {
  WholeMachine machine;
  machine.topology.nics[0].ports[0].state = "DOWN";
  expect_not(machine.path("rdma"), AvailabilityCode::not_supported, "none of 1 RDMA ports");
  machine.answers.rdma_devices = {{"mlx5_0", "permission denied (EACCES)", {}}};
  expect_not(machine.path("rdma"), AvailabilityCode::no_permission, "permission denied (EACCES)");
  machine.answers.rdma_devices.clear();
  machine.topology.nics[0].ports.clear();
  expect_not(machine.path("rdma"), AvailabilityCode::driver_unknown, "no port's state");
  machine.files["/proc/driver/nvidia/params"] = "EnableStreamMemOPs: 0\nRegistryDwords: \"\"\n";
  expect_not(machine.path("gin"), AvailabilityCode::not_supported, "runs without PeerMappingOverride=1");
  machine.files.erase("/proc/driver/nvidia/params");
  expect_not(machine.path("gin"), AvailabilityCode::driver_unknown, "could not be read");
  machine.topology.nics[0].driver = "efa";
  expect_not(machine.path("gin"), AvailabilityCode::no_device, "ConnectX or BlueField");
}

TEST(Availability, OfACapturedMachine) {
  const TemporaryFolder folder;
  folder.write("machine.json", WholeMachine().archive().dump());
  const auto machine = Machine::open(folder.path() + "/machine.json");
  ASSERT_TRUE(machine) << machine.error().message();
  const std::vector<PathReport> reports = availability(*machine);
  ASSERT_EQ(reports.size(), 9u);
  for (const PathReport& report : reports) {
    EXPECT_FALSE(report.availability.is_ok() && report.availability.reason.empty()) << report.path;
    EXPECT_NE(find_check(report.check), nullptr) << report.path << ": there is no check " << report.check;
  }
}

TEST(Availability, OfThisMachine) {
  const std::vector<PathReport> reports = availability(Machine::here());
  ASSERT_EQ(reports.size(), 9u);
  for (const PathReport& report : reports) EXPECT_FALSE(report.availability.reason.empty()) << report.path;
}

}  // namespace
}  // namespace gigabar::test
