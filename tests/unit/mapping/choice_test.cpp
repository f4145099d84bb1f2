// SPDX-License-Identifier: Apache-2.0
// Which backend is taken, what is said of those passed over, and how one is forced.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/isolated.hpp"
#include "support/mapping_session.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar {
namespace {

using test::FakeSession;
using test::MappingSession;
using test::must_map;
using test::pointer;
using test::require;

void expect_passed_over(const Mapping& mapping, std::size_t index, MappingBackend backend, AvailabilityCode code,
                        const char* reason_part) {
  ASSERT_LT(index, mapping.report().passed_over.size());
  const PassedOver& passed = mapping.report().passed_over[index];
  EXPECT_EQ(passed.backend, backend);
  EXPECT_EQ(name_of(passed.why.code), name_of(code)) << passed.why.reason;
  EXPECT_NE(passed.why.reason.find(reason_part), std::string::npos) << passed.why.reason;
}

ISOLATED_TEST(Choice, TheBestThatIsThere) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const Mapping mapping = must_map(address, 4096);
  EXPECT_EQ(mapping.backend(), MappingBackend::dmabuf);
  EXPECT_TRUE(mapping.report().passed_over.empty());
  EXPECT_FALSE(mapping.report().came_from_cache);
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, GdrdrvBeforeRm) {
  MappingSession session;
  session.machine().has_gdrdrv = true;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const Mapping mapping = must_map(address, 4096);
  EXPECT_EQ(mapping.backend(), MappingBackend::gdrdrv);
  ASSERT_EQ(mapping.report().passed_over.size(), 1u);
  expect_passed_over(mapping, 0, MappingBackend::dmabuf, AvailabilityCode::driver_too_old, "13.3");
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, RmWhereThereIsNothingElse) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const Mapping mapping = must_map(address, 4096);
  EXPECT_EQ(mapping.backend(), MappingBackend::rm);
  ASSERT_EQ(mapping.report().passed_over.size(), 2u);
  expect_passed_over(mapping, 0, MappingBackend::dmabuf, AvailabilityCode::driver_too_old, "13.0");
  expect_passed_over(mapping, 1, MappingBackend::gdrdrv, AvailabilityCode::no_device, "gdrdrv");
  EXPECT_FALSE(mapping.report().passed_over[1].why.remedy.empty());
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, GdrdrvThatIsNotPersistentIsPassedOver) {
  MappingSession session;
  session.machine().has_gdrdrv = true;
  session.machine().is_gdrdrv_persistent = false;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const Mapping mapping = must_map(address, 4096);
  EXPECT_EQ(mapping.backend(), MappingBackend::rm);
  expect_passed_over(mapping, 1, MappingBackend::gdrdrv, AvailabilityCode::not_supported, "freed memory");
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, OldGdrdrvIsPassedOver) {
  MappingSession session;
  session.machine().has_gdrdrv = true;
  session.machine().gdrdrv_version = 0x20004;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const Mapping mapping = must_map(address, 4096);
  EXPECT_EQ(mapping.backend(), MappingBackend::rm);
  expect_passed_over(mapping, 1, MappingBackend::gdrdrv, AvailabilityCode::not_supported, "2.4");
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, ForbiddenGdrdrvIsPassedOverWithItsReason) {
  MappingSession session;
  session.machine().has_gdrdrv = true;
  session.plant(fake::Call::open, "/dev/gdrdrv", EACCES);
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const Mapping mapping = must_map(address, 4096);
  EXPECT_EQ(mapping.backend(), MappingBackend::rm);
  expect_passed_over(mapping, 1, MappingBackend::gdrdrv, AvailabilityCode::no_permission, "/dev/gdrdrv");
  FakeSession::free(address);
}

// The attribute is there and the mmap fails all the same: the next backend serves, and the reason is kept.
ISOLATED_TEST(Choice, ABackendThatFailsIsPassedOverWithItsReason) {
  MappingSession session;
  session.have_all_backends();
  session.machine().is_dma_buf_mappable = false;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const Mapping mapping = must_map(address, 4096);
  EXPECT_EQ(mapping.backend(), MappingBackend::gdrdrv);
  ASSERT_EQ(mapping.report().passed_over.size(), 1u);
  EXPECT_EQ(mapping.report().passed_over[0].why.native.code, 524);
  EXPECT_NE(mapping.report().passed_over[0].why.reason.find("mmap"), std::string::npos)
      << mapping.report().passed_over[0].why.reason;
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, DmabufNeedsTheAttributeToo) {
  MappingSession session;
  session.have_all_backends();
  session.machine().dma_buf_mmap_supported = 0;
  session.machine().has_gdrdrv = false;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const Mapping mapping = must_map(address, 4096);
  EXPECT_EQ(mapping.backend(), MappingBackend::rm);
  expect_passed_over(mapping, 0, MappingBackend::dmabuf, AvailabilityCode::not_supported, "DMA_BUF_MMAP_SUPPORTED");
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, EachCanBeForcedByOptionAndEnvironment) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  for (const MappingBackend backend : {MappingBackend::dmabuf, MappingBackend::gdrdrv, MappingBackend::rm}) {
    EXPECT_EQ(must_map(address, 4096, require(backend)).backend(), backend);
    const test::ScopedEnvironment forced("GIGABAR_MAPPING", std::string(name_of(backend)).c_str());
    EXPECT_EQ(must_map(address, 4096).backend(), backend);
  }
  const test::ScopedEnvironment forced("GIGABAR_MAPPING", "rm");
  EXPECT_EQ(must_map(address, 4096, require(MappingBackend::gdrdrv)).backend(), MappingBackend::gdrdrv) << "the option comes first";
  EXPECT_EQ(map(pointer(address), 4096, require(MappingBackend::host)).status(), Status::unavailable);
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, AForcedBackendThatIsAbsentIsAnErrorWithItsReason) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  for (const char* name : {"dmabuf", "gdrdrv"}) {
    const test::ScopedEnvironment forced("GIGABAR_MAPPING", name);
    const auto refused = map(pointer(address), 4096);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.status(), Status::unavailable) << name;
    EXPECT_NE(refused.error().message().find(name), std::string::npos) << refused.error().message();
    EXPECT_FALSE(refused.error().record().remedy.empty()) << name;
  }
  const test::ScopedEnvironment forced("GIGABAR_MAPPING", "rm");
  EXPECT_TRUE(map(pointer(address), 4096)) << "and one that is there works";
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, WithNoBackendEveryReasonIsGiven) {
  MappingSession session;
  session.plant(fake::Call::open, "/dev/nvidiactl", EACCES);
  session.start();
  const CUdeviceptr address = FakeSession::allocate(4096);
  const auto refused = map(pointer(address), 4096);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.status(), Status::unavailable);
  const std::string message = refused.error().message();
  for (const char* part :
       {"dmabuf", "13.3", "gdrdrv", "rm", "/dev/nvidiactl", "host", "no_permission", "see 'gigabar explain drv.loaded'"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  EXPECT_EQ(message.find('\n'), std::string::npos);
  session.remove_faults();
  EXPECT_TRUE(map(pointer(address), 4096)) << "asked anew, it works";
  FakeSession::free(address);
}

ISOLATED_TEST(Choice, ReportsOfADevice) {
  MappingSession session;
  session.machine().has_gdrdrv = true;
  session.start();
  const auto reports = mapping_backends(0);
  ASSERT_TRUE(reports) << reports.error().message();
  ASSERT_EQ(reports->size(), 4u);
  EXPECT_EQ((*reports)[0].availability.code, AvailabilityCode::driver_too_old);
  EXPECT_TRUE((*reports)[1].availability.is_ok());
  EXPECT_TRUE((*reports)[2].availability.is_ok());
  EXPECT_EQ((*reports)[3].availability.code, AvailabilityCode::not_supported);
  for (const BackendReport& report : *reports) EXPECT_FALSE(report.availability.reason.empty()) << name_of(report.backend);
  EXPECT_EQ(mapping_backends(1).status(), Status::invalid_argument);
}

}  // namespace
}  // namespace gigabar
