// SPDX-License-Identifier: Apache-2.0
// A test's view of the fake GPU machine: sets it up, plays the application that calls CUDA, and checks that nothing is left behind.
// Use inside ISOLATED_TEST only: a process has one machine.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fakes/fake_machine.hpp"
#include "support/temporary_folder.hpp"

// The fake's function of that name, as cuda.h renames it: CUDA(cuMemAlloc)(&address, bytes).
#define GIGABAR_TEST_TEXT_(name) #name
#define GIGABAR_TEST_TEXT(name) GIGABAR_TEST_TEXT_(name)
#define CUDA(function) (gigabar::test::FakeSession::symbol<decltype(&::function)>(GIGABAR_TEST_TEXT(function)))

namespace gigabar::test {

class FakeSession {
 public:
  // Loads the machine and points the library at it: GIGABAR_CUDA_LIBRARY, system calls, /proc and /sys.
  FakeSession();
  // Fails the test for everything that is still held in the machine's kernel and driver.
  ~FakeSession();
  FakeSession(const FakeSession&) = delete;
  FakeSession& operator=(const FakeSession&) = delete;

  fake::Machine& machine() { return *machine_; }
  static fake::Counts counts();
  // Writes /proc and /sys of the machine as it is now and makes a context current on this thread. Call once, when the machine is as
  // the test wants it.
  void start(int current_gpu = 0);
  // Plants a fault in a free slot and returns it.
  fake::Fault& plant(fake::Call call, const char* name, int error, std::uint32_t count = fake::kForEver, std::uint32_t skip = 0);
  fake::Fault& plant_ioctl(std::uint32_t number, std::uint32_t command, int error, std::uint32_t status = 0,
                           std::uint32_t count = fake::kForEver, std::uint32_t skip = 0);
  void remove_faults();
  // Memory of the machine stays taken on purpose: a failed copy may still be under way on it.
  void expect_kept_memory() { keeps_memory_ = true; }
  // A mapping, with its memory, is kept for the life of the process.
  void expect_kept_mapping() { keeps_memory_ = keeps_mapping_ = true; }
  const std::string& folder() const { return folder_.path(); }
  const TemporaryFolder& tree() const { return folder_; }

  template <class Function>
  static Function symbol(const char* name) {
    return reinterpret_cast<Function>(address_of(name));
  }

  // The application: device memory and its content as the GPU sees it. Failures fail the test and give 0.
  static CUdeviceptr allocate(std::size_t bytes);
  static void free(CUdeviceptr address);
  static CUdeviceptr allocate_vmm(int gpu, std::size_t bytes, bool is_exportable);
  static void free_vmm(CUdeviceptr address, std::size_t bytes);
  static void write(CUdeviceptr destination, const void* source, std::size_t bytes);
  static std::vector<unsigned char> read(CUdeviceptr source, std::size_t bytes);

 private:
  bool keeps_memory_ = false;
  bool keeps_mapping_ = false;
  static void* address_of(const char* name);
  void write_trees() const;

  fake::Machine* machine_ = nullptr;
  TemporaryFolder folder_;
  bool has_context_ = false;
};

// Bytes that tell their place: equal neighbours are rare, and different seeds differ everywhere.
std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed);

}  // namespace gigabar::test
