// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 at run time: each way not to have it is told apart, with a reason and a remedy. driver/cuda/cuda.hpp.
#include "driver/cuda/cuda.hpp"

#include <gtest/gtest.h>

#include <string>

#include "fakes/paths.hpp"
#include "support/fake_session.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::FakeSession;

void expect_absent(const Availability& availability, AvailabilityCode code, const char* reason_part) {
  EXPECT_EQ(name_of(availability.code), name_of(code)) << availability.reason;
  EXPECT_FALSE(availability.is_ok());
  EXPECT_NE(availability.reason.find(reason_part), std::string::npos) << availability.reason;
  EXPECT_FALSE(availability.remedy.empty()) << availability.reason;
}

ISOLATED_TEST(CudaDriver, IsFoundAndInitialised) {
  FakeSession session;
  session.machine().gpu_count = 2;
  const cuda::Driver driver = cuda::load();
  EXPECT_TRUE(driver.availability.is_ok()) << driver.availability.reason;
  EXPECT_EQ(driver.version, 13000);
  EXPECT_NE(driver.availability.reason.find("13.0"), std::string::npos) << driver.availability.reason;
  EXPECT_NE(driver.availability.reason.find("2 device"), std::string::npos) << driver.availability.reason;
  int count = 0;
  EXPECT_EQ(driver.functions.cuDeviceGetCount(&count), CUDA_SUCCESS) << "cuInit was called";
  EXPECT_EQ(count, 2);
  EXPECT_NE(driver.functions.cuMemGetHandleForAddressRange, nullptr) << "optional, and there";
}

ISOLATED_TEST(CudaDriver, MissingLibrary) {
  const test::ScopedEnvironment library("GIGABAR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
  const cuda::Driver driver = cuda::load();
  expect_absent(driver.availability, AvailabilityCode::library_missing, "/nonexistent/libcuda.so.1");
  EXPECT_EQ(driver.availability.native.domain, NativeDomain::loader);
}

ISOLATED_TEST(CudaDriver, SomethingElseUnderItsName) {
  const test::TemporaryFolder folder;
  folder.write("libcuda.so.1", "not a shared object");
  const test::ScopedEnvironment library("GIGABAR_CUDA_LIBRARY", (folder.path() + "/libcuda.so.1").c_str());
  expect_absent(cuda::load().availability, AvailabilityCode::library_missing, folder.path().c_str());
}

ISOLATED_TEST(CudaDriver, LibraryThatIsNotCuda) {
  const test::ScopedEnvironment library("GIGABAR_CUDA_LIBRARY", "libm.so.6");
  expect_absent(cuda::load().availability, AvailabilityCode::symbol_missing, "cuDriverGetVersion");
}

ISOLATED_TEST(CudaDriver, NoSymbolLoader) {
  const test::ScopedEnvironment library("GIGABAR_CUDA_LIBRARY", test::kFakeCudaWithoutLoader);
  expect_absent(cuda::load().availability, AvailabilityCode::entry_point_missing, "cuGetProcAddress");
}

ISOLATED_TEST(CudaDriver, RequiredSymbolMissing) {
  FakeSession session;
  std::snprintf(session.machine().hidden_symbol, sizeof session.machine().hidden_symbol, "cuIpcGetMemHandle");
  expect_absent(cuda::load().availability, AvailabilityCode::symbol_missing, "cuIpcGetMemHandle");
}

ISOLATED_TEST(CudaDriver, OptionalSymbolMissing) {
  FakeSession session;
  std::snprintf(session.machine().hidden_symbol, sizeof session.machine().hidden_symbol, "cuMemGetHandleForAddressRange");
  const cuda::Driver driver = cuda::load();
  EXPECT_TRUE(driver.availability.is_ok()) << driver.availability.reason;
  EXPECT_EQ(driver.functions.cuMemGetHandleForAddressRange, nullptr);
}

ISOLATED_TEST(CudaDriver, TooOld) {
  FakeSession session;
  session.machine().cuda_version = 11000;
  const cuda::Driver driver = cuda::load();
  expect_absent(driver.availability, AvailabilityCode::driver_too_old, "11.0");
  EXPECT_NE(driver.availability.remedy.find("515"), std::string::npos) << driver.availability.remedy;
}

ISOLATED_TEST(CudaDriver, OldestAccepted) {
  FakeSession session;
  session.machine().cuda_version = cuda::kOldestVersion;
  EXPECT_TRUE(cuda::load().availability.is_ok());
  session.machine().cuda_version = cuda::kOldestVersion - 1;
  expect_absent(cuda::load().availability, AvailabilityCode::driver_too_old, "11.");
}

ISOLATED_TEST(CudaDriver, NoGpu) {
  FakeSession session;
  session.machine().gpu_count = 0;
  expect_absent(cuda::load().availability, AvailabilityCode::no_device, "no GPU");
}

// driver(), not load(): the error's name is looked up while the process's table is being made.
ISOLATED_TEST(CudaDriver, NoGpuForTheWholeProcess) {
  FakeSession session;
  session.machine().gpu_count = 0;
  const Availability& availability = cuda::driver().availability;
  expect_absent(availability, AvailabilityCode::no_device, "no GPU");
  EXPECT_EQ(availability.native.domain, NativeDomain::cuda_driver);
  EXPECT_EQ(availability.native.code, CUDA_ERROR_NO_DEVICE);
  EXPECT_NE(availability.native.name.find("CUDA_ERROR_NO_DEVICE"), std::string::npos) << availability.native.name;
}

ISOLATED_TEST(CudaDriver, InitialisationFails) {
  FakeSession session;
  session.plant(fake::Call::cuda, "cuInit", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
  const Availability& availability = cuda::driver().availability;
  expect_absent(availability, AvailabilityCode::driver_unknown, "cuInit");
  EXPECT_EQ(availability.native.code, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
}

ISOLATED_TEST(CudaDriver, ResultsHaveNamesSentencesAndStatuses) {
  FakeSession session;
  EXPECT_NE(cuda::native_code(CUDA_ERROR_INVALID_VALUE).name.find("CUDA_ERROR_INVALID_VALUE"), std::string::npos);
  EXPECT_EQ(cuda::native_code(CUDA_ERROR_INVALID_VALUE).domain, NativeDomain::cuda_driver);
  EXPECT_NE(cuda::native_code(CUDA_ERROR_ASSERT).name.find("710"), std::string::npos);
  EXPECT_FALSE(cuda::describe_result(CUDA_ERROR_INVALID_VALUE).empty());
  EXPECT_NE(cuda::describe_result(CUDA_ERROR_ASSERT).find("710"), std::string::npos);
  EXPECT_EQ(cuda::status_of(CUDA_ERROR_OUT_OF_MEMORY), Status::out_of_memory);
  EXPECT_EQ(cuda::status_of(CUDA_ERROR_NOT_SUPPORTED), Status::not_supported);
  EXPECT_EQ(cuda::status_of(CUDA_ERROR_NOT_PERMITTED), Status::no_permission);
  EXPECT_EQ(cuda::status_of(CUDA_ERROR_DEVICE_UNAVAILABLE), Status::busy);
  EXPECT_EQ(cuda::status_of(CUDA_ERROR_ILLEGAL_ADDRESS), Status::device_error);
}

ISOLATED_TEST(CudaDriver, NamesWorkWithoutADriver) {
  const test::ScopedEnvironment library("GIGABAR_CUDA_LIBRARY", "/nonexistent/libcuda.so.1");
  EXPECT_NE(cuda::native_code(CUDA_ERROR_INVALID_VALUE).name.find("1"), std::string::npos);
  EXPECT_FALSE(cuda::describe_result(CUDA_ERROR_INVALID_VALUE).empty());
}

}  // namespace
}  // namespace gigabar
