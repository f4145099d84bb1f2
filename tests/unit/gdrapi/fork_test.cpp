// SPDX-License-Identifier: Apache-2.0
// What a forked child may do with its parent's session and handles: nothing, and get told so.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "unit/gdrapi/support.hpp"

namespace gigabar::test {
namespace {

// Runs `body` in a forked child; its return value is the child's exit status.
template <class Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

class GdrFork : public GdrTest {};

TEST_F(GdrFork, ChildMayNotUseTheParentsSession) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  const gdr_mh_t unmapped = pin(memory);
  char* va = map(handle, 4096);
  const int step = in_child([&] {
    gdr_mh_t pinned = {77};
    gdr_info_t info = {};
    char byte = 0;
    int value = 0;
    void* address = nullptr;
    if (gdr_pin_buffer(g_, address_of(memory), 4096, 0, 0, &pinned) != EACCES) return 1;
    if (gdr_pin_buffer_v2(g_, address_of(memory), 4096, 0, &pinned) != EACCES) return 2;
    if (gdr_get_info(g_, handle, &info) != EACCES) return 3;
    if (gdr_get_callback_flag(g_, handle, &value) != EACCES) return 4;
    if (gdr_map(g_, unmapped, &address, 4096) != EACCES) return 5;
    if (gdr_unmap(g_, handle, va, 4096) != EACCES) return 6;
    if (gdr_unpin_buffer(g_, handle) != EACCES) return 7;
    if (gdr_get_attribute(g_, GDR_ATTR_USE_PERSISTENT_MAPPING, &value) != EACCES) return 8;
    if (gdr_driver_get_version(g_, &value, &value) != EACCES) return 9;
    if (gdr_copy_to_mapping(handle, va, &byte, 1) != EACCES) return 10;
    if (gdr_copy_from_mapping(handle, &byte, va, 1) != EACCES) return 11;
    if (gdr_close(g_) != EACCES) return 12;
    return pinned.h == 77 ? 0 : 13;
  });
  EXPECT_EQ(step, 0) << "the step that the child did not pass";
  const char byte = 5;
  EXPECT_EQ(gdr_copy_to_mapping(handle, va, &byte, 1), 0) << "the child took something away from its parent";
}

TEST_F(GdrFork, ChildWorksWithItsOwnSession) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  const int step = in_child([&] {
    gdr_t own = gdr_open();
    if (own == nullptr) return 1;
    if (own == g_) return 2;
    const DeviceMemory own_memory = allocate(4096);
    gdr_mh_t own_handle = {0};
    if (gdr_pin_buffer(own, address_of(own_memory), 4096, 0, 0, &own_handle) != 0) return 3;
    if (own_handle.h == handle.h) return 4;
    void* va = nullptr;
    if (gdr_map(own, own_handle, &va, 4096) != 0) return 5;
    const char byte = 42;
    if (gdr_copy_to_mapping(own_handle, va, &byte, 1) != 0) return 6;
    if (*static_cast<const char*>(own_memory.address()) != 42) return 7;
    return gdr_close(own) == 0 ? 0 : 8;
  });
  EXPECT_EQ(step, 0) << "the step that the child did not pass";
}

}  // namespace
}  // namespace gigabar::test
