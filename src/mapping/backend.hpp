// SPDX-License-Identifier: Apache-2.0
// Windows, pieces of device memory in this process's address space; who can make them, and the reasons why not. One file per
// backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "base/errors.hpp"
#include "gigabar/mapping.hpp"
#include "gigabar/memory.hpp"
#include "memory/runtime.hpp"

namespace gigabar::inline v0 {

// Serves the device addresses [device_begin, device_begin + bytes).
struct Window {
  std::byte* address = nullptr;
  std::uintptr_t device_begin = 0;
  std::size_t bytes = 0;
  MappingType type = MappingType::cached;
  // Unmaps them when the last copy goes, except in a forked child, which must not touch what the parent still uses. Null: they are
  // the application's.
  std::shared_ptr<const void> pages;

  bool covers(std::uintptr_t begin, std::size_t length) const noexcept {
    return begin >= device_begin && begin - device_begin <= bytes && length <= bytes - (begin - device_begin);
  }
  std::byte* at(std::uintptr_t device_address) const noexcept { return address + (device_address - device_begin); }
};

// Device addresses [begin, begin + bytes).
struct DeviceRange {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};

// What of an allocation to map when [begin, begin + bytes) of it is asked for: all of it while that is cheap, so that later ranges
// find their window; the range, rounded to large pages, where mapping all would take milliseconds and much BAR1.
DeviceRange range_to_map(DeviceRange allocation, DeviceRange asked) noexcept;

// Keeps the pages of a mapping from forked children (MADV_DONTFORK); logs when the kernel refuses.
void keep_from_forked_children(void* address, std::size_t bytes) noexcept;

// What a window must reach, and whether forked children have it too.
struct WindowRequest {
  DeviceRange asked;
  bool is_inherited = false;
};

// Device memory as its owner names it, this process or another one of this user.
struct PeerMemory {
  PointerInfo memory;                   // `pci`, and addresses as the owner has them
  std::optional<IpcIdentity> identity;  // of cudaMalloc memory
  int descriptor = -1;                  // of VMM memory, exported; stays the caller's
};

// A GPU as a process with a context of it shows it to others, which need none and may not even see it among CUDA's: where it is,
// and memory of the library's own with numbers in it that nobody guesses.
struct DeviceProof {
  using Pci = std::array<char, 24>;
  Pci pci{};                     // as PciAddress::to_string(), zeros behind it
  std::uint64_t bar1_bytes = 0;  // size of the aperture; 0: not known
  std::uint64_t address = 0;     // of the memory, as its owner has it
  std::uint64_t bytes = 0;
  std::array<std::uint64_t, 2> nonces{};  // a quarter behind its begin, and before its end
  IpcIdentity identity{};
};

// Threads: open() is called by one thread at a time; the rest by any.
struct Backend {
  MappingBackend name;
  // Whether it works with that device at all. Opens drivers on first use; a failure that can pass (descriptors) is asked anew.
  Availability (*availability)(int device);
  // Whether it can map this kind of memory.
  Availability (*can_map)(const PointerInfo& memory);
  // A window over at least the range asked for, which lies in the allocation. Errors as of map().
  Result<Window> (*open)(const PointerInfo& memory, const WindowRequest& request);
  // Whether a device must be proved with memory of the library's own before the first window is handed out.
  bool needs_proof = true;
};
extern const Backend dmabuf_backend, gdrdrv_backend, rm_backend, host_backend;

// All four, in order of preference.
inline constexpr std::array<const Backend*, kMappingBackendCount> kMappingBackends{&dmabuf_backend, &gdrdrv_backend, &rm_backend,
                                                                                   &host_backend};

// open() of the rm backend over memory of another process.
Result<Window> open_peer_by_rm(const PeerMemory& peer, DeviceRange range);

inline std::optional<PciAddress> address_of(const DeviceProof& proof) {
  return PciAddress::parse({proof.pci.data(), ::strnlen(proof.pci.data(), proof.pci.size())});
}

// A window over `range` of another process's device memory, for as long as it lives; nothing is cached. `proof`: its owner's, of
// that GPU. Calls nothing of CUDA, so no context is made. Errors: as of map(), and not_supported (GIGABAR_MAPPING asks for a
// backend that cannot, or the proof is none). Threads: any.
Result<Window> open_peer_window(const PeerMemory& peer, const DeviceProof& proof, DeviceRange range);

// What others may open windows into this process's memory of `device` with, as long as it is held. Memory is allocated when it is
// asked first. Errors: whatever allocating, copying and naming it answer. Threads: any.
Result<std::shared_ptr<const DeviceProof>> proof_of(int device);

// The one that GIGABAR_MAPPING asks for; nothing: any. Errors, of `operation`: invalid_argument.
Result<std::optional<MappingBackend>> backend_of_environment(const char* operation);

// CUDA's reason, when device memory cannot exist here or `device` is not a GPU; ok otherwise.
Availability gpu_availability(int device);

// "managed memory moves between host and device" and the like, for memory that no backend can map.
inline Availability not_supported(std::string reason, std::string remedy) {
  return {AvailabilityCode::not_supported, std::move(reason), std::move(remedy)};
}

// ---- Proof that a window shows the memory it should. A wrong device instance maps another GPU's memory without an error, so
// nothing is handed out before the copy engine and the window agreed.

// Reads the first, a middle and the last place of the allocation that lie in the window, through it and by the copy engine. Memory
// that the GPU is changing meanwhile proves nothing and does not fail. With Verification::nonce, bytes that are all alike are
// replaced by a nonce and restored. Errors: verification_failed, device_error.
Result<void> verify_window(const Window& window, const PointerInfo& memory, Verification verification);

// Of a device, once allocated: a small block and a large one, and what others are told of the larger one that is there. It is kept:
// to free it would wait for the device's kernels, and one of them may wait for a store through the very mapping that is being made.
struct ProofMemory {
  std::array<std::optional<DeviceMemory>, 2> blocks;
  std::optional<DeviceProof> told;
};

// Maps memory of the library's own on `device` through `backend` and moves a nonce in both directions. The large block is left out
// where the GPU has no room for it. Errors: verification_failed, and whatever allocating and mapping answer.
Result<void> prove_device(const Backend& backend, int device, ProofMemory& proof_memory);

// Makes `told` of it. Errors: as of proof_of().
Result<void> tell_proof(int device, ProofMemory& proof_memory);

// Whether the numbers of a proof are where it says. Errors: not_supported (it is none), verification_failed, and whatever mapping
// answers.
Result<void> check_proof(const DeviceProof& proof);

}  // namespace gigabar::inline v0
