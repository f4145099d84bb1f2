// SPDX-License-Identifier: Apache-2.0
// Host memory runs out at every allocation of the C interface's calls in turn: the call answers GIGABAR_OUT_OF_MEMORY, no exception
// crosses, nothing is handed out, the record says so, and the next call works.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "gigabar.h"
#include "support/descriptors.hpp"
#include "support/failing_new.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::fail_each_allocation;
using test::Failing;
using test::open_descriptors;
using test::ScopedEnvironment;

constexpr std::int64_t kPatience = 20'000'000'000;

Status status_of(gigabar_status status) { return static_cast<Status>(status); }

// Whatever fails, `call` leaves no descriptor open and works afterwards. Answers how many allocations failed.
unsigned fail_each_of(const std::function<gigabar_status()>& call, Failing failing = Failing::each) {
  EXPECT_EQ(call(), GIGABAR_OK) << gigabar_last_error_message();
  EXPECT_EQ(call(), GIGABAR_OK) << gigabar_last_error_message();
  const std::size_t descriptors = open_descriptors();
  const auto check = [&] { EXPECT_EQ(open_descriptors(), descriptors); };
  const unsigned failures = fail_each_allocation([&] { return status_of(call()); }, check, {}, failing);
  EXPECT_EQ(call(), GIGABAR_OK) << gigabar_last_error_message();
  return failures;
}

ISOLATED_TEST(CInterfaceAllocation, MemoryMappingsAndBatches) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  gigabar_memory* memory = nullptr;
  void* address = nullptr;
  ASSERT_EQ(gigabar_memory_allocate(0, 4096, GIGABAR_ALLOCATOR_CUDA_MALLOC, &memory), GIGABAR_OK);
  ASSERT_EQ(gigabar_memory_address(memory, &address), GIGABAR_OK);
  EXPECT_GT(fail_each_of([] {
              gigabar_memory* other = nullptr;
              const gigabar_status status = gigabar_memory_allocate(0, 4096, GIGABAR_ALLOCATOR_CUDA_MALLOC, &other);
              EXPECT_EQ(other != nullptr, status == GIGABAR_OK);
              return status == GIGABAR_OK ? gigabar_memory_free(other) : status;
            }),
            0U);
  EXPECT_GT(fail_each_of([&] {
              gigabar_mapping* mapping = nullptr;
              const gigabar_status status = gigabar_map(address, 4096, nullptr, &mapping);
              EXPECT_EQ(mapping != nullptr, status == GIGABAR_OK);
              return status == GIGABAR_OK ? gigabar_unmap(mapping) : status;
            }),
            0U);
  gigabar_mapping* mapping = nullptr;
  ASSERT_EQ(gigabar_map(address, 4096, nullptr, &mapping), GIGABAR_OK);
  EXPECT_GT(fail_each_of([&] {
              gigabar_batch* batch = nullptr;
              const gigabar_status status = gigabar_batch_open(mapping, &batch);
              return status == GIGABAR_OK ? gigabar_batch_close(batch) : status;
            }),
            0U);
  EXPECT_GT(fail_each_of([&] {
              char* text = nullptr;
              const gigabar_status status = gigabar_mapping_json(mapping, &text);
              EXPECT_EQ(text != nullptr, status == GIGABAR_OK);
              return status == GIGABAR_OK ? gigabar_text_free(text) : status;
            }),
            0U);
  EXPECT_EQ(gigabar_unmap(mapping), GIGABAR_OK);
  EXPECT_EQ(gigabar_memory_free(memory), GIGABAR_OK);
}

// A call that is refused needs memory for its record: where there is none it says so.
ISOLATED_TEST(CInterfaceAllocation, Refusals) {
  const auto refused = [] {
    const gigabar_status status = gigabar_unmap(nullptr);
    gigabar_error error = {};
    error.struct_size = sizeof error;
    error.field_mask = GIGABAR_ERROR_STATUS | GIGABAR_ERROR_MESSAGE;
    EXPECT_EQ(gigabar_last_error(&error), GIGABAR_OK);
    EXPECT_EQ(error.status, status);
    EXPECT_NE(error.message, nullptr);
    return status == GIGABAR_INVALID_ARGUMENT ? Status::ok : status_of(status);
  };
  EXPECT_GT(fail_each_allocation(refused, [] {}), 3U);
}

ISOLATED_TEST(CInterfaceAllocation, Documents) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  gigabar_doctor_options options = {};
  options.struct_size = sizeof options;
  options.field_mask = GIGABAR_DOCTOR_ONLY | GIGABAR_DOCTOR_WITH_PROBES;
  options.only = "pci,iommu";
  const auto document = [](auto&& call) {
    char* text = nullptr;
    const gigabar_status status = call(&text);
    EXPECT_EQ(text != nullptr, status == GIGABAR_OK);
    return status == GIGABAR_OK ? gigabar_text_free(text) : status;
  };
  const auto examine = [&] { return document([&](char** text) { return gigabar_doctor_json(&options, text); }); };
  EXPECT_GT(fail_each_of(examine, Failing::each_path), 50U);
  const auto discover = [&] { return document([](char** text) { return gigabar_topology_json(nullptr, text); }); };
  EXPECT_GT(fail_each_of(discover, Failing::each_path), 50U);
}

ISOLATED_TEST(CInterfaceAllocation, Ranks) {
  const ScopedEnvironment stand_in("GIGABAR_STAND_IN", "1");
  gigabar_fabric_options options = {};
  options.struct_size = sizeof options;
  options.field_mask = GIGABAR_FABRIC_RANK | GIGABAR_FABRIC_RANK_COUNT;
  options.rank_count = 1;
  gigabar_fabric* fabric = nullptr;
  ASSERT_EQ(gigabar_fabric_open(&options, &fabric), GIGABAR_OK) << gigabar_last_error_message();
  static std::array<char, 8192> memory;
  ASSERT_EQ(gigabar_segment_register(fabric, 1, memory.data(), memory.size()), GIGABAR_OK);
  ASSERT_EQ(gigabar_barrier(fabric, nullptr, 0, kPatience), GIGABAR_OK);
  EXPECT_GT(fail_each_of([&] {
              char* text = nullptr;
              const gigabar_status status = gigabar_fabric_json(fabric, &text);
              return status == GIGABAR_OK ? gigabar_text_free(text) : status;
            }),
            0U);
  EXPECT_GT(fail_each_of([&] {
              const gigabar_list_piece piece = {{0, 1}, 4096, 8, 1};
              const gigabar_status status = gigabar_fabric_write_list(fabric, 0, &piece, 1, nullptr, nullptr);
              return status == GIGABAR_OK ? gigabar_fabric_wait(fabric, 0, kPatience) : status;
            }),
            0U);
  EXPECT_GT(fail_each_of([&] {
              char* text = nullptr;
              const gigabar_status status =
                  gigabar_fabric_explain_write(fabric, {0, 1}, {4096, 0, 1}, 8, kPatience, nullptr, &text);
              return status == GIGABAR_OK ? gigabar_text_free(text) : status;
            }),
            0U);
  EXPECT_EQ(gigabar_segment_deregister(fabric, 1, kPatience), GIGABAR_OK);
  EXPECT_EQ(gigabar_fabric_close(fabric, kPatience), GIGABAR_OK);
}

}  // namespace
}  // namespace gigabar
