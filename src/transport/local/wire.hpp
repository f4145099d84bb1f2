// SPDX-License-Identifier: Apache-2.0
// The bytes of offers, answers and keys. Both ends are on one machine, so numbers are in its order.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "mapping/backend.hpp"
#include "memory/runtime.hpp"

namespace gigabar::transport::local {

// Their number is that of all below, and of the link's memory.
inline constexpr std::string_view kAddress = "gigabar local 3";
inline constexpr std::string_view kOffer = "gigabar local offer 3";  // descriptors: the link's memory, the acceptor's socket
inline constexpr std::string_view kAnswer = "gigabar local answer 3";
inline constexpr std::uint32_t kKeyMagic = 0x316c6b67;  // "gkl1"

enum class KeyForm : std::uint32_t {
  none,     // cannot be reached from another process; the reason follows the key's bytes
  file,     // the pages of a memfd, which comes with the key
  process,  // addresses of the process, for process_vm_readv and process_vm_writev
  ipc,      // a CUDA IPC handle
  vmm       // CUDA's POSIX descriptor of an allocation, which comes with the key
};

using Nonce = std::array<std::uint8_t, 16>;

struct KeyBytes {
  std::uint32_t magic = kKeyMagic;
  KeyForm form = KeyForm::none;
  std::uint64_t region_id = 0;  // finds the region when the opener is the same process
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset_bytes = 0;      // of the region, in the file or the allocation
  std::uint64_t allocation_bytes = 0;  // ipc, vmm
  std::uint64_t nonce_address = 0;     // process: where `nonce` stands in the owner's memory
  Nonce nonce{};
  std::uint32_t kind = 0;  // MemoryKind
  std::uint32_t padding = 0;
  IpcIdentity ipc{};
  std::array<char, 48> uuid{};  // of the device; ends with 0
  DeviceProof proof{};          // ipc, vmm: of the device; all 0 where there is none
};
static_assert(std::is_trivially_copyable_v<KeyBytes> && sizeof(KeyBytes) == 320);
inline constexpr std::size_t kMaxReasonBytes = 512;

inline std::string bytes_of(const KeyBytes& key) { return {reinterpret_cast<const char*>(&key), sizeof key}; }
// False when there are fewer bytes.
inline bool read_front(std::string_view bytes, KeyBytes& key) {
  return bytes.copy(reinterpret_cast<char*>(&key), sizeof key) == sizeof key;
}

}  // namespace gigabar::transport::local
