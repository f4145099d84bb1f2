// SPDX-License-Identifier: Apache-2.0
// The bytes of offers, answers and keys. Both ends are on one machine, so numbers are in its order.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "memory/runtime.hpp"

namespace gigabar::transport::local {

inline constexpr std::string_view kAddress = "gigabar local 1";
inline constexpr std::uint32_t kOfferMagic = 0x316c6f67;   // "gol1"
inline constexpr std::uint32_t kAnswerMagic = 0x316c6167;  // "gal1"
inline constexpr std::uint32_t kKeyMagic = 0x316c6b67;     // "gkl1"

// Descriptors: the link's memory, the acceptor's socket.
struct OfferBytes {
  std::uint32_t magic = kOfferMagic;
  std::uint32_t ring_lines = 0;
  std::uint64_t file_bytes = 0;
};

struct AnswerBytes {
  std::uint32_t magic = kAnswerMagic;
  std::uint32_t is_accepted = 0;
};

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
};
static_assert(std::is_trivially_copyable_v<KeyBytes> && sizeof(KeyBytes) == 192);
inline constexpr std::size_t kMaxReasonBytes = 512;

template <class T>
std::string bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// False when there are fewer bytes.
template <class T>
bool read_front(std::string_view bytes, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() < sizeof value) return false;
  bytes.copy(reinterpret_cast<char*>(&value), sizeof value);
  return true;
}

}  // namespace gigabar::transport::local
