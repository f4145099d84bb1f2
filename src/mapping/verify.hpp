// SPDX-License-Identifier: Apache-2.0
// Proof that a window shows the memory it should. A wrong device instance maps another GPU's memory without an error, so nothing is
// handed out before the copy engine and the window agreed.
#pragma once

#include <array>
#include <optional>

#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "mapping/backend.hpp"
#include "mapping/window.hpp"

namespace gigabar::inline v0 {

// Reads the first, a middle and the last place of the allocation that lie in the window, through it and by the copy engine. Memory
// that the GPU is changing meanwhile proves nothing and does not fail. With Verification::nonce, bytes that are all alike are
// replaced by a nonce and restored. Errors: verification_failed, device_error.
Result<void> verify_window(const Window& window, const PointerInfo& memory, Verification verification);

// Of a device, once allocated: a small block and a large one. It is kept: to free it would wait for the device's kernels, and one
// of them may wait for a store through the very mapping that is being made.
using ProofMemory = std::array<std::optional<DeviceMemory>, 2>;

// Maps memory of the library's own on `device` through `backend` and moves a nonce in both directions. The large block is left out
// where the GPU has no room for it. Errors: verification_failed, and whatever allocating and mapping answer.
Result<void> prove_device(Backend& backend, int device, ProofMemory& proof_memory);

}  // namespace gigabar::inline v0
