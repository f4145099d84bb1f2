// SPDX-License-Identifier: Apache-2.0
// Mappings and forked children: the child has none unless it was asked for, and cannot harm the parent's.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "gigabar/copy.hpp"
#include "support/in_child.hpp"
#include "support/isolated.hpp"
#include "support/mapping_session.hpp"

namespace gigabar {
namespace {

using test::expect_shows_memory;
using test::FakeSession;
using test::MappingSession;
using test::must_map;
using test::pointer;
using test::require;
using test::run_in_child;

constexpr std::size_t kBlock = std::size_t{2} << 20;

ISOLATED_TEST(Fork, AChildDoesNotHaveTheMapping) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  for (const MappingBackend backend : {MappingBackend::dmabuf, MappingBackend::gdrdrv, MappingBackend::rm}) {
    const Mapping mapping = must_map(address, kBlock, require(backend));
    EXPECT_TRUE(run_in_child([&] { return mapping.is_usable() ? 1 : 0; }).is_exit(0)) << name_of(backend);
    // Not even its pages: the parent's BAR1 window is not in the child's address space.
    EXPECT_TRUE(run_in_child([&] { return static_cast<int>(*static_cast<volatile std::byte*>(mapping.address())); }).is_fault())
        << name_of(backend);
    expect_shows_memory(mapping, 1);
  }
  FakeSession::free(address);
}

ISOLATED_TEST(Fork, AnInheritedMappingWorksInTheChild) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  MapOptions inherit;
  inherit.inherit_on_fork = true;
  const Mapping mapping = must_map(address, kBlock, inherit);
  mapping.address()[0] = std::byte{4};
  EXPECT_TRUE(run_in_child([&] {
                if (!mapping.is_usable() || mapping.address()[0] != std::byte{4}) return 1;
                const std::vector<std::byte> much(kBlock, std::byte{5});
                if (!copy({mapping, 0}, much.data(), much.size())) return 2;  // the copy engine is the parent's
                mapping.address()[kBlock - 1] = std::byte{9};
                return 0;
              }).is_exit(0));
  EXPECT_EQ(FakeSession::read(address + kBlock - 1, 1)[0], 9) << "the child wrote to the GPU's memory";
  FakeSession::free(address);
}

// The child destroys its copies; the parent's windows, handles and pins are not its to undo.
ISOLATED_TEST(Fork, AChildThatDestroysItsCopiesHarmsNothing) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  MapOptions inherit;
  for (const MappingBackend backend : {MappingBackend::dmabuf, MappingBackend::gdrdrv, MappingBackend::rm}) {
    for (const bool is_inherited : {false, true}) {
      if (is_inherited && backend == MappingBackend::gdrdrv) continue;  // refused, see below
      inherit.backend = backend;
      inherit.inherit_on_fork = is_inherited;
      std::optional<Mapping> mapping = must_map(address, kBlock, inherit);
      EXPECT_TRUE(run_in_child([&] {
                    mapping.reset();
                    trim_mapping_cache(0);
                    return 0;
                  }).is_exit(0))
          << name_of(backend);
      expect_shows_memory(*mapping, 3);
    }
  }
  EXPECT_EQ(FakeSession::counts().violations, 0u) << FakeSession::counts().last_violation;
  FakeSession::free(address);
}

// The module keeps its mappings from children whatever the library asks for, so the promise is not made.
ISOLATED_TEST(Fork, GdrdrvCannotBeInherited) {
  MappingSession session;
  session.have_all_backends();
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  MapOptions inherit;
  inherit.inherit_on_fork = true;
  EXPECT_EQ(must_map(address, kBlock, inherit).backend(), MappingBackend::dmabuf);
  inherit.backend = MappingBackend::gdrdrv;
  const auto refused = map(pointer(address), kBlock, inherit);
  ASSERT_FALSE(refused);
  EXPECT_EQ(name_of(refused.status()), "not_supported");
  EXPECT_NE(refused.error().message().find("fork"), std::string::npos) << refused.error().message();
  FakeSession::free(address);
}

// CUDA does not work in a forked child: the call says so by name.
ISOLATED_TEST(Fork, MapInTheChildIsForeign) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const Mapping mapping = must_map(address, kBlock);
  EXPECT_TRUE(run_in_child([&] {
                return static_cast<int>(map(pointer(address), kBlock).status());
              }).is_exit(static_cast<int>(Status::foreign_process)));
  EXPECT_TRUE(map(pointer(address), kBlock)) << "and the parent goes on";
  FakeSession::free(address);
}

ISOLATED_TEST(Fork, AChildOfAChild) {
  MappingSession session;
  session.start();
  const CUdeviceptr address = FakeSession::allocate(kBlock);
  const Mapping mapping = must_map(address, kBlock);
  const auto in_grandchild = [&] { return run_in_child([&] { return mapping.is_usable() ? 1 : 0; }).is_exit(0) ? 0 : 1; };
  EXPECT_TRUE(run_in_child(in_grandchild).is_exit(0));
  FakeSession::free(address);
}

}  // namespace
}  // namespace gigabar
