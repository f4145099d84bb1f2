// SPDX-License-Identifier: Apache-2.0
// gdr_open, gdr_close, versions, attributes, and what every function says to a session or an output that is none.
#include <cerrno>
#include <cstring>

#include "gdrapi/session.hpp"
#include "unit/gdrapi/support.hpp"

#undef gdr_get_info
extern "C" int gdr_get_info(gdr_t g, gdr_mh_t handle, void* info);  // the symbol of GDRCopy before 2.4

namespace gigabar::test {
namespace {

// Calls every function that takes a session with `g` and otherwise good arguments.
void expect_refused_by_all(gdr_t g, unsigned long address, gdr_mh_t handle, int code) {
  gdr_mh_t pinned = {77};
  gdr_info_v2_t info = {};
  void* va = &pinned;
  int value = 7;
  int other = 7;
  EXPECT_EQ(gdr_pin_buffer(g, address, 1, 0, 0, &pinned), code);
  EXPECT_EQ(gdr_pin_buffer_v2(g, address, 1, 0, &pinned), code);
  EXPECT_EQ(gdr_unpin_buffer(g, handle), code);
  EXPECT_EQ(gdr_get_callback_flag(g, handle, &value), code);
  EXPECT_EQ(gdr_get_info(g, handle, &info), code);
  EXPECT_EQ(gdr_get_info_v2(g, handle, &info), code);
  EXPECT_EQ(gdr_map(g, handle, &va, 1), code);
  EXPECT_EQ(gdr_map_v2(g, handle, &va, 1, GDR_MAP_FLAG_DEFAULT), code);
  EXPECT_EQ(gdr_unmap(g, handle, va, 1), code);
  EXPECT_EQ(gdr_driver_get_version(g, &value, &other), code);
  EXPECT_EQ(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value), code);
  EXPECT_EQ(gdr_close(g), code);
  EXPECT_EQ(pinned.h, 77U) << "an output was written";
  EXPECT_EQ(va, &pinned);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(other, 7);
}

// The interface has no other words for what went wrong.
TEST(ErrnoOf, EachStatusHasItsNumber) {
  const std::pair<Status, int> kNumbers[] = {
      {Status::ok, 0},
      {Status::invalid_argument, EINVAL},
      {Status::out_of_range, EINVAL},
      {Status::not_supported, EINVAL},
      {Status::unavailable, ENODEV},
      {Status::no_permission, EACCES},
      {Status::out_of_memory, ENOMEM},
      {Status::out_of_descriptors, EMFILE},
      {Status::out_of_bar1, ENOMEM},
      {Status::busy, EBUSY},
      {Status::timed_out, ETIMEDOUT},
      {Status::verification_failed, EIO},
      {Status::bad_file, EIO},
      {Status::device_error, EIO},
      {Status::peer_lost, EIO},
      {Status::foreign_process, EACCES},
  };
  for (const auto& [status, number] : kNumbers) EXPECT_EQ(gdrapi::errno_of(status), number) << name_of(status);
}

class Session : public GdrTest {};

TEST_F(Session, NullIsRefused) {
  const DeviceMemory memory = allocate(4096);
  expect_refused_by_all(nullptr, address_of(memory), pin(memory), EINVAL);
}

TEST_F(Session, ClosedIsRefused) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  gdr_t closed = std::exchange(g_, nullptr);
  ASSERT_EQ(gdr_close(closed), 0);
  expect_refused_by_all(closed, address_of(memory), handle, EINVAL);
  g_ = gdr_open();
  EXPECT_NE(g_, closed) << "an old session means a new one";
  expect_refused_by_all(closed, address_of(memory), handle, EINVAL);
}

TEST_F(Session, AnythingElseIsRefused) {
  const DeviceMemory memory = allocate(4096);
  int local = 0;
  expect_refused_by_all(reinterpret_cast<gdr_t>(&local), address_of(memory), pin(memory), EINVAL);
  expect_refused_by_all(reinterpret_cast<gdr_t>(~0UL), address_of(memory), pin(memory), EINVAL);
}

TEST_F(Session, NullOutputsAreRefused) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  int value = 7;
  EXPECT_EQ(gdr_pin_buffer(g_, address_of(memory), 1, 0, 0, nullptr), EINVAL);
  EXPECT_EQ(gdr_pin_buffer_v2(g_, address_of(memory), 1, 0, nullptr), EINVAL);
  EXPECT_EQ(gdr_get_callback_flag(g_, handle, nullptr), EINVAL);
  EXPECT_EQ(gdr_get_info(g_, handle, nullptr), EINVAL);
  EXPECT_EQ(gdr_get_info_v2(g_, handle, nullptr), EINVAL);
  EXPECT_EQ(gdr_map(g_, handle, nullptr, 1), EINVAL);
  EXPECT_EQ(gdr_map_v2(g_, handle, nullptr, 1, 0), EINVAL);
  EXPECT_EQ(gdr_driver_get_version(g_, nullptr, &value), EINVAL);
  EXPECT_EQ(gdr_driver_get_version(g_, &value, nullptr), EINVAL);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(gdr_get_attribute(g_, GDR_ATTR_USE_PERSISTENT_MAPPING, nullptr), EINVAL);
  EXPECT_EQ(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_WC, nullptr), EINVAL);
  gdr_runtime_get_version(nullptr, nullptr);
  // The handle was neither mapped nor lost by any of these.
  EXPECT_EQ(info(handle).mapped, 0U);
}

TEST_F(Session, VersionsAreThoseOfTheInterface) {
  int major = 0;
  int minor = 0;
  gdr_runtime_get_version(&major, &minor);
  EXPECT_EQ(major, GDR_API_MAJOR_VERSION);
  EXPECT_EQ(minor, GDR_API_MINOR_VERSION);
  major = minor = 0;
  ASSERT_EQ(gdr_driver_get_version(g_, &major, &minor), 0);
  EXPECT_EQ(major, 2);
  EXPECT_EQ(minor, 6);
}

TEST_F(Session, Attributes) {
  int value = 7;
  EXPECT_EQ(gdr_get_attribute(g_, GDR_ATTR_USE_PERSISTENT_MAPPING, &value), 0);
  EXPECT_EQ(value, 1);
  // Stand-in memory is cached memory: no PCIe to force, no dma-buf.
  value = 7;
  EXPECT_EQ(gdr_get_attribute(g_, GDR_ATTR_SUPPORT_PIN_FLAG_FORCE_PCIE, &value), 0);
  EXPECT_EQ(value, 0);
  value = 7;
  EXPECT_EQ(gdr_get_attribute(g_, GDR_ATTR_USING_DMA_BUF_MMAP, &value), 0);
  EXPECT_EQ(value, 0);
  for (const unsigned number : {0U, unsigned{GDR_ATTR_MAX}, 99U, ~0U}) {
    gdr_attr_t unknown;
    std::memcpy(&unknown, &number, sizeof unknown);
    value = 7;
    EXPECT_EQ(gdr_get_attribute(g_, unknown, &value), EINVAL) << number;
    EXPECT_EQ(value, 0);
  }
}

TEST(MappingTypeString, NamesEveryType) {
  const char* name = nullptr;
  EXPECT_EQ(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_NONE, &name), 0);
  EXPECT_STREQ(name, "None");
  EXPECT_EQ(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_WC, &name), 0);
  EXPECT_STREQ(name, "Write Combining");
  EXPECT_EQ(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_CACHING, &name), 0);
  EXPECT_STREQ(name, "Caching");
  EXPECT_EQ(gdr_get_mapping_type_string(GDR_MAPPING_TYPE_DEVICE, &name), 0);
  EXPECT_STREQ(name, "Device");
  for (const unsigned number : {4U, ~0U}) {
    gdr_mapping_type_t unknown;
    std::memcpy(&unknown, &number, sizeof unknown);
    EXPECT_EQ(gdr_get_mapping_type_string(unknown, &name), EINVAL) << number;
  }
}

TEST(Open, RefusesWrongStandInCount) {
  const ScopedEnvironment stand_ins("GIGABAR_STAND_IN", "many");
  errno = 0;
  EXPECT_EQ(gdr_open(), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Open, RefusesUnknownBackend) {
  const ScopedEnvironment stand_ins("GIGABAR_STAND_IN", "1");
  const ScopedEnvironment mapping("GIGABAR_MAPPING", "magic");
  errno = 0;
  EXPECT_EQ(gdr_open(), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Open, RequiredDmaBufDoesNotFallBack) {
  const ScopedEnvironment stand_ins("GIGABAR_STAND_IN", "1");
  {
    const ScopedEnvironment dmabuf("GDRCOPY_USE_DMABUF_MMAP", "1");
    errno = 0;
    EXPECT_EQ(gdr_open(), nullptr);
    EXPECT_EQ(errno, ENODEV);
  }
  const ScopedEnvironment other_value("GDRCOPY_USE_DMABUF_MMAP", "0");
  gdr_t g = gdr_open();
  ASSERT_NE(g, nullptr);
  EXPECT_EQ(gdr_close(g), 0);
}

TEST_F(Session, CloseUnpinsEverything) {
  std::vector<gdr_mh_t> handles;
  const DeviceMemory memory = allocate(200 * 4096);
  // More than one chunk of the table; some mapped.
  for (std::size_t i = 0; i < 200; ++i) {
    handles.push_back(pin(address_of(memory, i * 4096), 4096));
    if (i % 3 == 0) map(handles.back(), 4096);
  }
  ASSERT_EQ(gdr_close(std::exchange(g_, nullptr)), 0);
  char byte = 0;
  for (const gdr_mh_t handle : handles) EXPECT_EQ(gdr_copy_from_mapping(handle, &byte, memory.address(), 1), EINVAL);
}

TEST_F(Session, HandlesBelongToTheirSession) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  gdr_t other = gdr_open();
  ASSERT_NE(other, nullptr);
  gdr_info_t info = {};
  void* va = nullptr;
  EXPECT_EQ(gdr_get_info_v2(other, handle, &info), EINVAL);
  EXPECT_EQ(gdr_map(other, handle, &va, 4096), EINVAL);
  EXPECT_EQ(gdr_unpin_buffer(other, handle), EINVAL);
  EXPECT_EQ(gdr_close(other), 0);
  EXPECT_EQ(gdr_unpin_buffer(g_, handle), 0) << "closing another session took it away";
}

}  // namespace
}  // namespace gigabar::test
