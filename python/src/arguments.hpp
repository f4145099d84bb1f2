// SPDX-License-Identifier: Apache-2.0
// Arguments from Python: memory of any library, and whole numbers. Each refusal names the argument.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "errors.hpp"

namespace gigabar::python {

// Where an argument stands, for messages.
struct Argument {
  const char* operation;
  const char* name;
};

enum class Access : std::uint8_t { read, write };

// The bytes of an object, which stays alive, and does not move, as long as this. The object offers the buffer protocol, DLPack or
// __cuda_array_interface__, in this order, and its elements are contiguous. Made, moved and destroyed with the GIL.
class Bytes {
 public:
  Bytes(nb::handle object, Access access, const Argument& argument);
  Bytes(Bytes&& other) noexcept;
  Bytes& operator=(Bytes&&) = delete;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes();

  void* address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // False: the CPU may not access it. Memory of a stand-in device can be accessed.
  bool is_host() const noexcept { return is_host_; }
  // Of the buffer protocol; of an item, 1 when unknown.
  std::size_t item_bytes() const noexcept { return item_bytes_; }
  // Whether items are signed or unsigned integers of 8 bytes.
  bool has_words() const noexcept { return has_words_; }

 private:
  // False: it has none, but another way to its memory.
  bool take_buffer(nb::handle object, Access access, const Argument& argument);
  template <class Array>
  bool take_dlpack(nb::handle object, const Argument& argument);
  bool take_cuda_interface(nb::handle object, Access access, const Argument& argument);

  Py_buffer buffer_{};
  bool has_buffer_ = false;
  nb::object owner_;
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t item_bytes_ = 1;
  bool is_host_ = true;
  bool has_words_ = false;
};

// As Bytes; memory of a GPU is refused.
Bytes host_bytes(nb::handle object, Access access, const Argument& argument);

// A whole number from 0 on, of int or of any type with __index__.
std::uint64_t count_of(nb::handle object, const Argument& argument, std::uint64_t maximum = UINT64_MAX);

// Several, from an array of 8-byte integers or any sequence.
class Counts {
 public:
  Counts(nb::handle object, const Argument& argument);
  std::span<const std::uint64_t> values() const noexcept { return values_; }

 private:
  std::optional<Bytes> array_;
  std::vector<std::uint64_t> copied_;
  std::span<const std::uint64_t> values_;
};

}  // namespace gigabar::python
