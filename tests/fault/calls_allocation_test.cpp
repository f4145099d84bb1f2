// SPDX-License-Identifier: Apache-2.0
// Host memory runs out at every single allocation of streams, topology, doctor and calibration, in turn, or in long calls once on
// each path that leads to an allocation: the call answers out_of_memory, or an empty value where it answers a value, nothing is
// thrown, nothing stays open, and the next call works.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.hpp"
#include "gigabar/copy.hpp"
#include "gigabar/doctor.hpp"
#include "gigabar/kernel_ring.hpp"
#include "gigabar/machine.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/streams.hpp"
#include "gigabar/topology.hpp"
#include "platform/system_archive.hpp"
#include "support/descriptors.hpp"
#include "support/failing_new.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"
#include "unit/platform/tree.hpp"

namespace gigabar {
namespace {

using test::fail_each_allocation;
using test::Failing;
using test::open_descriptors;
using test::ScopedEnvironment;

// The status of a call that answers a value, for the loop: what `holds` says of the value.
Status status_of(bool holds) { return holds ? Status::ok : Status::out_of_memory; }

// Whatever fails, `call` leaves no descriptor open and works afterwards. Answers how many allocations failed.
unsigned fail_each_of(const std::function<Status()>& call, Failing failing = Failing::each) {
  EXPECT_EQ(call(), Status::ok);
  EXPECT_EQ(call(), Status::ok);
  const std::size_t descriptors = open_descriptors();
  const auto check = [&] { EXPECT_EQ(open_descriptors(), descriptors); };
  const unsigned failures = fail_each_allocation(call, check, {}, failing);
  EXPECT_EQ(call(), Status::ok);
  return failures;
}

// --- Streams ---------------------------------------------------------------------------------------------------------------------

StreamPlan plan_of(std::string_view text) {
  Transfer defaults;
  defaults.bytes = 4096;
  defaults.iterations = 1;
  const auto transfers = parse_transfers(text, defaults, 2);
  EXPECT_TRUE(transfers) << transfers.message();
  StreamPlan plan;
  if (transfers) plan.transfers = *transfers;
  plan.repeats = 1;
  plan.timeout_seconds = 20;
  return plan;
}

constexpr const char* kEveryExecutor =
    "gpu0->host; host->gpu1 cpu:2; gpu0->gpu1 sm group=pair; host->gpu0 flag; gpu1->gpu0 chase; gpu1->host background";

// A transfer that fails beside others says so in its report.
Status run(const StreamPlan& plan) {
  StreamOptions options;
  options.progress_interval_ms = 1;
  options.progress = [](unsigned, std::span<const StreamProgress>) {};
  const auto report = run_streams(plan, options);
  if (!report) return report.status();
  for (const TransferReport& transfer : report->transfers) {
    if (transfer.error) return transfer.error->status;
  }
  return report->transfers.size() == plan.transfers.size() ? Status::ok : Status::device_error;
}

ISOLATED_TEST(StreamsAllocation, RunOfOneTransfer) {
  const ScopedEnvironment two("GIGABAR_STAND_IN", "2");
  const StreamPlan plan = plan_of("gpu0->host group=a");
  EXPECT_GT(fail_each_of([&] { return run(plan); }), 50U);
}

ISOLATED_TEST(StreamsAllocation, RunWithItsThreads) {
  const ScopedEnvironment two("GIGABAR_STAND_IN", "2");
  const StreamPlan plan = plan_of("host->gpu0 cpu:2");
  EXPECT_GT(fail_each_of([&] { return run(plan); }, Failing::each_of_all_threads), 50U);
}

void fail_each_path_of_run(const char* text) {
  const ScopedEnvironment two("GIGABAR_STAND_IN", "2");
  StreamPlan plan = plan_of(text);
  plan.repeats = 2;
  EXPECT_GT(fail_each_of([&] { return run(plan); }, Failing::each_path_of_all_threads), 50U);
}
ISOLATED_TEST(StreamsAllocation, RunOfCopies) { fail_each_path_of_run("gpu0->host; host->gpu1 cpu:2; gpu1->host background"); }
ISOLATED_TEST(StreamsAllocation, RunOfKernels) { fail_each_path_of_run("gpu0->gpu1 sm group=pair; gpu1->host"); }
ISOLATED_TEST(StreamsAllocation, RunOfLatencies) { fail_each_path_of_run("host->gpu0 flag; gpu1->gpu0 chase"); }

ISOLATED_TEST(StreamsAllocation, PlansAndTheirText) {
  const ScopedEnvironment two("GIGABAR_STAND_IN", "2");
  const StreamPlan plan = plan_of(kEveryExecutor);
  const Transfer& transfer = plan.transfers.at(2);
  const std::string text = to_string(transfer);
  EXPECT_GT(fail_each_of([&] { return status_of(to_string(transfer) == text); }), 0U);
  EXPECT_GT(fail_each_of([&] { return parse_transfers(text, {}, 2).status(); }), 0U);
  EXPECT_GT(fail_each_of([] { return parse_transfers("gpu[0,1]->gpu* sm:8 bytes=4K count=2 # all", {}, 2).status(); }), 0U);
  fail_each_of([&] { return check_plan(plan, 2).status(); });
  EXPECT_GT(fail_each_of([] { return stream_preset("device_to_device_memcpy_read_ce", {}, 2).status(); }), 0U);
  // What is refused is refused, or there was no memory for the reason.
  const auto refusal = [](Status status) { return status == Status::invalid_argument ? Status::ok : status; };
  EXPECT_GT(fail_each_of([&] { return refusal(parse_transfers("gpu9->host", {}, 2).status()); }), 0U);
  EXPECT_GT(fail_each_of([&] { return refusal(stream_preset("device_to_device", {}, 2).status()); }), 0U);
  StreamPlan bad = plan;
  bad.transfers[0].source.device = 9;
  EXPECT_GT(fail_each_of([&] { return refusal(run_streams(bad).status()); }), 0U);
}

// --- Topology and doctor ---------------------------------------------------------------------------------------------------------

ISOLATED_TEST(TopologyAllocation, Discover) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const Machine machine = Machine::here();
  EXPECT_GT(fail_each_of([&] { return discover_topology(machine).status(); }, Failing::each_path), 50U);
}

// From nothing: the machine's files and drivers are asked on the way.
ISOLATED_TEST(TopologyAllocation, DiscoverForTheFirstTime) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const auto discover = [] {
    const Machine machine = [] {
      const test::WithMemory enough;
      return Machine::here();
    }();
    return discover_topology(machine).status();
  };
  EXPECT_GT(fail_each_allocation(discover, [] {}, {}, Failing::each_path), 50U);
}

// Two GPUs and two adapters, each pair below one switch.
Topology two_pairs() {
  test::tree::Tree tree;
  tree.add_nodes(2);
  for (const int node : {0, 1}) {
    const std::string bus = node == 0 ? "1" : "8";
    const int above = tree.add(("0000:" + bus + "0:00.0").c_str(), -1, node == 0 ? "pci0000:10" : "pci0000:80", node, true);
    tree.add_gpu(tree.device(("0000:" + bus + "1:00.0").c_str(), above));
    tree.add_nic(node == 0 ? "an adapter with a long name, 0" : "an adapter with a long name, 1",
                 tree.device(("0000:" + bus + "2:00.0").c_str(), above), 200);
  }
  return tree.topology;
}

ISOLATED_TEST(TopologyAllocation, RoutesAndOrders) {
  const Topology topology = two_pairs();
  const Endpoint gpu{Endpoint::Kind::gpu, 0}, nic{Endpoint::Kind::nic, 1};
  const Relation relation = route_between(topology, gpu, nic).relation;
  ASSERT_NE(relation, Relation::unknown);
  EXPECT_GT(fail_each_of([&] { return status_of(route_between(topology, gpu, nic).relation == relation); }), 0U);
  EXPECT_GT(fail_each_of([&] { return status_of(nic_orders(topology).size() == 2); }), 0U);
  EXPECT_GT(fail_each_of([&] { return status_of(nearest_nics(topology, 1).size() == 2); }), 0U);
}

void fail_each_path_of_checks(const char* group) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const Machine machine = Machine::here();
  ExamineOptions options;
  options.with_probes = false;
  options.only = {group};
  options.on_begin = [](const CheckInfo&) {};
  EXPECT_GT(fail_each_of([&] { return examine(machine, options).status(); }, Failing::each_path), 50U);
}
ISOLATED_TEST(DoctorAllocation, ChecksOfPci) { fail_each_path_of_checks("pci"); }
ISOLATED_TEST(DoctorAllocation, ChecksOfTheIommu) { fail_each_path_of_checks("iommu"); }
ISOLATED_TEST(DoctorAllocation, ChecksOfRdma) { fail_each_path_of_checks("rdma"); }
ISOLATED_TEST(DoctorAllocation, ChecksOfGpus) { fail_each_path_of_checks("gpu"); }

ISOLATED_TEST(DoctorAllocation, ListsAndMessages) {
  const auto check = [] { return status_of(find_check("pci.acs") != nullptr && !checks().empty()); };
  fail_each_allocation(check, [] {}, {}, Failing::each_path);
  const auto diagnosed = [] { return status_of(!diagnose("cannot register GPU memory: errno 14 (EFAULT)").lines.empty()); };
  EXPECT_GT(fail_each_allocation(diagnosed, [] {}, {}, Failing::each_path), 40U);
  fail_each_of([] { return status_of(!symptoms().empty() && !known_messages().empty()); });
}

ISOLATED_TEST(DoctorAllocation, Paths) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const Machine machine = Machine::here();
  EXPECT_GT(fail_each_of([&] { return status_of(!availability(machine).empty()); }, Failing::each_path), 50U);
}

// --- Copies and memory -----------------------------------------------------------------------------------------------------------

// What is wrong is refused, or there was no memory to say why.
void fail_each_of_refusal(const char* operation, const std::function<Result<void>()>& call) {
  SCOPED_TRACE(operation);
  unsigned named = 0;  // where it was thrown; an error that itself found no memory has no name
  const auto refusal = [&] {
    const Result<void> result = call();
    if (result.status() == Status::out_of_memory) named += result.record().operation == operation ? 1 : 0;
    const bool is_refused = result.status() == Status::invalid_argument || result.status() == Status::out_of_range ||
                            result.status() == Status::not_supported;
    return is_refused ? Status::ok : result.status();
  };
  fail_each_of(refusal);
  EXPECT_GT(named, 0U);
}

ISOLATED_TEST(CopyAllocation, Refusals) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  auto memory = DeviceMemory::allocate(0, 65536);
  ASSERT_TRUE(memory) << memory.message();
  const auto mapping = map(memory->address(), memory->bytes());
  ASSERT_TRUE(mapping) << mapping.message();
  std::uint64_t word = 0;
  fail_each_of_refusal("copy", [&] { return fill(*mapping, mapping->bytes(), std::byte{1}, 1); });
  fail_each_of_refusal("publish", [&] { return publish(*mapping, 2, std::uint32_t{1}); });
  fail_each_of_refusal("publish", [&] { return publish(*mapping, 4, std::uint64_t{1}); });
  fail_each_of_refusal("copy_to_parallel", [&] { return copy_to_parallel(*mapping, 0, &word, 8, 65); });
  fail_each_of_refusal("copy_from_parallel", [&] { return copy_from_parallel(*mapping, 0, &word, 8, 65); });
}

// The first copy to or from a device looks for its calibration, and keeps one. For each allocation on the way there is a device.
ISOLATED_TEST(CopyAllocation, FirstCopies) {
  constexpr int kDevices = 48;
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", std::to_string(kDevices).c_str());
  const ScopedEnvironment calibration("GIGABAR_CALIBRATION", "/nonexistent/calibration of this test.json");
  std::vector<char> sent(4096, 'a'), received(4096, 'b');
  unsigned failures[2] = {};
  for (int device = 0; device < kDevices; ++device) {
    auto memory = DeviceMemory::allocate(device, sent.size());
    ASSERT_TRUE(memory) << memory.message();
    const auto mapping = map(memory->address(), memory->bytes());
    ASSERT_TRUE(mapping) << mapping.message();
    const auto to = [&] { return copy({*mapping, 0}, sent.data(), sent.size()); };
    const auto from = [&] { return copy(received.data(), {*mapping, 0}, received.size()); };
    const bool is_to = device % 2 == 0;
    test::left_until_failure = device / 2;
    const auto first = is_to ? to() : from();
    test::left_until_failure = -1;
    if (!first) {
      EXPECT_EQ(first.status(), Status::out_of_memory) << first.message();
      EXPECT_EQ(first.error().record().operation, "copy");
      ++failures[is_to ? 0 : 1];
    }
    ASSERT_TRUE(to()) << device;
    ASSERT_TRUE(from()) << device;
    EXPECT_EQ(received, sent);
  }
  EXPECT_GT(failures[0], 0U);
  EXPECT_GT(failures[1], 0U);
}

ISOLATED_TEST(KernelRingAllocation, Refusals) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const auto refused = [](const auto& result) { return result ? Result<void>() : Result<void>(result.error()); };
  fail_each_of_refusal("kernel ring open", [&] { return refused(KernelRing::open(0, {100})); });
  auto ring = KernelRing::open(0, {1024});
  ASSERT_TRUE(ring) << ring.message();
  std::uint32_t word = 0;
  fail_each_of_refusal("call", [&] {
    return refused(ring->call(&word, device::kMaxMessageBytes + 1, &word, sizeof word, std::chrono::seconds(20)));
  });
}

ISOLATED_TEST(MemoryAllocation, Refusals) {
  const test::TemporaryFolder folder;
  folder.write("memory", std::string(1 << 20, '\0'));
  const std::string path = folder.path() + "/memory";
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1"), file("GIGABAR_STAND_IN_MEMORY", path.c_str());
  auto memory = DeviceMemory::allocate(0, 65536);
  ASSERT_TRUE(memory) << memory.message();
  const auto refused = [](const Result<int>& exported) { return exported ? Result<void>() : Result<void>(exported.error()); };
  fail_each_of_refusal("export_descriptor", [&] { return refused(memory->export_descriptor()); });
  fail_each_of_refusal("export_dma_buf", [&] { return refused(memory->export_dma_buf()); });
  const DeviceMemory moved = std::move(*memory);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is the case
  const auto exported = memory->export_dma_buf();
  ASSERT_FALSE(exported);
  EXPECT_EQ(exported.error().record().cause, "was moved from");
}

// --- Machines and calibrations ---------------------------------------------------------------------------------------------------

ISOLATED_TEST(MachineAllocation, OpenAFolder) {
  const test::TemporaryFolder folder;
  folder.write("sys/devices/system/node/node0/cpulist", "0-1\n");
  folder.write("proc/cmdline", "quiet\n");
  EXPECT_GT(fail_each_of([&] { return Machine::open(folder.path()).status(); }, Failing::each_path), 5U);
}

// A machine written by hand: one JSON document, in which everything nests.
constexpr const char* kDocument = R"({"format": "gigabar-machine", "version": 1, "remark": "an archive of this test",
 "files": {"/proc/cmdline": "quiet", "/proc/config.gz": {"base64": "H4sIAAAAAAAA/wMAAAAAAAAAAAA="}},
 "unreadable": {"/sys/class/net/eth0/speed": "Invalid argument"}, "links": {"/sys/bus/pci/devices/x": "../../../devices/x"},
 "folders": ["/sys/devices/x", "/sys/class/infiniband"], "devices": {"/dev/nvidia0": {"mode": 438, "major": 195, "minor": 0}},
 "answers": {"cuda": {"code": "ok", "reason": "a CUDA of this test, 13.0"}, "kernel_log": ["NVRM: a line of this test", "another"],
             "gpus": [{"pci": "0000:3b:00.0", "cuda_attributes": {"dma_buf": 1}, "nvlinks": [{"is_active": true}, {}]}]}})";

ISOLATED_TEST(MachineAllocation, OpenADocument) {
  const test::TemporaryFolder folder;
  const std::string good = folder.path() + "/machine.json", bad = folder.path() + "/bad.json";
  folder.write("machine.json", kDocument);
  EXPECT_GT(fail_each_of([&] { return Machine::open(good).status(); }), 50U);
  // What is refused is refused, or there was no memory to say why.
  folder.write("bad.json", std::string(kDocument).replace(std::string_view(kDocument).find("true"), 4, "1234"));
  const auto refusal = [&] {
    const Status status = Machine::open(bad).status();
    return status == Status::bad_file ? Status::ok : status;
  };
  EXPECT_GT(fail_each_of(refusal), 50U);
}

// What is behind the public functions, which catch what is thrown.
template <class Body>
Status caught(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory;
  }
}

// Both halves of a capture, without this machine's megabytes of kernel symbols.
ISOLATED_TEST(MachineAllocation, ArchiveOfAFolder) {
  const test::TemporaryFolder folder;
  folder.write("sys/devices/system/node/node0/cpulist", "0-1\n");
  folder.write("proc/cmdline", "quiet\n");
  const auto files = SystemFiles::of_folder(folder.path());
  const auto document = read_archive(kDocument);
  ASSERT_TRUE(files.is_ok() && document.is_ok());
  const auto write = [&] { return caught([&] { return write_archive(*files, document->head).status(); }); };
  EXPECT_GT(fail_each_of(write, Failing::each_path), 50U);
}

ISOLATED_TEST(MachineAllocation, FileOfACapture) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/a capture of this test";
  const auto write = [&] { return caught([&] { return status_of(!write_output(path, kDocument)); }); };
  EXPECT_GT(fail_each_of(write), 2U);
}

// Machine::capture() itself, where it comes no further than to the refusal.
ISOLATED_TEST(MachineAllocation, CaptureOfAFolder) {
  const test::TemporaryFolder folder;
  folder.write("proc/cmdline", "quiet\n");
  const std::string path = folder.path() + "/a capture of this test";
  const auto machine = Machine::open(folder.path());
  ASSERT_TRUE(machine) << machine.message();
  const auto refusal = [&] {
    const Status status = machine->capture(path).status();
    return status == Status::not_supported ? Status::ok : status;
  };
  EXPECT_GT(fail_each_of(refusal, Failing::each_path), 2U);
}

// And where it has come to its new file: until then signals are not blocked.
bool has_no_new_file_yet() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, SIGTERM) == 0;
}

ISOLATED_TEST(MachineAllocation, CaptureOfThisMachine) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/a capture of this test";
  const Machine machine = Machine::here();
  test::is_inside_another = has_no_new_file_yet;
  EXPECT_GT(fail_each_of([&] { return machine.capture(path).status(); }), 0U);
}

ISOLATED_TEST(MachineAllocation, OpenACapture) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/a capture of this test";
  ASSERT_TRUE(Machine::here().capture(path));
  EXPECT_GT(fail_each_of([&] { return Machine::open(path).status(); }, Failing::each_path), 50U);
}

ISOLATED_TEST(CalibrationAllocation, FilesAndUse) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/a calibration of this test.json";
  EXPECT_GT(fail_each_allocation([] { return status_of(!Calibration::defaults().points.empty()); }, [] {}), 0U);
  const Calibration& calibration = Calibration::defaults();
  EXPECT_GT(fail_each_of([&] { return calibration.save(path).status(); }, Failing::each_path), 5U);
  EXPECT_GT(fail_each_of([&] { return Calibration::load(path).status(); }, Failing::each_path), 5U);
  EXPECT_GT(fail_each_of([&] { return use_calibration(0, calibration).status(); }, Failing::each_path), 0U);
  EXPECT_GT(fail_each_of([] { return status_of(!calibration_in_use(0).points.empty()); }), 0U);
  EXPECT_GT(fail_each_of([&] { return status_of(!calibration.to_text().empty()); }, Failing::each_path), 0U);
}

// On a slow machine the budget may be over before every copy was done once, which is an answer too.
ISOLATED_TEST(CalibrationAllocation, Measure) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  const auto measure = [] {
    const Status status = Calibration::measure(0, 0.5).status();
    return status == Status::timed_out ? Status::ok : status;
  };
  EXPECT_GT(fail_each_of(measure, Failing::each_path), 20U);
}

}  // namespace
}  // namespace gigabar
