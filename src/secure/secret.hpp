// SPDX-License-Identifier: Apache-2.0
// Bytes that nobody else may see.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

namespace gigabar::secure {

// Never printed, wiped when it goes or is replaced. The bytes lie in pages of libsodium's: between guard pages, left out of core
// dumps, and kept out of swap as far as `ulimit -l` allows. Up to 64 bytes share their page with at most 62 other secrets, with no
// guard between them; more have pages of their own.
class Secret {
 public:
  Secret() noexcept = default;
  // A copy: who had the bytes wipes them. This and all that copies throws std::bad_alloc.
  explicit Secret(std::string_view bytes);
  // Zeros.
  static Secret of_size(std::size_t bytes);
  Secret(const Secret& other) : Secret(other.bytes()) {}
  Secret(Secret&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Secret& operator=(Secret other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Secret();

  bool is_set() const noexcept { return size_bytes_ != 0; }
  std::string_view bytes() const noexcept { return {memory_, size_bytes_}; }
  unsigned char* data() noexcept { return reinterpret_cast<unsigned char*>(memory_); }
  const unsigned char* data() const noexcept { return reinterpret_cast<const unsigned char*>(memory_); }

 private:
  char* memory_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace gigabar::secure
