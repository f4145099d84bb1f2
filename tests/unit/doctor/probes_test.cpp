// SPDX-License-Identifier: Apache-2.0
// The probes, on a machine of fakes: GPUs behind a libcuda.so.1 and RDMA devices behind a libibverbs.so.1.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "base/clock.hpp"
#include "fakes/paths.hpp"
#include "gigabar/mapping.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "unit/doctor/patient.hpp"

namespace gigabar {
namespace {

using test::TestPatient;
using test::to_text;

constexpr const char* kGpu = "0000:06:00.0";  // of the fake machine's first GPU

// What the fake libibverbs still holds.
int verbs_alive() {
  void* const library = ::dlopen(test::kFakeVerbsLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return 0;  // it was never opened
  const auto count = reinterpret_cast<int (*)()>(::dlsym(library, "gigabar_fake_verbs_alive"));
  ::dlclose(library);
  return count();
}

// The machine with one GPU and the RDMA devices of `verbs`, as a live patient. Fails the test for whatever a probe leaves behind.
class Scene {
 public:
  explicit Scene(const char* verbs, const char* library = test::kFakeVerbsLibrary)
      : library_("GIGABAR_VERBS_LIBRARY", library), devices_("GIGABAR_FAKE_VERBS_DEVICES", verbs) {
    patient.is_live = true;
  }
  ~Scene() {
    trim_mapping_cache();
    EXPECT_EQ(verbs_alive(), 0);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  // The GPU and one adapter in the topology, below one switch.
  Scene& with_topology(const char* nic = "mlx5_0") {
    patient.gpu(kGpu, {"0000:01:00.0", "0000:02:00.0"});
    patient.nic(nic, "0000:07:00.0", {"0000:01:00.0", "0000:02:01.0"});
    return *this;
  }

  test::FakeSession session;
  TestPatient patient;

 private:
  test::ScopedEnvironment library_, devices_;
};

const Finding* about(const std::vector<Finding>& findings, const std::string& subject) {
  const auto found = std::find_if(findings.begin(), findings.end(), [&](const Finding& it) { return it.subject == subject; });
  return found == findings.end() ? nullptr : &*found;
}

// The one finding of a check, with this verdict and these words in its statement and remedy.
void expect_one(const TestPatient& patient, const char* check, Verdict verdict, const std::string& words) {
  const std::vector<Finding> findings = patient.run(check);
  ASSERT_EQ(findings.size(), 1u) << to_text(findings);
  EXPECT_EQ(findings[0].verdict, verdict) << to_text(findings);
  EXPECT_NE((findings[0].statement + " | " + findings[0].remedy).find(words), std::string::npos) << to_text(findings);
  const bool needs_remedy = verdict == Verdict::warn || verdict == Verdict::fail || verdict == Verdict::unknown;
  EXPECT_EQ(findings[0].remedy.empty(), !needs_remedy) << to_text(findings);
}

const std::string kPair = std::string("GPU ") + kGpu + " and mlx5_0";

// ---- all probes

TEST(Probes, EachHasItsPage) {
  const std::vector<CheckInfo> probes = test::checks_of({"probe"});
  EXPECT_EQ(probes.size(), 7u);
  for (const CheckInfo& info : probes) {
    EXPECT_TRUE(info.is_probe) << info.id;
    for (const std::string_view part : {info.title, info.why, info.what, info.impact, info.confirm, info.remedy, info.source})
      EXPECT_FALSE(part.empty()) << info.id;
  }
}

ISOLATED_TEST(Probes, OfAnotherMachineAreSkipped) {
  Scene scene("mlx5_0");
  scene.with_topology().session.start();
  scene.patient.is_live = false;
  for (const CheckInfo& info : test::checks_of({"probe"}))
    expect_one(scene.patient, std::string(info.id).c_str(), Verdict::skip, "only on the machine itself");
}

ISOLATED_TEST(Probes, StandInsAreNoGpus) {
  Scene scene("");
  scene.with_topology().session.start();
  const test::ScopedEnvironment stand_in("GIGABAR_STAND_IN", "2");
  for (const char* check : {"probe.mapping", "probe.copy", "probe.link"})
    expect_one(scene.patient, check, Verdict::skip, "stand-ins");
}

ISOLATED_TEST(Probes, WithoutAGpu) {
  Scene scene("mlx5_0");
  scene.session.machine().gpu_count = 0;
  scene.session.start();
  for (const char* check : {"probe.mapping", "probe.copy", "probe.link", "probe.dmabuf", "probe.peermem"})
    expect_one(scene.patient, check, Verdict::skip, "has no GPU");
  expect_one(scene.patient, "probe.loop", Verdict::pass, "host memory");
  scene.with_topology();
  expect_one(scene.patient, "probe.mapping", Verdict::unknown, "cannot use CUDA");
}

ISOLATED_TEST(Probes, WithoutAnRdmaDevice) {
  Scene scene("");
  scene.session.start();
  for (const char* check : {"probe.host", "probe.dmabuf", "probe.peermem", "probe.loop"})
    expect_one(scene.patient, check, Verdict::skip, "has no RDMA device");
  scene.with_topology();
  for (const char* check : {"probe.host", "probe.dmabuf", "probe.peermem", "probe.loop"})
    expect_one(scene.patient, check, Verdict::unknown, "ibverbs-providers");
}

ISOLATED_TEST(Probes, WithoutLibibverbs) {
  Scene scene("mlx5_0", "/nonexistent/libibverbs.so.1");
  scene.session.start();
  expect_one(scene.patient, "probe.host", Verdict::skip, "has no RDMA device");
  scene.with_topology();
  expect_one(scene.patient, "probe.host", Verdict::unknown, "rdma-core");
}

// ---- probe.mapping and probe.copy

ISOLATED_TEST(ProbeMapping, MapsAndCompares) {
  Scene scene("");
  scene.session.machine().gpu_count = 2;
  scene.session.start();
  const auto findings = scene.patient.run("probe.mapping");
  ASSERT_EQ(findings.size(), 2u) << to_text(findings);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.verdict, Verdict::pass) << to_text(findings);
    EXPECT_NE(finding.statement.find("'rm'"), std::string::npos) << to_text(findings);
  }
  EXPECT_EQ(findings[0].subject, std::string("GPU ") + kGpu);
  const auto says_why = [](const Reading& reading) { return reading.source == "mapping by gdrdrv" && !reading.value.empty(); };
  EXPECT_TRUE(std::any_of(findings[0].readings.begin(), findings[0].readings.end(), says_why));
}

ISOLATED_TEST(ProbeMapping, AWindowOfOtherMemoryFails) {
  Scene scene("");
  scene.session.machine().is_rm_window_wrong = true;
  scene.session.start();
  expect_one(scene.patient, "probe.mapping", Verdict::fail, "cannot be mapped");
  expect_one(scene.patient, "probe.copy", Verdict::fail, "cannot be mapped");
}

ISOLATED_TEST(ProbeMapping, NoWayToMapFails) {
  Scene scene("");
  scene.session.machine().has_other_rm_structs = true;
  scene.session.start();
  expect_one(scene.patient, "probe.mapping", Verdict::fail, "cannot be mapped");
}

ISOLATED_TEST(ProbeMapping, AFullGpuIsUnknown) {
  Scene scene("");
  scene.session.start();
  scene.session.plant(fake::Call::cuda, "cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  for (const char* check : {"probe.mapping", "probe.copy", "probe.link"})
    expect_one(scene.patient, check, Verdict::unknown, "could not be allocated");
  scene.session.remove_faults();
}

ISOLATED_TEST(ProbeMapping, AFailingCopyEngineFails) {
  Scene scene("");
  scene.session.start();
  ASSERT_EQ(scene.patient.verdict("probe.mapping"), Verdict::pass) << "which leaves the device proved and the window mapped";
  scene.session.plant(fake::Call::cuda, "cuMemcpyDtoHAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(scene.patient.verdict("probe.mapping"), Verdict::fail);
  scene.session.remove_faults();
}

ISOLATED_TEST(ProbeCopy, TellsTimes) {
  Scene scene("");
  scene.session.start();
  const auto findings = scene.patient.run("probe.copy");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::pass) << to_text(findings);
  EXPECT_NE(findings[0].statement.find(" us"), std::string::npos);
  ASSERT_EQ(findings[0].readings.size(), 2u);
  EXPECT_EQ(findings[0].readings[0].source, "copy_to(4096 bytes)");
  EXPECT_GT(std::stod(findings[0].readings[1].value), 0.0);
}

// ---- probe.link

class LinkScene : public Scene {
 public:
  LinkScene() : Scene("") { session.start(); }
  void runs_at(const char* speed, const char* width) const {
    const std::string folder = std::string("sys/bus/pci/devices/") + kGpu;
    session.tree().write(folder + "/current_link_speed", speed);
    session.tree().write(folder + "/current_link_width", width);
  }
  void can_do(unsigned generation, unsigned width) {
    patient.gpu(kGpu);
    patient.answers.gpus[0].pcie_most_generation = generation;
    patient.answers.gpus[0].pcie_most_width = width;
  }
};

ISOLATED_TEST(ProbeLink, FullSpeed) {
  LinkScene scene;
  scene.runs_at("32.0 GT/s PCIe\n", "16\n");
  scene.can_do(5, 16);
  expect_one(scene.patient, "probe.link", Verdict::pass, "PCIe 5.0 x16 under load");
}

ISOLATED_TEST(ProbeLink, NarrowAndSlow) {
  LinkScene scene;
  scene.can_do(5, 16);
  scene.runs_at("32.0 GT/s PCIe\n", "8\n");
  expect_one(scene.patient, "probe.link", Verdict::warn, "reseat the card and its riser");
  scene.runs_at("16.0 GT/s PCIe\n", "16\n");
  expect_one(scene.patient, "probe.link", Verdict::warn, "PCIe 4.0 x16 under load, where GPU and slot can do PCIe 5.0 x16");
}

// A link that wakes up with the load.
ISOLATED_TEST(ProbeLink, AnIdleLinkIsNotADegradedOne) {
  LinkScene scene;
  scene.can_do(5, 16);
  scene.runs_at("2.5 GT/s PCIe\n", "16\n");
  std::thread wake([&scene] {
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
    scene.runs_at("32.0 GT/s PCIe\n", "16\n");
  });
  expect_one(scene.patient, "probe.link", Verdict::pass, "when idle it saves power as PCIe 1.0 x16");
  wake.join();
}

ISOLATED_TEST(ProbeLink, NobodyTells) {
  LinkScene scene;
  expect_one(scene.patient, "probe.link", Verdict::unknown, "neither the kernel nor the driver");
  scene.runs_at("16.0 GT/s PCIe\n", "16\n");
  expect_one(scene.patient, "probe.link", Verdict::unknown, "what it could do is not told");
  // The PCI tree tells instead of NVML: the slot can do less than the GPU.
  const int index = scene.patient.gpu(kGpu, {"0000:01:00.0"});
  scene.patient.topology.pci[static_cast<std::size_t>(scene.patient.topology.gpus[static_cast<std::size_t>(index)].pci)].link = {
      16, 16, 32, 16};
  scene.patient.topology.pci[static_cast<std::size_t>(scene.patient.topology.find_pci(*PciAddress::parse("0000:01:00.0")))].link = {
      16, 16, 16, 16};
  expect_one(scene.patient, "probe.link", Verdict::pass, "PCIe 4.0 x16");
}

ISOLATED_TEST(ProbeLink, AFailingCopyEngine) {
  LinkScene scene;
  scene.can_do(5, 16);
  scene.runs_at("2.5 GT/s PCIe\n", "16\n");
  scene.session.plant(fake::Call::cuda, "cuMemcpyHtoDAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_one(scene.patient, "probe.link", Verdict::fail, "copy engine failed");
  scene.session.remove_faults();
}

// ---- probe.host

ISOLATED_TEST(ProbeHost, Registers) {
  Scene scene("mlx5_0; mlx5_1 host=12; mlx5_2 open=13; mlx5_3 host=22");
  scene.session.start();
  scene.patient.answers.memlock_bytes = 65536;
  scene.patient.answers.can_lock_memory = false;
  const auto findings = scene.patient.run("probe.host");
  ASSERT_EQ(findings.size(), 4u) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_0")->verdict, Verdict::pass) << to_text(findings);
  const Finding* const limited = about(findings, "mlx5_1");
  EXPECT_EQ(limited->verdict, Verdict::fail);
  EXPECT_NE(limited->statement.find("65536 bytes"), std::string::npos) << to_text(findings);
  EXPECT_NE(limited->statement.find("ENOMEM 12"), std::string::npos) << to_text(findings);
  EXPECT_NE(limited->remedy.find("memlock"), std::string::npos);
  EXPECT_EQ(about(findings, "mlx5_2")->verdict, Verdict::unknown);
  EXPECT_EQ(about(findings, "mlx5_3")->verdict, Verdict::fail);

  scene.patient.answers.can_lock_memory = true;
  EXPECT_EQ(about(scene.patient.run("probe.host"), "mlx5_1")->remedy.find("ulimit"), std::string::npos) << "that is not the cause";
}

// ---- probe.dmabuf and probe.peermem

ISOLATED_TEST(ProbeDmaBuf, EachPair) {
  Scene scene("mlx5_0; mlx5_1 dmabuf=524; mlx5_2 dmabuf=95 peermem; mlx5_3 dmabuf=12; mlx5_4 dmabuf=22; mlx5_5 open=13");
  scene.with_topology().session.start();
  const auto findings = scene.patient.run("probe.dmabuf");
  ASSERT_EQ(findings.size(), 6u) << to_text(findings);
  const auto pair = [&](const char* name) { return about(findings, std::string("GPU ") + kGpu + " and " + name); };
  EXPECT_EQ(pair("mlx5_0")->verdict, Verdict::pass) << to_text(findings);
  EXPECT_EQ(pair("mlx5_1")->verdict, Verdict::fail);
  EXPECT_NE(pair("mlx5_1")->statement.find("PCI topology"), std::string::npos) << to_text(findings);
  EXPECT_NE(pair("mlx5_1")->statement.find("ENOTSUPP 524"), std::string::npos) << to_text(findings);
  EXPECT_EQ(pair("mlx5_2")->verdict, Verdict::warn) << to_text(findings);
  EXPECT_NE(pair("mlx5_2")->statement.find("nvidia-peermem works"), std::string::npos) << to_text(findings);
  EXPECT_NE(pair("mlx5_3")->remedy.find("BAR1"), std::string::npos) << to_text(findings);
  EXPECT_NE(pair("mlx5_4")->statement.find("EINVAL"), std::string::npos) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_5")->verdict, Verdict::unknown) << to_text(findings);
  for (const Finding& finding : findings) EXPECT_FALSE(finding.readings.empty()) << to_text({finding});
}

ISOLATED_TEST(ProbeDmaBuf, TheDriverCannotExport) {
  Scene scene("mlx5_0");
  scene.with_topology().session.machine().dma_buf_supported = 0;
  scene.session.start();
  expect_one(scene.patient, "probe.dmabuf", Verdict::fail, "before the adapter was asked");
}

ISOLATED_TEST(ProbeDmaBuf, AnOldRdmaCore) {
  Scene scene("mlx5_0", test::kFakeOldVerbsLibrary);
  scene.with_topology().session.start();
  expect_one(scene.patient, "probe.dmabuf", Verdict::fail, "rdma-core 34");
}

ISOLATED_TEST(ProbeDmaBuf, SoftwareDevicesCannot) {
  Scene scene("rxe0");
  scene.with_topology("rxe0").session.start();
  scene.patient.topology.nics[0].driver = "rxe";
  expect_one(scene.patient, "probe.dmabuf", Verdict::skip, "software");
  expect_one(scene.patient, "probe.peermem", Verdict::skip, "software");
  expect_one(scene.patient, "probe.loop", Verdict::pass, "host memory");
}

ISOLATED_TEST(ProbeDmaBuf, AFullGpuIsUnknown) {
  Scene scene("mlx5_0");
  scene.with_topology().session.start();
  scene.session.plant(fake::Call::cuda, "cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  expect_one(scene.patient, "probe.dmabuf", Verdict::unknown, "could not be allocated");
  expect_one(scene.patient, "probe.peermem", Verdict::unknown, "could not be allocated");
  scene.session.remove_faults();
}

ISOLATED_TEST(ProbePeerMemory, EachPair) {
  Scene scene("mlx5_0 peermem; mlx5_1; mlx5_2 dmabuf=95; mlx5_3 peermem gpu=12 dmabuf=95");
  scene.with_topology().session.start();
  const auto findings = scene.patient.run("probe.peermem");
  ASSERT_EQ(findings.size(), 4u) << to_text(findings);
  const auto pair = [&](const char* name) { return about(findings, std::string("GPU ") + kGpu + " and " + name); };
  EXPECT_EQ(pair("mlx5_0")->verdict, Verdict::pass) << to_text(findings);
  EXPECT_EQ(pair("mlx5_1")->verdict, Verdict::pass) << to_text(findings);
  EXPECT_NE(pair("mlx5_1")->statement.find("not needed"), std::string::npos) << to_text(findings);
  EXPECT_EQ(pair("mlx5_2")->verdict, Verdict::fail) << to_text(findings);
  EXPECT_NE(pair("mlx5_2")->statement.find("EFAULT 14"), std::string::npos) << to_text(findings);
  EXPECT_NE(pair("mlx5_2")->remedy.find("modprobe nvidia-peermem"), std::string::npos) << to_text(findings);
  EXPECT_NE(pair("mlx5_3")->remedy.find("BAR1"), std::string::npos) << to_text(findings);
}

// ---- probe.loop

// As it looks where nothing else runs: a busy machine may make one of two rates slow, and not five times out of five.
std::vector<Finding> look_until_passed(const Scene& scene) {
  std::vector<Finding> findings;
  for (int look = 0; look < 5; ++look) {
    findings = scene.patient.run("probe.loop");
    const Finding* const pair = about(findings, kPair);
    if (pair == nullptr || pair->verdict != Verdict::warn) break;
  }
  return findings;
}

ISOLATED_TEST(ProbeLoop, HostThenGpu) {
  Scene scene("mlx5_0 slow=2000");
  scene.with_topology().session.start();
  const auto findings = look_until_passed(scene);
  ASSERT_EQ(findings.size(), 2u) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_0")->verdict, Verdict::pass) << to_text(findings);
  ASSERT_NE(about(findings, kPair), nullptr) << to_text(findings);
  EXPECT_EQ(about(findings, kPair)->verdict, Verdict::pass) << to_text(findings);
  EXPECT_NE(about(findings, kPair)->statement.find("GB/s into"), std::string::npos) << to_text(findings);
}

ISOLATED_TEST(ProbeLoop, ByPeerMemory) {
  Scene scene("mlx5_0 slow=2000 dmabuf=95 peermem infiniband");
  scene.with_topology().session.start();
  const auto findings = look_until_passed(scene);
  ASSERT_NE(about(findings, kPair), nullptr) << to_text(findings);
  EXPECT_EQ(about(findings, kPair)->verdict, Verdict::pass) << to_text(findings);
  const auto is_peer = [](const Reading& reading) { return reading.value == "peer memory"; };
  const auto& readings = about(findings, kPair)->readings;
  EXPECT_TRUE(std::any_of(readings.begin(), readings.end(), is_peer));
}

ISOLATED_TEST(ProbeLoop, WrongDataFails) {
  Scene scene("mlx5_0 wrong; mlx5_1 wrong-gpu");
  scene.with_topology().session.start();
  const auto findings = scene.patient.run("probe.loop");
  ASSERT_EQ(findings.size(), 3u) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_0")->verdict, Verdict::fail) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_1")->verdict, Verdict::pass) << to_text(findings);
  const Finding* const pair = about(findings, std::string("GPU ") + kGpu + " and mlx5_1");
  ASSERT_NE(pair, nullptr) << to_text(findings);
  EXPECT_EQ(pair->verdict, Verdict::fail) << to_text(findings);
  EXPECT_NE(pair->remedy.find("pci.acs"), std::string::npos);
}

ISOLATED_TEST(ProbeLoop, ASlowGpuPathWarnsOnTheNearestAdapter) {
  Scene scene("mlx5_0 slow-gpu=1500; mlx5_9 slow-gpu=1500");
  scene.with_topology().session.start();
  scene.patient.nic("mlx5_9", "0000:90:00.0", {"0000:8f:00.0"}, 1);
  const auto findings = scene.patient.run("probe.loop");
  ASSERT_EQ(findings.size(), 4u) << to_text(findings);
  EXPECT_EQ(about(findings, kPair)->verdict, Verdict::warn) << to_text(findings);
  EXPECT_NE(about(findings, kPair)->statement.find("both are below 0.7 of host memory's rate"), std::string::npos)
      << to_text(findings);
  // 64 KiB in 1.5 ms, or longer where the processor is busy: at most 0.04 GB/s.
  EXPECT_NE(about(findings, kPair)->statement.find("at 0.0"), std::string::npos) << to_text(findings);
  const Finding* const far = about(findings, std::string("GPU ") + kGpu + " and mlx5_9");
  EXPECT_EQ(far->verdict, Verdict::pass) << to_text(findings);
  EXPECT_NE(far->statement.find("slower than host memory"), std::string::npos) << to_text(findings);
}

ISOLATED_TEST(ProbeLoop, WhatCannotBeTried) {
  Scene scene("siw0 iwarp; mlx5_0 down; mlx5_1 connect=110; mlx5_2 completion=12; mlx5_3 host=12; mlx5_4 open=13");
  scene.with_topology().session.start();
  const auto findings = scene.patient.run("probe.loop");
  ASSERT_EQ(findings.size(), 6u) << to_text(findings);
  EXPECT_EQ(about(findings, "siw0")->verdict, Verdict::unknown) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_0")->verdict, Verdict::unknown) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_1")->verdict, Verdict::fail) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_2")->verdict, Verdict::fail) << to_text(findings);
  EXPECT_NE(about(findings, "mlx5_2")->remedy.find("rdma.gid"), std::string::npos) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_3")->verdict, Verdict::unknown) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_4")->verdict, Verdict::unknown) << to_text(findings);
}

ISOLATED_TEST(ProbeLoop, IwarpAloneIsSkipped) {
  Scene scene("siw0 iwarp");
  scene.session.start();
  expect_one(scene.patient, "probe.loop", Verdict::skip, "rdma_cm");
}

ISOLATED_TEST(ProbeLoop, AnAdapterWithoutItsQueuePairsAloneIsSkipped) {
  Scene scene("efa0 unspecified");
  scene.session.start();
  expect_one(scene.patient, "probe.loop", Verdict::skip, "no RC queue pairs");
}

ISOLATED_TEST(ProbeLoop, AnAdapterWithoutItsQueuePairsIsNotTried) {
  Scene scene("efa0 unspecified; mlx5_0");
  scene.session.start();
  const auto findings = scene.patient.run("probe.loop");
  ASSERT_NE(about(findings, "efa0"), nullptr) << to_text(findings);
  EXPECT_EQ(about(findings, "efa0")->verdict, Verdict::unknown) << to_text(findings);
  EXPECT_NE(about(findings, "efa0")->statement.find("not tried: it has no RC queue pairs"), std::string::npos) << to_text(findings);
  EXPECT_NE(about(findings, "mlx5_0"), nullptr) << to_text(findings);
}

ISOLATED_TEST(ProbeLoop, GpuMemoryThatCannotBeRegistered) {
  Scene scene("mlx5_0 dmabuf=95");
  scene.with_topology().session.start();
  const auto findings = scene.patient.run("probe.loop");
  ASSERT_NE(about(findings, kPair), nullptr) << to_text(findings);
  EXPECT_EQ(about(findings, kPair)->verdict, Verdict::unknown) << to_text(findings);
  EXPECT_NE(about(findings, kPair)->remedy.find("probe.dmabuf"), std::string::npos);
}

ISOLATED_TEST(ProbeLoop, WhatNeverCompletesEndsInTime) {
  Scene scene("mlx5_0 stuck");
  scene.with_topology().session.start();
  const std::int64_t begin_ns = now_ns();
  expect_one(scene.patient, "probe.loop", Verdict::fail, "did not complete in time");
  EXPECT_LT(now_ns() - begin_ns, 10'000'000'000);
}

// A pair that there is no time for is unknown. No step is cut short, which would look like a failure.
ISOLATED_TEST(ProbeLoop, EndsWithTheExamination) {
  Scene scene("mlx5_0 slow=2000");
  scene.with_topology().session.start();
  scene.patient.end_ns = now_ns();
  const auto findings = scene.patient.run("probe.loop");
  ASSERT_EQ(findings.size(), 2u) << to_text(findings);
  EXPECT_EQ(about(findings, "mlx5_0")->verdict, Verdict::pass) << to_text(findings);
  EXPECT_EQ(about(findings, kPair)->verdict, Verdict::unknown) << to_text(findings);
  EXPECT_EQ(about(findings, kPair)->statement, doctor::kPairLeftOut);
}

// The GID of the topology is used: RoCE v2 and routable before all others.
ISOLATED_TEST(ProbeLoop, ChoosesTheGid) {
  Scene scene("mlx5_0");
  scene.session.machine().gpu_count = 0;
  scene.session.start();
  scene.patient.nic("mlx5_0", "0000:07:00.0");
  RdmaPort port;
  port.gids = {{0, "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", "eth0"},
               {7, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth0"},
               {9, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0"}};
  scene.patient.topology.nics[0].ports = {port};
  expect_one(scene.patient, "probe.loop", Verdict::fail, "ibv_query_gid");  // the fake has four GIDs
  scene.patient.topology.nics[0].ports[0].gids[2].index = 3;
  expect_one(scene.patient, "probe.loop", Verdict::pass, "host memory");
}

}  // namespace
}  // namespace gigabar
