// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls, most of them wrong in some way, against a model written from gdrapi.h: codes and data must agree.
#include <array>
#include <cerrno>
#include <cstring>
#include <random>

#include "unit/gdrapi/support.hpp"

namespace gigabar::test {
namespace {

constexpr std::size_t kHostPage = 4096;
constexpr std::size_t kBufferBytes = 3 * GPU_PAGE_SIZE;
constexpr std::size_t kBufferCount = 3;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

struct ModelHandle {
  gdr_mh_t handle = {0};
  std::size_t session = 0;
  std::size_t buffer = 0;
  std::size_t lead_bytes = 0;  // of the pinned address in its first GPU page
  std::size_t first_page = 0;  // offset of that page in the buffer
  std::size_t pinned_bytes = 0;
  std::size_t asked_bytes = 0;
  std::size_t mapped_bytes = 0;  // 0: not mapped
  char* va = nullptr;            // of the last map
  bool is_live = false;
};

class Model {
 public:
  explicit Model(unsigned seed) : random_(seed) {
    for (std::size_t i = 0; i < kBufferCount; ++i) {
      buffers_.push_back(allocate(kBufferBytes));
      content_.emplace_back(kBufferBytes);
      std::memset(buffers_.back().address(), 0, kBufferBytes);
    }
    for (gdr_t& g : sessions_) g = gdr_open();
  }
  ~Model() {
    for (gdr_t g : sessions_) EXPECT_EQ(gdr_close(g), 0);
    for (std::size_t i = 0; i < kBufferCount; ++i) {
      EXPECT_EQ(std::memcmp(buffers_[i].address(), content_[i].data(), kBufferBytes), 0) << "buffer " << i;
    }
  }

  void step() {
    switch (below(10)) {
      case 0:
      case 1: pin(); break;
      case 2: unpin(); break;
      case 3: map(); break;
      case 4: unmap(); break;
      case 5: describe(); break;
      case 6:
        if (below(20) == 0) reopen();
        break;
      default: copy();
    }
  }

 private:
  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }

  // Sizes and offsets where something changes, or anything.
  std::size_t some_bytes() {
    constexpr std::size_t kEdges[] = {0,
                                      1,
                                      kHostPage,
                                      kHostPage + 1,
                                      GPU_PAGE_SIZE - 1,
                                      GPU_PAGE_SIZE,
                                      GPU_PAGE_SIZE + 1,
                                      2 * GPU_PAGE_SIZE,
                                      kBufferBytes - 1,
                                      kBufferBytes,
                                      kBufferBytes + 1,
                                      ~std::size_t{0}};
    return below(2) == 0 ? kEdges[below(std::size(kEdges))] : below(kBufferBytes + 100);
  }

  // A handle that was ever given (live or not), or one that never was. Null: none was.
  ModelHandle* some_handle() {
    return handles_.empty() ? nullptr : &handles_[handles_.size() - 1 - below(std::min<std::size_t>(handles_.size(), 12))];
  }

  bool is_usable(const ModelHandle& handle, std::size_t session) const { return handle.is_live && handle.session == session; }

  void pin() {
    ModelHandle made;
    made.session = below(sessions_.size());
    made.buffer = below(kBufferCount);
    const std::size_t offset = below(2) == 0 ? below(4) * GPU_PAGE_SIZE : below(kBufferBytes);
    const std::size_t bytes = some_bytes();
    const int code = gdr_pin_buffer(sessions_[made.session], address_of(buffers_[made.buffer], offset), bytes, 0, 0, &made.handle);
    const bool is_good = offset < kBufferBytes && bytes != 0 && bytes <= kBufferBytes - offset;
    ASSERT_EQ(code, is_good ? 0 : EINVAL) << "pin " << offset << " +" << bytes;
    if (!is_good) return;
    made.first_page = offset / GPU_PAGE_SIZE * GPU_PAGE_SIZE;
    made.lead_bytes = offset - made.first_page;
    made.pinned_bytes = round_up(offset + bytes, GPU_PAGE_SIZE) - made.first_page;
    made.is_live = true;
    handles_.push_back(made);
  }

  void unpin() {
    ModelHandle* const handle = some_handle();
    if (handle == nullptr) return;
    const std::size_t session = below(sessions_.size());
    ASSERT_EQ(gdr_unpin_buffer(sessions_[session], handle->handle), is_usable(*handle, session) ? 0 : EINVAL);
    if (is_usable(*handle, session)) handle->is_live = false;
  }

  void map() {
    ModelHandle* const handle = some_handle();
    if (handle == nullptr) return;
    const std::size_t session = below(sessions_.size());
    const std::size_t bytes = some_bytes();
    void* va = nullptr;
    int expected = is_usable(*handle, session) && bytes != 0 && bytes <= handle->pinned_bytes ? 0 : EINVAL;
    if (is_usable(*handle, session) && handle->mapped_bytes != 0) expected = EAGAIN;
    ASSERT_EQ(gdr_map(sessions_[session], handle->handle, &va, bytes), expected) << "map " << bytes;
    if (expected != 0) return;
    handle->va = static_cast<char*>(va);
    handle->asked_bytes = bytes;
    // Host pages up to the last byte that was asked for, as far as pages are pinned (map_test.cpp has the numbers).
    handle->mapped_bytes = 0;
    while (handle->mapped_bytes < handle->lead_bytes + bytes && handle->mapped_bytes < handle->pinned_bytes)
      handle->mapped_bytes += kHostPage;
  }

  void unmap() {
    ModelHandle* const handle = some_handle();
    if (handle == nullptr) return;
    const std::size_t session = below(sessions_.size());
    const std::size_t bytes = below(3) == 0 ? some_bytes() : handle->asked_bytes;
    char* const va = handle->va != nullptr && below(4) == 0 ? handle->va + 64 : handle->va;
    const bool is_good = is_usable(*handle, session) && handle->mapped_bytes != 0 && va == handle->va && bytes != 0 &&
                         bytes <= kBufferBytes && round_up(bytes, kHostPage) == round_up(handle->asked_bytes, kHostPage);
    ASSERT_EQ(gdr_unmap(sessions_[session], handle->handle, va, bytes), is_good ? 0 : EINVAL) << "unmap " << bytes;
    if (is_good) handle->mapped_bytes = 0;
  }

  void describe() {
    const ModelHandle* const handle = some_handle();
    if (handle == nullptr) return;
    const std::size_t session = below(sessions_.size());
    gdr_info_t info = {};
    ASSERT_EQ(gdr_get_info(sessions_[session], handle->handle, &info), is_usable(*handle, session) ? 0 : EINVAL);
    if (!is_usable(*handle, session)) return;
    EXPECT_EQ(info.va, address_of(buffers_[handle->buffer], handle->first_page));
    EXPECT_EQ(info.mapped_size, handle->pinned_bytes);
    EXPECT_EQ(info.mapped, handle->mapped_bytes != 0 ? 1U : 0U);
  }

  void copy() {
    const ModelHandle* const handle = some_handle();
    if (handle == nullptr || handle->va == nullptr) return;
    const std::size_t offset = below(8) == 0 ? ~std::size_t{0} : below(kBufferBytes);
    const std::size_t bytes = below(2) == 0 ? below(200) : some_bytes();
    char* const place = reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(handle->va) + offset);
    const bool is_good =
        handle->is_live && offset <= handle->mapped_bytes && handle->mapped_bytes != 0 && bytes <= handle->mapped_bytes - offset;
    auto data = sample_bytes(std::min(bytes, kBufferBytes), static_cast<unsigned>(below(1000)));
    data.resize(data.size() + 1);  // never a null pointer
    std::vector<unsigned char>& content = content_[handle->buffer];
    if (below(2) == 0) {
      ASSERT_EQ(gdr_copy_to_mapping(handle->handle, place, data.data(), bytes), is_good ? 0 : EINVAL) << offset << " +" << bytes;
      if (is_good) std::memcpy(content.data() + handle->first_page + offset, data.data(), bytes);
    } else {
      ASSERT_EQ(gdr_copy_from_mapping(handle->handle, data.data(), place, bytes), is_good ? 0 : EINVAL) << offset << " +" << bytes;
      if (is_good) {
        EXPECT_EQ(std::memcmp(content.data() + handle->first_page + offset, data.data(), bytes), 0);
      }
    }
  }

  void reopen() {
    const std::size_t session = below(sessions_.size());
    ASSERT_EQ(gdr_close(sessions_[session]), 0);
    for (ModelHandle& handle : handles_) {
      if (handle.session == session) handle.is_live = false;
    }
    sessions_[session] = gdr_open();
    ASSERT_NE(sessions_[session], nullptr);
  }

  std::mt19937 random_;
  std::vector<DeviceMemory> buffers_;
  std::vector<std::vector<unsigned char>> content_;
  std::array<gdr_t, 2> sessions_{};
  std::vector<ModelHandle> handles_;
};

TEST(RandomCalls, AgreeWithTheModel) {
  const ScopedEnvironment stand_ins("GIGABAR_STAND_IN", "1");
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Model model(seed);
    for (int step = 0; step < 3000 && !testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE(testing::Message() << "step " << step);
      model.step();
    }
  }
  trim_mapping_cache(0);
}

}  // namespace
}  // namespace gigabar::test
