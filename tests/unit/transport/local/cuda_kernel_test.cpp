// SPDX-License-Identifier: Apache-2.0
// Copies between GPUs of which some are asked of a persistent kernel, on a fake libcuda.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/errors.hpp"
#include "support/isolated.hpp"
#include "transport/local/device_copier.hpp"
#include "unit/transport/local/cuda_pair.hpp"

namespace gigabar::transport {
namespace {

// What the persistent copy kernel does with its requests is said by the test; it copies nothing itself.
class ScriptedCopier final : public local::PersistentCopyKernel {
 public:
  struct Script {
    bool is_there = true;
    std::vector<std::uint32_t> asked;
    std::vector<State> states;  // by request; running where none is said
    unsigned noted = 0;
    std::optional<Error> lost;
  };
  explicit ScriptedCopier(Script& script) : script_(script) {}

  std::optional<std::uint32_t> post(std::uintptr_t, std::uintptr_t, std::uint64_t) override {
    if (!script_.is_there) return std::nullopt;
    script_.asked.push_back(static_cast<std::uint32_t>(script_.asked.size()));
    return script_.asked.back();
  }
  void note_copy() override { ++script_.noted; }
  State look(std::uint32_t number) override { return number < script_.states.size() ? script_.states[number] : State::running; }
  Result<void> check() override { return script_.lost ? Result<void>(*script_.lost) : Result<void>(); }

 private:
  Script& script_;
};

class LocalCudaKernel {
 public:
  static constexpr std::size_t kBytes = 8192;
  LocalCudaKernel() {
    machine.allocate(kBytes);
    local::CopierOptions options;
    options.most_kernel_bytes = 4096;
    options.kernel = std::make_unique<ScriptedCopier>(script);
    copier = must(local::DeviceCopier::open(0, std::move(options)));
    put(range_of(*machine.first), sent);
  }
  local::CopyTicket copy(std::size_t at, std::size_t bytes, std::size_t skew = 0) const {
    return must(copier->copy(CopyWay::between_devices, address_of(range_of(*machine.second)) + at,
                             address_of(range_of(*machine.first)) + at + skew, bytes));
  }
  local::CopyState wait(local::CopyTicket ticket) const {
    const Deadline deadline = Deadline::after_ns(kLongNs);
    local::CopyState state = copier->look(ticket);
    while (state == local::CopyState::running && !deadline.has_passed()) {
      copier->check();
      state = copier->look(ticket);
    }
    return state;
  }

  TwoGpus machine;
  ScriptedCopier::Script script;
  std::unique_ptr<local::DeviceCopier> copier;
  const std::vector<unsigned char> sent = pattern(kBytes, 11);
};

ISOLATED_TEST(LocalCuda, OnlyCopiesThatFitAreAskedOfTheKernel) {
  LocalCudaKernel test;
  EXPECT_EQ(test.copy(0, 4096).stream, local::kPersistentKernel);
  EXPECT_EQ(test.script.noted, 0U);
  EXPECT_NE(test.copy(0, 4097).stream, local::kPersistentKernel);
  EXPECT_NE(test.copy(0, 64, 8).stream, local::kPersistentKernel) << "not aligned to each other";
  EXPECT_EQ(test.script.noted, 0U) << "no other copy tells of more to come";
  test.script.is_there = false;
  EXPECT_NE(test.copy(0, 64).stream, local::kPersistentKernel);
  EXPECT_EQ(test.script.noted, 1U);
  test.script.states = {local::PersistentCopyKernel::State::finished};
}

ISOLATED_TEST(LocalCuda, WhatTheKernelLeavesUndoneTheEngineDoes) {
  LocalCudaKernel test;
  const local::CopyTicket done = test.copy(0, 4096);
  const local::CopyTicket undone = test.copy(4096, 4096);
  EXPECT_EQ(test.copier->look(undone), local::CopyState::running);
  EXPECT_FALSE(test.copier->is_idle());
  put(range_of(*test.machine.second), std::vector<unsigned char>(4096));
  test.script.states = {local::PersistentCopyKernel::State::finished, local::PersistentCopyKernel::State::abandoned};
  EXPECT_EQ(test.wait(done), local::CopyState::finished);
  EXPECT_EQ(test.wait(undone), local::CopyState::finished);
  EXPECT_TRUE(test.copier->is_idle());
  const auto placed = got(range_of(*test.machine.second));
  EXPECT_TRUE(std::equal(placed.begin() + 4096, placed.end(), test.sent.begin() + 4096));
  EXPECT_EQ(test.copier->look(undone), local::CopyState::finished) << "asked once more";
}

ISOLATED_TEST(LocalCuda, ALostKernelFailsWhatWasAskedOfIt) {
  LocalCudaKernel test;
  const local::CopyTicket ticket = test.copy(0, 64);
  test.script.lost = make_error(Status::device_error, "copy", "copy kernel", "the device is lost", {});
  EXPECT_EQ(test.wait(ticket), local::CopyState::failed);
  EXPECT_EQ(test.copier->failure().status(), Status::device_error);
  EXPECT_FALSE(test.copier->copy(CopyWay::between_devices, 0, 0, 16));
}

}  // namespace
}  // namespace gigabar::transport
