// SPDX-License-Identifier: Apache-2.0
// An owned file descriptor, and small files read whole.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace gigabar::inline v0 {

// Owns a descriptor and closes it. -1 is "none".
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Descriptor moved(std::move(other));
    std::swap(number_, moved.number_);
    return *this;
  }
  ~Descriptor();

  int get() const noexcept { return number_; }
  bool is_open() const noexcept { return number_ >= 0; }
  int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_ = -1;
};

// Appends what can be read up to the end; false with errno when that fails, or it is more than `most_bytes` (EFBIG).
bool read_all(int descriptor, std::size_t most_bytes, std::string& content);
// The file's content when it can be read and has at most `most_bytes`; errno says why not. A FIFO or a device with that name is not
// waited for.
std::optional<std::string> read_small_file(const std::string& path, std::size_t most_bytes = 65536);

}  // namespace gigabar::inline v0
