// SPDX-License-Identifier: Apache-2.0
#include "secure/secret.hpp"

#include <sodium.h>

#include <cstring>
#include <mutex>
#include <new>
#include <vector>

namespace gigabar::secure {
namespace {

// With the canary that libsodium puts before them, a page.
constexpr std::size_t kCellBytes = 64;
constexpr std::size_t kCellsPerPage = 63;

char* allocate(std::size_t bytes) {
  // sodium_malloc needs to know the size of a page, and random bytes.
  void* const memory = sodium_init() >= 0 ? sodium_malloc(bytes) : nullptr;
  if (memory == nullptr) throw std::bad_alloc();
  sodium_memzero(memory, bytes);
  return static_cast<char*>(memory);
}

// Zeroed places for small secrets, many in a page: one of its own for each would be four mappings for every channel.
class Cells {
 public:
  char* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) add_page();
    char* const cell = free_.back();
    free_.pop_back();
    return cell;
  }
  void give_back(char* cell) noexcept {
    sodium_memzero(cell, kCellBytes);
    const std::lock_guard lock(mutex_);
    free_.push_back(cell);  // there is room
  }

 private:
  void add_page() {
    free_.reserve(cell_count_ + kCellsPerPage);
    char* const page = allocate(kCellBytes * kCellsPerPage);
    for (std::size_t cell = 0; cell < kCellsPerPage; ++cell) free_.push_back(page + cell * kCellBytes);
    cell_count_ += kCellsPerPage;
  }

  std::mutex mutex_;
  std::vector<char*> free_;
  std::size_t cell_count_ = 0;
};

// Outlives every secret, those of static storage too.
Cells& cells() {
  static Cells& all = *new Cells;
  return all;
}

}  // namespace

Secret Secret::of_size(std::size_t bytes) {
  Secret made;
  if (bytes == 0) return made;
  made.memory_ = bytes <= kCellBytes ? cells().take() : allocate(bytes);
  made.size_bytes_ = bytes;
  return made;
}

Secret::Secret(std::string_view bytes) : Secret(of_size(bytes.size())) {
  if (!bytes.empty()) std::memcpy(memory_, bytes.data(), bytes.size());
}

Secret::~Secret() {
  if (memory_ == nullptr) return;
  if (size_bytes_ <= kCellBytes) {
    cells().give_back(memory_);
  } else {
    sodium_free(memory_);  // wipes it
  }
}

}  // namespace gigabar::secure
