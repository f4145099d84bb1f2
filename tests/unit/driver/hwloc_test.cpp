// SPDX-License-Identifier: Apache-2.0
// libhwloc.so.15 at run time and the child that reads foreign trees: driver/hwloc.
#include "driver/hwloc/hwloc.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "driver/hwloc/child.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"

namespace gigabar {
namespace {

using test::TemporaryFolder;

#if GIGABAR_HAS_HWLOC

// Two packages of one CPU and one NUMA node each, and `pci`, a device that says its class, vendor and number.
void write_machine(const TemporaryFolder& root) {
  for (const char* list : {"online", "possible", "present"}) root.write(std::string("sys/devices/system/cpu/") + list, "0-1\n");
  for (int cpu = 0; cpu < 2; ++cpu) {
    const std::string number = std::to_string(cpu), mask = cpu == 0 ? "1\n" : "2\n";
    const std::string folder = "sys/devices/system/cpu/cpu" + number + "/topology/";
    root.write(folder + "physical_package_id", number);
    root.write(folder + "core_id", "0");
    for (const char* name : {"thread_siblings", "core_siblings", "core_cpus", "package_cpus"}) root.write(folder + name, mask);
    const std::string node = "sys/devices/system/node/node" + number + "/";
    root.write(node + "cpumap", mask);
    root.write(node + "meminfo", "Node " + number + " MemTotal:       1024 kB\n");
    root.write(node + "distance", cpu == 0 ? "10 20\n" : "20 10\n");
  }
  root.write("sys/devices/system/node/online", "0-1\n");
  const std::string device = "sys/bus/pci/devices/0000:3b:00.0/";
  root.write(device + "class", "0x030200\n");
  root.write(device + "vendor", "0x10de\n");
  root.write(device + "device", "0x2335\n");
}

TEST(Hwloc, IsAvailable) {
  ASSERT_TRUE(hwloc::availability().is_ok()) << hwloc::availability().reason;
  EXPECT_NE(hwloc::availability().reason.find("hwloc"), std::string::npos);
}

TEST(Hwloc, ReadsThisMachine) {
  const auto found = hwloc::discover("/", "this machine");
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_FALSE(found->numa_nodes.empty());
  std::size_t cpu_count = 0;
  for (const auto& node : found->numa_nodes) cpu_count += node.cpus.size();
  EXPECT_GT(cpu_count, 0u);
}

TEST(Hwloc, ReadsAFolder) {
  const TemporaryFolder root;
  write_machine(root);
  const auto found = hwloc::discover(root.path(), "a folder");
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_EQ(found->numa_nodes.size(), 2u);
  for (const auto& node : found->numa_nodes) {
    const int number = static_cast<int>(node.os_index);
    EXPECT_EQ(node.package, number);
    EXPECT_EQ(node.cpus, std::vector<int>{number});
    EXPECT_EQ(node.memory_bytes, 1024u * 1024);
  }
  ASSERT_EQ(found->pci.size(), 1u);
  EXPECT_EQ(found->pci[0].address, (PciAddress{0, 0x3b, 0, 0}));
  EXPECT_EQ(found->pci[0].vendor, 0x10de);
  EXPECT_EQ(found->pci[0].device, 0x2335);
  EXPECT_EQ(found->pci[0].class_code, 0x0302);
  EXPECT_FALSE(found->pci[0].is_bridge);
}

TEST(Hwloc, AFolderWithoutAMachineIsToldSo) {
  const TemporaryFolder root;
  const auto found = hwloc::discover(root.path(), "an empty folder");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.status(), Status::not_supported);
  EXPECT_EQ(found.error().record().object, "an empty folder");
}

// Whatever the library does with it, this process goes on and is told within the limit.
TEST(Hwloc, HostileFoldersHarmNobody) {
  const std::string many(200'000, 'f');
  std::string groups;
  for (int i = 0; i < 20'000; ++i) groups += "ffffffff,";
  const struct {
    const char* file;
    std::string content;
  } cases[] = {{"sys/devices/system/cpu/online", "0-4294967294\n"},
               {"sys/devices/system/cpu/possible", "0-4294967294\n"},
               {"sys/devices/system/node/online", "0-4294967294\n"},
               {"sys/devices/system/node/online", "0,4294967294\n"},
               {"sys/devices/system/node/node0/cpumap", groups + "ffffffff\n"},
               {"sys/devices/system/node/node0/cpumap", many},
               {"sys/devices/system/cpu/cpu0/topology/core_siblings", groups + "ffffffff\n"},
               {"sys/devices/system/cpu/cpu0/topology/physical_package_id", "-99999999999999999999\n"},
               {"sys/bus/pci/devices/0000:3b:00.0/class", many},
               {"sys/bus/pci/devices/ffff:ff:1f.7/config", std::string(4096, '\xff')},
               {"sys/bus/pci/devices/%s%n:3b:00.0/class", "0x060400\n"}};
  for (const auto& hostile : cases) {
    const TemporaryFolder root;
    write_machine(root);
    root.write(hostile.file, hostile.content);
    const auto begin = std::chrono::steady_clock::now();
    const auto found = hwloc::discover(root.path(), "a hostile folder");
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took, std::chrono::seconds(25)) << hostile.file;
    const Status status = found.status();
    EXPECT_TRUE(status == Status::ok || status == Status::bad_file || status == Status::not_supported)
        << hostile.file << ": " << name_of(status);
  }
}

// Children are forked while other threads allocate and fork, too.
TEST(Hwloc, FromManyThreadsAtOnce) {
  constexpr int kThreads = 6, kRounds = 5;
  const TemporaryFolder root;
  write_machine(root);
  std::vector<std::thread> threads;
  // What is found is kept: older run-times of the address sanitizer cannot fork while another thread gives memory back.
  std::array<std::vector<Result<hwloc::Discovery>>, kThreads> found;
  for (std::size_t i = 0; i < found.size(); ++i) {
    found[i].reserve(kRounds);
    threads.emplace_back([&mine = found[i], asked = i % 3 == 2 ? std::string("/") : root.path()] {
      for (int round = 0; round < kRounds; ++round) mine.push_back(hwloc::discover(asked, "x"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const auto& one : found[i]) {
      ASSERT_TRUE(one) << i << ": " << one.error().message();
      if (i % 3 == 2) {
        EXPECT_FALSE(one->numa_nodes.empty());
      } else {
        EXPECT_EQ(one->numa_nodes.size(), 2u) << i;
      }
    }
  }
}

TEST(Hwloc, WhatTheChildToldIsNotTrusted) {
  const std::string good = R"({"pci": [[0, 59, 0, 0, 4318, 9013, 770, false, "GH100"]], "numa": [[0, [0, 1], 1024, 0]]})";
  const auto found = hwloc::parse_output(good, "x");
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->pci.at(0).name, "GH100");
  EXPECT_EQ(found->numa_nodes.at(0).cpus, (std::vector<int>{0, 1}));
  for (const char* bad :
       {"", "{", "[]", "null", R"({"pci": []})", R"({"pci": 3, "numa": []})", R"({"pci": [[0]], "numa": []})",
        R"({"pci": [], "numa": [[0, "0-1", 0, 0]]})", R"({"pci": [], "numa": [{"a": 1}]})", R"({"errno": "x"})", "\xff\xfe"}) {
    const auto told = hwloc::parse_output(bad, "the tree");
    ASSERT_FALSE(told) << bad;
    EXPECT_EQ(told.status(), Status::bad_file) << bad;
    EXPECT_EQ(told.error().record().object, "the tree");
  }
  EXPECT_EQ(hwloc::parse_output(good.substr(0, good.size() / 2), "x").status(), Status::bad_file);
  EXPECT_EQ(hwloc::parse_output(R"({"errno": 22})", "x").status(), Status::not_supported);
}

ISOLATED_TEST(Hwloc, MissingLibrary) {
  const test::ScopedEnvironment library("GIGABAR_HWLOC_LIBRARY", "/nonexistent/libhwloc.so.15");
  EXPECT_EQ(hwloc::availability().code, AvailabilityCode::library_missing);
  EXPECT_NE(hwloc::availability().remedy.find("libhwloc15"), std::string::npos);
  const auto found = hwloc::discover("/", "this machine");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.status(), Status::not_supported);
  EXPECT_NE(found.error().message().find("/nonexistent/libhwloc.so.15"), std::string::npos) << found.error().message();
}

ISOLATED_TEST(Hwloc, LibraryWithoutItsFunctions) {
  const test::ScopedEnvironment library("GIGABAR_HWLOC_LIBRARY", "libm.so.6");
  EXPECT_EQ(hwloc::availability().code, AvailabilityCode::symbol_missing);
  EXPECT_NE(hwloc::availability().reason.find("hwloc_topology_init"), std::string::npos);
}

#else

TEST(Hwloc, SaysThatItIsNotBuilt) {
  EXPECT_EQ(hwloc::availability().code, AvailabilityCode::not_built);
  EXPECT_EQ(hwloc::discover("/", "this machine").status(), Status::not_supported);
}

#endif

void put(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0) ::_exit(9);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::string cause_of(const Result<std::string>& result) { return result ? "ok" : result.error().record().cause; }

TEST(OutputOfChild, ComesBackWhole) {
  const std::string large(1 << 20, 'x');
  const auto output = output_of_child([&](int descriptor) { put(descriptor, large); }, "a tree", {});
  ASSERT_TRUE(output) << output.error().message();
  EXPECT_EQ(*output, large);
  const auto nothing = output_of_child([](int) {}, "a tree", {});
  ASSERT_TRUE(nothing) << nothing.error().message();
  EXPECT_EQ(*nothing, "");
}

TEST(OutputOfChild, ACrashIsABadFile) {
  const auto output = output_of_child(
      [](int descriptor) {
        put(descriptor, "half of");
        ::raise(SIGSEGV);
      },
      "a tree", {});
  ASSERT_FALSE(output);
  EXPECT_EQ(output.status(), Status::bad_file);
  EXPECT_EQ(output.error().record().object, "a tree");
  EXPECT_NE(cause_of(output).find("SIGSEGV"), std::string::npos) << cause_of(output);
}

TEST(OutputOfChild, AnExceptionIsABadFile) {
  const auto output = output_of_child([](int) { throw std::bad_alloc(); }, "a tree", {});
  EXPECT_EQ(output.status(), Status::bad_file);
}

// Silent, talking for ever, or silent after its pipe is closed: it is ended on time, and no process is left behind.
TEST(OutputOfChild, EndsInTime) {
  ChildLimits limits;
  limits.time = std::chrono::milliseconds(200);
  const std::function<void(int)> works[] = {
      [](int) {
        while (true) ::pause();
      },
      [](int descriptor) {
        for (;; ::usleep(1000)) put(descriptor, ".");
      },
      [](int descriptor) {
        ::close(descriptor);
        while (true) ::pause();
      },
  };
  for (std::size_t i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto output = output_of_child(works[i], "a tree", limits);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << i;
    if (i < 2) {
      EXPECT_EQ(output.status(), Status::bad_file) << i;
      EXPECT_NE(cause_of(output).find("200 ms"), std::string::npos) << cause_of(output);
    }
  }
}

TEST(OutputOfChild, TooMuchIsABadFile) {
  ChildLimits limits;
  limits.output_bytes = 1000;
  const auto exact = output_of_child([](int descriptor) { put(descriptor, std::string(1000, 'x')); }, "a tree", limits);
  EXPECT_TRUE(exact) << cause_of(exact);
  const auto output = output_of_child(
      [](int descriptor) {
        while (true) put(descriptor, std::string(1000, 'x'));
      },
      "a tree", limits);
  EXPECT_EQ(output.status(), Status::bad_file);
  EXPECT_NE(cause_of(output).find("more than 1000 bytes"), std::string::npos) << cause_of(output);
}

TEST(OutputOfChild, MayNotTakeMoreMemory) {
  ChildLimits limits;
  limits.memory_bytes = std::size_t{64} << 20;
  const auto output = output_of_child(
      [](int descriptor) {
        void* volatile most = std::malloc(std::size_t{1} << 30);  // a compiler may leave out what nobody looks at
        put(descriptor, most == nullptr ? "refused" : "given");
        std::free(most);
      },
      "a tree", limits);
  // A sanitizer ends a process that asks for too much; malloc gives null.
  EXPECT_TRUE(output ? *output == "refused" : output.status() == Status::bad_file);
}

TEST(OutputOfChild, HasNothingOfThisProcess) {
  const test::ScopedEnvironment secret("GIGABAR_TEST_SECRET", "1");
  const TemporaryFolder folder;
  const int open_file = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(open_file, 0);
  const std::string path = folder.path() + "/written";
  const auto output = output_of_child(
      [&](int descriptor) {
        const int created = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
        ::signal(SIGXFSZ, SIG_IGN);
        const bool could_write = created >= 0 && ::write(created, "x", 1) == 1;
        ::close(created);
        std::string seen = could_write ? "writes " : "";
        seen += std::getenv("GIGABAR_TEST_SECRET") != nullptr ? "environment " : "";
        for (int other = 3; other < 64; ++other) seen += other != descriptor && ::fcntl(other, F_GETFD) >= 0 ? "descriptor " : "";
        put(descriptor, seen + "end");
      },
      "a tree", {});
  ::close(open_file);
  ASSERT_TRUE(output) << output.error().message();
  EXPECT_EQ(*output, "end");
}

}  // namespace
}  // namespace gigabar
