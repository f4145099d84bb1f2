// SPDX-License-Identifier: Apache-2.0
// The one copy loop, over what an instruction set offers (its trait). Included by one .cpp per instruction set, each with its own
// compiler flags; everything here has internal linkage, so that no AVX-512 copy of a function reaches a CPU without it.
//
// A trait has
//   store(Size<N>, mapped, host)   N = 16, 32 or 64 bytes from host memory of any alignment to the mapped side, aligned to N;
//                                  a size that it lacks is stored as two halves
//   Vector, kVectorBytes           the widest load of the mapped side
//   load_mapped                    one Vector from the mapped side, aligned to kVectorBytes
//   store_host                     one Vector to host memory of any alignment
// A trait for stores only leaves out the second half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>  // index_sequence, a type without functions

namespace gigabar::kernels {
// Each file of kernels is compiled for other instructions, so each needs its own of everything here.
namespace {  // NOLINT(misc-anonymous-namespace-in-header)

using Byte = unsigned char;
constexpr std::size_t kLineBytes = 64;  // of write-combining buffers and of reads over PCIe

template <std::size_t kBytes>
struct Size {};

template <std::size_t kBytes>
struct Scalar;
template <>
struct Scalar<1> {
  using Type [[gnu::may_alias]] = std::uint8_t;
};
template <>
struct Scalar<2> {
  using Type [[gnu::may_alias]] = std::uint16_t;
};
template <>
struct Scalar<4> {
  using Type [[gnu::may_alias]] = std::uint32_t;
};
template <>
struct Scalar<8> {
  using Type [[gnu::may_alias]] = std::uint64_t;
};

inline std::uintptr_t address_of(const void* place) { return reinterpret_cast<std::uintptr_t>(place); }

// Atomic, so that it is exactly one access of that width on the mapped side whoever else looks; no ordering but what is asked for.
template <std::size_t kBytes, int kOrder = __ATOMIC_RELAXED>
[[gnu::always_inline]] inline void store_scalar(void* mapped, const void* host) {
  typename Scalar<kBytes>::Type value;
  __builtin_memcpy(&value, host, kBytes);
  __atomic_store_n(static_cast<volatile typename Scalar<kBytes>::Type*>(mapped), value, kOrder);
}

template <std::size_t kBytes, int kOrder = __ATOMIC_RELAXED>
[[gnu::always_inline]] inline typename Scalar<kBytes>::Type load_scalar(const void* mapped) {
  return __atomic_load_n(static_cast<const volatile typename Scalar<kBytes>::Type*>(mapped), kOrder);
}

template <std::size_t kBytes, int kOrder>
[[gnu::always_inline]] inline void copy_scalar_from(void* host, const void* mapped) {
  const auto value = load_scalar<kBytes, kOrder>(mapped);
  __builtin_memcpy(host, &value, kBytes);
}

// True when [mapped, +bytes) is one naturally aligned 1, 2, 4 or 8-byte word.
[[gnu::always_inline]] inline bool is_single_access(const void* mapped, std::size_t bytes) {
  return bytes <= 8 && bytes != 0 && ((bytes & (bytes - 1)) | (address_of(mapped) & (bytes - 1))) == 0;
}

template <int kOrder = __ATOMIC_RELAXED>
[[gnu::always_inline]] inline void store_single(void* mapped, const void* host, std::size_t bytes) {
  if (bytes == 8) return store_scalar<8, kOrder>(mapped, host);
  if (bytes == 4) return store_scalar<4, kOrder>(mapped, host);
  if (bytes == 2) return store_scalar<2, kOrder>(mapped, host);
  store_scalar<1, kOrder>(mapped, host);
}

template <int kOrder = __ATOMIC_RELAXED>
[[gnu::always_inline]] inline void load_single(void* host, const void* mapped, std::size_t bytes) {
  if (bytes == 8) return copy_scalar_from<8, kOrder>(host, mapped);
  if (bytes == 4) return copy_scalar_from<4, kOrder>(host, mapped);
  if (bytes == 2) return copy_scalar_from<2, kOrder>(host, mapped);
  copy_scalar_from<1, kOrder>(host, mapped);
}

struct StoreCursor {
  Byte* mapped;
  const Byte* host;
  std::size_t left_bytes;
};

template <class Isa, std::size_t kBytes>
[[gnu::always_inline]] inline void store_bytes(Byte* mapped, const Byte* host) {
  if constexpr (kBytes <= 8) {
    store_scalar<kBytes>(mapped, host);
  } else if constexpr (requires { Isa::store(Size<kBytes>{}, mapped, host); }) {
    Isa::store(Size<kBytes>{}, mapped, host);
  } else {
    store_bytes<Isa, kBytes / 2>(mapped, host);
    store_bytes<Isa, kBytes / 2>(mapped + kBytes / 2, host + kBytes / 2);
  }
}

template <class Isa, std::size_t kBytes>
[[gnu::always_inline]] inline void store_piece(StoreCursor& at) {
  store_bytes<Isa, kBytes>(at.mapped, at.host);
  at.mapped += kBytes;
  at.host += kBytes;
  at.left_bytes -= kBytes;
}

// One step towards the alignment of 2 * kBytes; nothing when the range ends before it.
template <class Isa, std::size_t kBytes>
[[gnu::always_inline]] inline void store_ascending(StoreCursor& at) {
  if ((address_of(at.mapped) & kBytes) != 0 && at.left_bytes >= kBytes) store_piece<Isa, kBytes>(at);
}

template <class Isa, std::size_t kBytes>
[[gnu::always_inline]] inline void store_descending(StoreCursor& at) {
  if ((at.left_bytes & kBytes) != 0) store_piece<Isa, kBytes>(at);
}

// The fewest naturally aligned pieces, in ascending order of address, each byte once: pieces grow up to the 64-byte line, then
// whole lines, then pieces shrink. A short range runs through the same steps: the first piece that does not fit ends the growing,
// and from there every smaller piece is aligned.
template <class Isa>
inline void store_range(void* mapped_destination, const void* source, std::size_t bytes) noexcept {
  if (is_single_access(mapped_destination, bytes)) [[likely]] {
    return store_single(mapped_destination, source, bytes);
  }
  StoreCursor at{static_cast<Byte*>(mapped_destination), static_cast<const Byte*>(source), bytes};
  if ((address_of(at.mapped) & (kLineBytes - 1)) != 0) {
    store_ascending<Isa, 1>(at);
    store_ascending<Isa, 2>(at);
    store_ascending<Isa, 4>(at);
    store_ascending<Isa, 8>(at);
    store_ascending<Isa, 16>(at);
    store_ascending<Isa, 32>(at);
  }
  while (at.left_bytes >= 4 * kLineBytes) {
    store_piece<Isa, kLineBytes>(at);
    store_piece<Isa, kLineBytes>(at);
    store_piece<Isa, kLineBytes>(at);
    store_piece<Isa, kLineBytes>(at);
  }
  while (at.left_bytes >= kLineBytes) store_piece<Isa, kLineBytes>(at);
  if (at.left_bytes == 0) return;
  store_descending<Isa, 32>(at);
  store_descending<Isa, 16>(at);
  store_descending<Isa, 8>(at);
  store_descending<Isa, 4>(at);
  store_descending<Isa, 2>(at);
  store_descending<Isa, 1>(at);
}

// Host to host, fewer than 2 * kPiece bytes; written out because a call of memcpy would wait for the mapped side before it returns.
template <std::size_t kPiece>
[[gnu::always_inline]] inline void copy_short(Byte* to, const Byte* from, std::size_t bytes) {
  if ((bytes & kPiece) != 0) {
    __builtin_memcpy(to, from, kPiece);
    to += kPiece;
    from += kPiece;
  }
  if constexpr (kPiece > 1) copy_short<kPiece / 2>(to, from, bytes);
}

// One vector per index: every load is issued before the first store waits for one of them.
template <class Isa, std::size_t... kIndex>
[[gnu::always_inline]] inline void load_vectors(Byte* host, const Byte* mapped, std::index_sequence<kIndex...>) {
  const typename Isa::Vector vectors[] = {Isa::load_mapped(mapped + kIndex * Isa::kVectorBytes)...};
  (Isa::store_host(host + kIndex * Isa::kVectorBytes, vectors[kIndex]), ...);
}

// Whole aligned vectors only: a narrow load of write-combined memory costs the same round trip as a wide one. The first and the
// last vector may hold bytes nobody asked for, of the same aligned line; they go through the stack. The address sanitizer would
// call those bytes an overrun and the thread sanitizer a race with whoever writes them, so neither looks at this function.
template <class Isa>
[[gnu::no_sanitize_address, gnu::no_sanitize_thread]] inline void load_range(void* destination, const void* mapped_source,
                                                                             std::size_t bytes) noexcept {
  static_assert(kLineBytes % Isa::kVectorBytes == 0, "an aligned vector must not cross a line");
  constexpr std::size_t kMask = Isa::kVectorBytes - 1;
  if (is_single_access(mapped_source, bytes)) [[likely]] {
    return load_single(destination, mapped_source, bytes);
  }
  if (bytes == 0) return;

  auto* to = static_cast<Byte*>(destination);
  const auto* from = static_cast<const Byte*>(mapped_source);
  alignas(64) Byte first[Isa::kVectorBytes];
  alignas(64) Byte last[Isa::kVectorBytes];
  const std::size_t skip_bytes = address_of(from) & kMask;
  std::size_t first_bytes = 0;
  if (skip_bytes != 0) {
    const std::size_t room_bytes = Isa::kVectorBytes - skip_bytes;
    first_bytes = bytes < room_bytes ? bytes : room_bytes;
    Isa::store_host(first, Isa::load_mapped(from - skip_bytes));
  }
  Byte* body_to = to + first_bytes;
  const Byte* body_from = from + first_bytes;
  std::size_t left_bytes = bytes - first_bytes;
  constexpr std::size_t kBatch = Isa::kVectorBytes >= 16 ? 4 * kLineBytes / Isa::kVectorBytes : 8;
  constexpr std::size_t kBatchBytes = kBatch * Isa::kVectorBytes;
  for (; left_bytes >= kBatchBytes; left_bytes -= kBatchBytes, body_to += kBatchBytes, body_from += kBatchBytes) {
    load_vectors<Isa>(body_to, body_from, std::make_index_sequence<kBatch>{});
  }
  for (; left_bytes >= Isa::kVectorBytes;
       left_bytes -= Isa::kVectorBytes, body_to += Isa::kVectorBytes, body_from += Isa::kVectorBytes) {
    load_vectors<Isa>(body_to, body_from, std::index_sequence<0>{});
  }
  if (left_bytes != 0) {
    Isa::store_host(last, Isa::load_mapped(body_from));
    copy_short<Isa::kVectorBytes / 2>(body_to, last, left_bytes);
  }
  if (first_bytes != 0) copy_short<Isa::kVectorBytes / 2>(to, first + skip_bytes, first_bytes);
}

}  // namespace
}  // namespace gigabar::kernels
