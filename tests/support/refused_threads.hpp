// SPDX-License-Identifier: Apache-2.0
// A system that starts no more threads, as a container engine's profile that knows no clone3, and one that allows no threads at
// all: for ISOLATED_TEST, or a thread that ends.
#pragma once

namespace gigabar::test {

// From now on the calling thread starts none; others do. The test fails where the kernel has no seccomp filters.
void refuse_threads();

}  // namespace gigabar::test
