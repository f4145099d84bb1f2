// SPDX-License-Identifier: Apache-2.0
// A forked child beside its parent's session, which it must not use (the scenarios fork_* of sanity_test.cpp).
#include "support/in_child.hpp"
#include "unit/gdrapi/support.hpp"

namespace gigabar::test {
namespace {

class GdrFork : public GdrTest {};

TEST_F(GdrFork, ChildWorksWithItsOwnSession) {
  const DeviceMemory memory = allocate(4096);
  const gdr_mh_t handle = pin(memory);
  const ChildEnd end = run_in_child([&] {
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
  EXPECT_TRUE(end.is_exit(0)) << end.to_string() << ": the step that the child did not pass";
}

}  // namespace
}  // namespace gigabar::test
