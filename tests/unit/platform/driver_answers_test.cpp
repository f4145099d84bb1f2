// SPDX-License-Identifier: Apache-2.0
// What the drivers say: asked of fakes, and kept as JSON.
#include "platform/driver_answers.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "fakes/paths.hpp"
#include "platform/roots.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"
#include "unit/platform/document.hpp"
#if GIGABAR_HAS_CUDA
#include "support/fake_session.hpp"
#endif

namespace gigabar {
namespace {

using Json = nlohmann::json;
using test::answers_of;
using test::document_of;

const char* const kNowhere = "/nonexistent/library.so";

// A machine of which nothing is known but what a test writes into /proc and /dev.
class Bare {
 public:
  Bare() { set_platform_roots({folder_.path() + "/sys", folder_.path() + "/proc", folder_.path() + "/dev"}); }
  ~Bare() { set_platform_roots({}); }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  const test::TemporaryFolder& tree() const { return folder_; }

 private:
  test::TemporaryFolder folder_;
  test::ScopedEnvironment cuda_{"GIGABAR_CUDA_LIBRARY", kNowhere}, nvml_{"GIGABAR_NVML_LIBRARY", kNowhere},
      verbs_{"GIGABAR_VERBS_LIBRARY", kNowhere};
};

// ---- asking ----

ISOLATED_TEST(AskDrivers, NothingIsThere) {
  const Bare machine;
  const DriverAnswers answers = ask_drivers();
  for (const Availability* library : {&answers.cuda, &answers.nvml, &answers.verbs}) {
    EXPECT_FALSE(library->is_ok());
    EXPECT_FALSE(library->reason.empty());
    EXPECT_FALSE(library->remedy.empty());
  }
  EXPECT_FALSE(answers.cuda_version);
  EXPECT_TRUE(answers.driver_version.empty());
  EXPECT_FALSE(answers.verbs_has_dmabuf);
  EXPECT_TRUE(answers.gpus.empty() && answers.peers.empty() && answers.rdma_devices.empty());
  EXPECT_FALSE(answers.kernel_log) << "there is no /dev/kmsg";
  EXPECT_FALSE(answers.can_lock_memory);
  EXPECT_FALSE(answers.allowed_cpus);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  EXPECT_EQ(answers.memlock_bytes, limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur);
}

ISOLATED_TEST(AskDrivers, TheLogKeepsWhatMatters) {
  const Bare machine;
  machine.tree().write("dev/kmsg",
                       "6,1,1000,-;Command line: ro iommu=pt secret\n"
                       "4,2,2000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
                       " SUBSYSTEM=pci\n"
                       "6,3,3000,-;usb 1-1: new device, serial 12345\n"
                       "6,4,4000,c;mlx5_core 0000:5e:00.0: a line with a \x01 and \xff\n"
                       "no record at all: nvidia\n"
                       "3,5,5000,-;nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client\n"
                       "6,6,6000,-;pci 0000:00:01.0: DMAR: something" +
                           std::string(5000, 'x') + "\n");
  const DriverAnswers answers = ask_drivers();
  ASSERT_TRUE(answers.kernel_log);
  ASSERT_EQ(answers.kernel_log->size(), 4u);
  EXPECT_EQ(answers.kernel_log->at(0), "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
  EXPECT_EQ(answers.kernel_log->at(1), "mlx5_core 0000:5e:00.0: a line with a ? and ?");
  EXPECT_NE(answers.kernel_log->at(2).find("disagrees about version"), std::string::npos);
  EXPECT_EQ(answers.kernel_log->at(3).size(), 1024u) << "cut";
}

ISOLATED_TEST(AskDrivers, AHugeLogIsBounded) {
  const Bare machine;
  std::string log;
  for (int i = 0; i < 9000; ++i) log += "6,1,1,-;NVRM: line " + std::to_string(i) + "\n";
  machine.tree().write("dev/kmsg", log);
  const DriverAnswers answers = ask_drivers();
  ASSERT_TRUE(answers.kernel_log);
  ASSERT_EQ(answers.kernel_log->size(), 4096u);
  EXPECT_EQ(answers.kernel_log->back(), "NVRM: line 8999") << "the newest are kept";
}

ISOLATED_TEST(AskDrivers, TheLogMayNotBeRead) {
  const Bare machine;
  std::filesystem::create_directories(machine.tree().path() + "/dev/kmsg");  // opens, and cannot be read
  EXPECT_FALSE(ask_drivers().kernel_log);
}

ISOLATED_TEST(AskDrivers, ReadsTheProcess) {
  const Bare machine;
  machine.tree().write("proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\n");
  DriverAnswers answers = ask_drivers();
  EXPECT_EQ(answers.can_lock_memory, true);
  EXPECT_EQ(answers.allowed_cpus, "0-3,8");
  machine.tree().write("proc/self/status", "CapEff:\tffffffffffffbfff\nCpus_allowed_list:\t\n");
  answers = ask_drivers();
  EXPECT_EQ(answers.can_lock_memory, false);
  EXPECT_FALSE(answers.allowed_cpus);
  machine.tree().write("proc/self/status", "CapEff:\tnonsense\n");
  EXPECT_FALSE(ask_drivers().can_lock_memory);
}

#if GIGABAR_HAS_VERBS
ISOLATED_TEST(AskDrivers, RdmaDevices) {
  const Bare machine;
  const test::ScopedEnvironment library("GIGABAR_VERBS_LIBRARY", test::kFakeVerbsLibrary);
  const test::ScopedEnvironment devices("GIGABAR_FAKE_VERBS_DEVICES", "mlx5_0 mtu=4096 mtu=1024; mlx5_1 open=13");
  const DriverAnswers answers = ask_drivers();
  EXPECT_TRUE(answers.verbs.is_ok()) << answers.verbs.reason;
  EXPECT_EQ(answers.verbs_has_dmabuf, true);
  ASSERT_EQ(answers.rdma_devices.size(), 2u);
  EXPECT_EQ(answers.rdma_devices[0].name, "mlx5_0");
  EXPECT_FALSE(answers.rdma_devices[0].error);
  EXPECT_EQ(answers.rdma_devices[0].active_mtu, (std::vector<unsigned>{4096, 1024}));
  ASSERT_TRUE(answers.rdma_devices[1].error);
  EXPECT_NE(answers.rdma_devices[1].error->find("EACCES"), std::string::npos) << *answers.rdma_devices[1].error;
}

ISOLATED_TEST(AskDrivers, NoRdmaDevices) {
  const Bare machine;
  const test::ScopedEnvironment library("GIGABAR_VERBS_LIBRARY", test::kFakeVerbsLibrary);
  const test::ScopedEnvironment devices("GIGABAR_FAKE_VERBS_DEVICES", "");
  DriverAnswers answers = ask_drivers();
  EXPECT_EQ(answers.verbs.code, AvailabilityCode::no_device);
  EXPECT_EQ(answers.verbs_has_dmabuf, true);
  const test::ScopedEnvironment denies("GIGABAR_FAKE_VERBS_DENIES", "1");
  answers = ask_drivers();
  EXPECT_EQ(answers.verbs.code, AvailabilityCode::no_device);
  EXPECT_NE(answers.verbs.remedy.find("ib_uverbs"), std::string::npos);
}
#endif

#if GIGABAR_HAS_CUDA && GIGABAR_HAS_NVML
// CUDA sees two GPUs; NVML the first of them, and one that CUDA does not.
ISOLATED_TEST(AskDrivers, JoinsCudaAndNvml) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  session.machine().dma_buf_supported = 0;
  session.start();
  const std::string first = session.machine().gpus[0].pci_address, second = session.machine().gpus[1].pci_address;
  const test::ScopedEnvironment library("GIGABAR_NVML_LIBRARY", test::kFakeNvmlLibrary);
  const std::string listed = "0000:01:00.0 mig=1 peers=4,4,4; " + first +
                             " pcie=1x16 most=5x16 mig=0 persistence=1 fabric=3 reasons=1 remap=0 remap-failed=0 retirement=0 "
                             "links=2>switch@26562 c2c=1@44712 peers=0,0,5";
  const test::ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS", listed.c_str());
  const DriverAnswers answers = ask_drivers();
  EXPECT_TRUE(answers.cuda.is_ok());
  EXPECT_TRUE(answers.nvml.is_ok());
  EXPECT_EQ(answers.cuda_version, session.machine().cuda_version);
  EXPECT_EQ(answers.driver_version, session.machine().driver_version);
  ASSERT_EQ(answers.gpus.size(), 3u);

  const GpuAnswers& hidden = answers.gpus[0];
  EXPECT_EQ(hidden.pci, "0000:01:00.0");
  EXPECT_FALSE(hidden.cuda_index);
  EXPECT_TRUE(hidden.cuda_attributes.empty());
  EXPECT_EQ(hidden.is_mig_enabled, true);
  EXPECT_FALSE(hidden.pcie_generation);

  const GpuAnswers& gpu = answers.gpus[1];
  EXPECT_EQ(gpu.pci, first);
  EXPECT_EQ(gpu.cuda_index, 0);
  EXPECT_FALSE(gpu.name.empty());
  EXPECT_EQ(gpu.cuda_attributes.at("gpu_direct_rdma"), 1);
  EXPECT_EQ(gpu.cuda_attributes.at("dma_buf"), 0);
  EXPECT_EQ(gpu.cuda_attributes.at("vmm"), 1);
  EXPECT_EQ(gpu.cuda_attributes.at("integrated"), 0);
  EXPECT_EQ(gpu.cuda_attributes.at("gpu_direct_rdma_writes_ordering"), 100);
  EXPECT_EQ(gpu.cuda_attributes.at("flush_writes_options"), 1);
  EXPECT_EQ(gpu.cuda_attributes.at("host_native_atomics"), 0);
  EXPECT_EQ(gpu.is_mig_enabled, false);
  EXPECT_EQ(gpu.is_persistence_enabled, true);
  EXPECT_EQ(gpu.fabric_state, "completed");
  EXPECT_EQ(gpu.clocks_event_reasons, 1u);
  EXPECT_EQ(gpu.is_row_remap_pending, false);
  EXPECT_EQ(gpu.has_row_remap_failed, false);
  EXPECT_EQ(gpu.is_page_retirement_pending, false);
  EXPECT_EQ(gpu.bar1_total_bytes, 1ull << 38);
  EXPECT_EQ(gpu.bar1_used_bytes, 1ull << 20);
  EXPECT_EQ(gpu.pcie_generation, 1u);
  EXPECT_EQ(gpu.pcie_width, 16u);
  EXPECT_EQ(gpu.pcie_most_generation, 5u);
  EXPECT_EQ(gpu.pcie_most_width, 16u);
  ASSERT_TRUE(gpu.nvlinks);
  EXPECT_EQ(gpu.nvlinks->size(), 2u);
  EXPECT_EQ(gpu.c2c_links, 1u);

  const GpuAnswers& unknown_to_nvml = answers.gpus[2];
  EXPECT_EQ(unknown_to_nvml.pci, second);
  EXPECT_EQ(unknown_to_nvml.cuda_index, 1);
  EXPECT_EQ(unknown_to_nvml.uuid.substr(0, 4), "GPU-");
  EXPECT_FALSE(unknown_to_nvml.is_mig_enabled);
  EXPECT_FALSE(unknown_to_nvml.nvlinks);

  const auto pair = [&](const std::string& from, const std::string& to) -> const PeerAnswers* {
    for (const PeerAnswers& peer : answers.peers) {
      if (peer.from == from && peer.to == to) return &peer;
    }
    return nullptr;
  };
  ASSERT_NE(pair(first, second), nullptr);
  EXPECT_EQ(pair(first, second)->can_access, session.machine().has_peer_access);
  EXPECT_FALSE(pair(first, second)->read) << "NVML does not know the second";
  ASSERT_NE(pair(first, "0000:01:00.0"), nullptr);
  EXPECT_FALSE(pair(first, "0000:01:00.0")->can_access) << "CUDA does not know it";
  EXPECT_EQ(pair(first, "0000:01:00.0")->read, "ok");
  EXPECT_EQ(pair(first, "0000:01:00.0")->atomics, "not_supported");
  EXPECT_EQ(pair("0000:01:00.0", first)->write, "disabled_by_regkey");
  EXPECT_EQ(pair("0000:01:00.0", second), nullptr) << "nobody can tell";
}

ISOLATED_TEST(AskDrivers, ADriverWithoutAttributesAndPeers) {
  test::FakeSession session;
  session.machine().gpu_count = 2;
  std::strncpy(session.machine().hidden_symbol, "cuDeviceCanAccessPeer", sizeof session.machine().hidden_symbol - 1);
  session.start();
  session.plant(fake::Call::cuda, "cuDeviceGetAttribute", CUDA_ERROR_INVALID_VALUE);
  const DriverAnswers answers = ask_drivers();
  ASSERT_EQ(answers.gpus.size(), 2u);
  EXPECT_TRUE(answers.gpus[0].cuda_attributes.empty());
  EXPECT_TRUE(answers.peers.empty());
  EXPECT_FALSE(answers.nvml.is_ok());
  session.remove_faults();
}

ISOLATED_TEST(AskDrivers, CudaWithoutAGpu) {
  test::FakeSession session;
  session.machine().gpu_count = 0;
  session.start();
  const DriverAnswers answers = ask_drivers();
  EXPECT_EQ(answers.cuda.code, AvailabilityCode::no_device);
  EXPECT_EQ(answers.cuda_version, session.machine().cuda_version);
  EXPECT_TRUE(answers.gpus.empty());
}
#endif

// ---- as JSON ----

DriverAnswers full_answers() {
  DriverAnswers answers;
  answers.cuda = {AvailabilityCode::ok, "CUDA 13.0, 1 device(s)", "", {}};
  answers.nvml = {AvailabilityCode::no_permission, "nvmlInit failed", "check nvidia-smi", {}};
  answers.verbs = {AvailabilityCode::library_missing, "no such file", "install rdma-core", {}};
  answers.cuda_version = 13000;
  answers.driver_version = "580.159.04";
  answers.verbs_has_dmabuf = false;
  GpuAnswers gpu;
  gpu.pci = "0000:3b:00.0";
  gpu.uuid = "GPU-1";
  gpu.name = "NVIDIA H200";
  gpu.cuda_index = 0;
  gpu.cuda_attributes = {{"dma_buf", 1}, {"integrated", -3}};
  gpu.is_mig_enabled = true;
  gpu.is_persistence_enabled = false;
  gpu.bar1_total_bytes = 1ull << 38;
  gpu.bar1_used_bytes = 5;
  gpu.pcie_generation = 1;
  gpu.pcie_width = 8;
  gpu.pcie_most_generation = 5;
  gpu.pcie_most_width = 16;
  gpu.nvlinks = std::vector<nvml::NvLink>{{true, true, "00000000:05:00.0", 26562}, {}};
  gpu.c2c_links = 10;
  gpu.fabric_state = "completed";
  gpu.clocks_event_reasons = UINT64_MAX;
  gpu.is_row_remap_pending = true;
  gpu.has_row_remap_failed = false;
  gpu.is_page_retirement_pending = true;
  answers.gpus = {gpu};
  answers.peers = {{"0000:3b:00.0", "0000:5e:00.0", false, "ok", "not_supported", "unknown"}};
  answers.rdma_devices = {{"mlx5_0", "ibv_open_device failed", {4096, 0}}};
  answers.kernel_log = std::vector<std::string>{"NVRM: Xid 79", ""};
  answers.can_lock_memory = true;
  answers.memlock_bytes = UINT64_MAX;
  answers.allowed_cpus = "0-15";
  return answers;
}

TEST(AnswersAsJson, EveryFieldComesBack) {
  const Json written = document_of(full_answers());
  const auto read = answers_of(written);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(document_of(*read), written);
  EXPECT_EQ(read->nvml.code, AvailabilityCode::no_permission);
  EXPECT_EQ(read->nvml.remedy, "check nvidia-smi");
  EXPECT_EQ(read->verbs_has_dmabuf, false);
  ASSERT_EQ(read->gpus.size(), 1u);
  const GpuAnswers& gpu = read->gpus[0];
  EXPECT_EQ(gpu.cuda_attributes, full_answers().gpus[0].cuda_attributes);
  EXPECT_EQ(gpu.cuda_index, 0);
  EXPECT_EQ(gpu.clocks_event_reasons, UINT64_MAX);
  EXPECT_EQ(gpu.is_persistence_enabled, false);
  ASSERT_TRUE(gpu.nvlinks);
  ASSERT_EQ(gpu.nvlinks->size(), 2u);
  EXPECT_TRUE(gpu.nvlinks->at(0).is_active && gpu.nvlinks->at(0).is_switch);
  EXPECT_EQ(gpu.nvlinks->at(0).remote_pci, "00000000:05:00.0");
  EXPECT_EQ(gpu.nvlinks->at(0).mb_per_s, 26562u);
  EXPECT_EQ(read->peers[0].can_access, false);
  EXPECT_EQ(read->peers[0].atomics, "unknown");
  EXPECT_EQ(read->rdma_devices[0].active_mtu, (std::vector<unsigned>{4096, 0}));
  EXPECT_EQ(read->rdma_devices[0].error, "ibv_open_device failed");
  EXPECT_EQ(read->kernel_log->size(), 2u);
  EXPECT_EQ(read->memlock_bytes, UINT64_MAX);
  EXPECT_EQ(read->allowed_cpus, "0-15");
}

// Each key that the full document has, left out in turn: what is absent stays absent, and nothing else changes.
TEST(AnswersAsJson, WhatIsAbsentStaysAbsent) {
  const Json full = document_of(full_answers());
  for (const char* key : {"/cuda_version",
                          "/driver_version",
                          "/verbs_has_dmabuf",
                          "/kernel_log",
                          "/can_lock_memory",
                          "/memlock_bytes",
                          "/allowed_cpus",
                          "/gpus/0/cuda_index",
                          "/gpus/0/is_mig_enabled",
                          "/gpus/0/is_persistence_enabled",
                          "/gpus/0/bar1_total_bytes",
                          "/gpus/0/bar1_used_bytes",
                          "/gpus/0/pcie_generation",
                          "/gpus/0/pcie_width",
                          "/gpus/0/pcie_most_generation",
                          "/gpus/0/pcie_most_width",
                          "/gpus/0/nvlinks",
                          "/gpus/0/c2c_links",
                          "/gpus/0/fabric_state",
                          "/gpus/0/clocks_event_reasons",
                          "/gpus/0/is_row_remap_pending",
                          "/gpus/0/has_row_remap_failed",
                          "/gpus/0/is_page_retirement_pending",
                          "/gpus/0/uuid",
                          "/gpus/0/name",
                          "/peers/0/can_access",
                          "/peers/0/read",
                          "/peers/0/write",
                          "/peers/0/atomics",
                          "/rdma_devices/0/error"}) {
    const Json::json_pointer pointer(key);
    ASSERT_TRUE(full.contains(pointer)) << key;
    const Json without = full.patch({{{"op", "remove"}, {"path", key}}});
    const auto read = answers_of(without);
    ASSERT_TRUE(read) << key << ": " << read.error().message();
    EXPECT_EQ(document_of(*read), without) << key;
  }
}

TEST(AnswersAsJson, NothingAtAll) {
  const auto read = answers_of(Json::object());
  ASSERT_TRUE(read) << read.error().message();
  for (const Availability* library : {&read->cuda, &read->nvml, &read->verbs}) {
    EXPECT_FALSE(library->is_ok()) << "not told is not ok";
    EXPECT_FALSE(library->reason.empty());
  }
  EXPECT_TRUE(read->gpus.empty() && read->peers.empty() && read->rdma_devices.empty());
  EXPECT_FALSE(read->kernel_log || read->can_lock_memory || read->memlock_bytes || read->allowed_cpus || read->cuda_version);
  const DriverAnswers empty;
  const auto again = answers_of(document_of(empty));
  ASSERT_TRUE(again);
  EXPECT_EQ(to_json(*again), to_json(empty));
}

TEST(AnswersAsJson, KeysOfANewerVersionAreLeftAside) {
  Json document = document_of(full_answers());
  document["a_new_key"] = {1, 2, 3};
  document["gpus"][0]["another"] = "x";
  const auto read = answers_of(document);
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), to_json(full_answers()));
}

void expect_refused(const char* path, Json value, const char* place) {
  Json document = document_of(full_answers());
  document[Json::json_pointer(path)] = std::move(value);
  const auto read = answers_of(document);
  ASSERT_FALSE(read) << path;
  EXPECT_EQ(read.status(), Status::bad_file) << path;
  EXPECT_NE(read.error().message().find(place), std::string::npos) << read.error().message();
}

TEST(AnswersAsJson, WrongTypesAreRefusedWithTheirPlace) {
  expect_refused("", "text", "the answers");
  expect_refused("/cuda", 3, "cuda");
  expect_refused("/cuda/code", "fine", "cuda.code");
  expect_refused("/cuda/code", 7, "cuda.code");
  expect_refused("/nvml/reason", Json::array(), "nvml.reason");
  expect_refused("/cuda_version", "13.0", "cuda_version");
  expect_refused("/cuda_version", 1.5, "cuda_version");
  expect_refused("/cuda_version", std::uint64_t{1} << 40, "cuda_version");
  expect_refused("/cuda_version", std::numeric_limits<std::int64_t>::min(), "cuda_version");
  expect_refused("/verbs_has_dmabuf", 1, "verbs_has_dmabuf");
  expect_refused("/verbs_has_dmabuf", nullptr, "verbs_has_dmabuf");
  expect_refused("/gpus", Json::object(), "gpus");
  expect_refused("/gpus/0", "a GPU", "gpus[0]");
  expect_refused("/gpus/0/pci", 5, "gpus[0].pci");
  expect_refused("/gpus/0/cuda_attributes", Json::array(), "gpus[0].cuda_attributes");
  expect_refused("/gpus/0/cuda_attributes/dma_buf", true, "gpus[0].cuda_attributes.dma_buf");
  expect_refused("/gpus/0/pcie_width", -1, "gpus[0].pcie_width");
  expect_refused("/gpus/0/pcie_width", std::uint64_t{1} << 32, "gpus[0].pcie_width");
  expect_refused("/gpus/0/nvlinks/1/mb_per_s", "fast", "gpus[0].nvlinks[1].mb_per_s");
  expect_refused("/peers/0", Json::array(), "peers[0]");
  expect_refused("/peers/0/to", nullptr, "peers[0].to");
  expect_refused("/rdma_devices/0/active_mtu/1", "4096", "rdma_devices[0].active_mtu[1]");
  expect_refused("/kernel_log/0", 1, "kernel_log[0]");
  expect_refused("/memlock_bytes", -1, "memlock_bytes");
}

TEST(AnswersAsJson, WhatIsNeededMustBeThere) {
  for (const char* key : {"/cuda/code", "/gpus/0/pci", "/peers/0/from", "/peers/0/to", "/rdma_devices/0/name"}) {
    const Json without = document_of(full_answers()).patch({{{"op", "remove"}, {"path", key}}});
    const auto read = answers_of(without);
    ASSERT_FALSE(read) << key;
    EXPECT_EQ(read.status(), Status::bad_file);
  }
}

TEST(AnswersAsJson, WhatIsTooLargeIsRefused) {
  const std::string long_text(4097, 'x');
  expect_refused("/driver_version", long_text, "driver_version");
  expect_refused("/gpus/0/fabric_state", long_text, "gpus[0].fabric_state");
  expect_refused("/gpus", Json::array_t(4097, Json{{"pci", "x"}}), "gpus");
  expect_refused("/kernel_log", Json::array_t(4097, "x"), "kernel_log");
  expect_refused("/rdma_devices/0/active_mtu", Json::array_t(4097, 1), "rdma_devices[0].active_mtu");
  Json many = Json::object();
  for (int i = 0; i < 4097; ++i) many[std::to_string(i)] = i;
  expect_refused("/gpus/0/cuda_attributes", many, "gpus[0].cuda_attributes");
  expect_refused("/gpus/0/cuda_attributes", Json{{long_text, 1}}, "gpus[0].cuda_attributes");
}

// A library's sentence can be of any encoding and length; what is written can always be read.
TEST(AnswersAsJson, TextOfAnyKindCanBeWritten) {
  DriverAnswers answers = full_answers();
  answers.cuda.reason = "cannot open /home/\xff\xfe/libcuda.so";
  answers.kernel_log = std::vector<std::string>{std::string(9000, '\xc3'), std::string(5000, 'a')};
  const auto read = driver_answers_of(to_json(answers));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_TRUE(read->cuda.reason.starts_with("cannot open /home/"));
  EXPECT_FALSE(read->kernel_log->at(1).empty());
}

}  // namespace
}  // namespace gigabar
