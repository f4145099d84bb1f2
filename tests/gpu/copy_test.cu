// SPDX-License-Identifier: Apache-2.0
// Copies through a mapping of real GPU memory against cudaMemcpy: every kernel, alignment and method.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gigabar/copy.hpp"
#include "gigabar/memory.hpp"
#include "gpu/gpu_fixture.hpp"

namespace gigabar::test {
namespace {

using Sizes = std::initializer_list<std::size_t>;

constexpr std::size_t kSlotBytes = 512;  // one case: guard, up to 320 bytes, guard
constexpr std::size_t kGuardBytes = 64;
constexpr unsigned char kGuard = 0xEE;

// One small copy: where in its slot, how long, from which alignment of the host.
struct Case {
  std::size_t mapped_skew;
  std::size_t bytes;
  std::size_t host_skew;
};

std::vector<Case> every_alignment() {
  std::vector<Case> cases;
  for (std::size_t skew = 0; skew < 64; ++skew) {
    for (std::size_t bytes = 1; bytes <= 140; ++bytes) cases.push_back({skew, bytes, (skew * 7 + bytes * 3) % 64});
    for (const std::size_t bytes : Sizes{191, 192, 193, 255, 256, 257, 319, 320})
      cases.push_back({skew, bytes, (skew * 5 + bytes) % 64});
  }
  return cases;
}

std::vector<unsigned char> random_bytes(std::size_t bytes) {
  std::vector<unsigned char> data(bytes);
  std::uint64_t state = 88172645463325252u;
  for (unsigned char& byte : data) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<unsigned char>(state >> 32);
  }
  return data;
}

class CopyTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    cases_ = every_alignment();
    const std::size_t bytes = std::max(cases_.size() * kSlotBytes, std::size_t{20} << 20);
    memory_ = std::make_unique<CudaBuffer>(bytes);
    auto mapped = map(memory_->address(), bytes);
    ASSERT_TRUE(mapped.is_ok()) << mapped.error().message();
    mapping_ = std::make_unique<Mapping>(std::move(mapped).value());
    host_ = random_bytes(bytes);
  }
  void TearDown() override {
    mapping_.reset();
    memory_.reset();
  }

  void set_device(unsigned char value) const {
    ASSERT_CUDA(cudaMemset(memory_->address(), value, memory_->bytes()));
    ASSERT_CUDA(cudaDeviceSynchronize());
  }
  std::vector<unsigned char> device_content(std::size_t bytes) const {
    std::vector<unsigned char> content(bytes);
    EXPECT_EQ(cudaSuccess, cudaMemcpy(content.data(), memory_->address(), bytes, cudaMemcpyDeviceToHost));
    return content;
  }
  static std::size_t mapped_offset(std::size_t index, const Case& c) { return index * kSlotBytes + kGuardBytes + c.mapped_skew; }

  // Each case into its slot by `store`, then all of it back by cudaMemcpy. Returns what was wrong first, empty when nothing was.
  template <class Store>
  std::string wrong_store(Store store) {
    set_device(kGuard);
    std::vector<unsigned char> expected(cases_.size() * kSlotBytes, kGuard);
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const unsigned char* source = host_.data() + i * 8 + cases_[i].host_skew;
      store(mapped_offset(i, cases_[i]), source, cases_[i].bytes);
      std::memcpy(expected.data() + mapped_offset(i, cases_[i]), source, cases_[i].bytes);
    }
    detail::fence_stores();
    const auto seen = device_content(expected.size());
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (std::memcmp(seen.data() + i * kSlotBytes, expected.data() + i * kSlotBytes, kSlotBytes) != 0) {
        return std::to_string(cases_[i].bytes) + " bytes to alignment " + std::to_string(cases_[i].mapped_skew) + " from " +
               std::to_string(cases_[i].host_skew);
      }
    }
    return "";
  }

  // What cudaMemcpy put there, read case by case by `load`.
  template <class Load>
  void check_loads(const std::string& name, Load load) {
    ASSERT_CUDA(cudaMemcpy(memory_->address(), host_.data(), host_.size(), cudaMemcpyHostToDevice));
    ASSERT_CUDA(cudaDeviceSynchronize());
    std::vector<unsigned char> received(kSlotBytes + 64);
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      std::memset(received.data(), kGuard, received.size());
      unsigned char* const to = received.data() + kGuardBytes + cases_[i].host_skew;
      load(to, mapped_offset(i, cases_[i]), cases_[i].bytes);
      ASSERT_EQ(std::memcmp(to, host_.data() + mapped_offset(i, cases_[i]), cases_[i].bytes), 0)
          << name << ": " << cases_[i].bytes << " bytes from " << cases_[i].mapped_skew << " to " << cases_[i].host_skew;
      ASSERT_EQ(to[-1], kGuard) << name;
      ASSERT_EQ(to[cases_[i].bytes], kGuard) << name;
    }
  }

  std::vector<Case> cases_;
  std::unique_ptr<CudaBuffer> memory_;
  std::unique_ptr<Mapping> mapping_;
  std::vector<unsigned char> host_;
};

TEST_F(CopyTest, EveryKernelStoresEveryAlignment) {
  for (const CopyKernel& kernel : copy_kernels()) {
    if (!kernel.is_supported) continue;
    EXPECT_EQ("", wrong_store([&](std::size_t offset, const void* source, std::size_t bytes) {
                kernel.store(mapping_->address() + offset, source, bytes);
              }))
        << kernel.name;
  }
  EXPECT_EQ("", wrong_store([&](std::size_t offset, const void* source, std::size_t bytes) {
              EXPECT_TRUE(copy_to(*mapping_, offset, source, bytes));
            }));
}

// The check must see one byte too many, and one too few.
TEST_F(CopyTest, TheCheckSeesAStoreOfAnotherLength) {
  for (const std::size_t change : Sizes{std::size_t{1}, ~std::size_t{0}}) {
    EXPECT_NE("", wrong_store([&](std::size_t offset, const void* source, std::size_t bytes) {
                EXPECT_TRUE(copy_to(*mapping_, offset, source, bytes == 100 ? bytes + change : bytes));
              }));
  }
}

TEST_F(CopyTest, EveryKernelLoadsEveryAlignment) {
  for (const CopyKernel& kernel : copy_kernels()) {
    if (!kernel.is_supported) continue;
    check_loads(std::string(kernel.name), [&](void* to, std::size_t offset, std::size_t bytes) {
      detail::fence_before_loads(mapping_->address() + offset, bytes);
      kernel.load(to, mapping_->address() + offset, bytes);
      detail::fence_after_loads();
    });
  }
  check_loads("copy_from",
              [&](void* to, std::size_t offset, std::size_t bytes) { EXPECT_TRUE(copy_from(*mapping_, offset, to, bytes)); });
}

TEST_F(CopyTest, EveryMethodCopiesEverySize) {
  auto pinned = HostMemory::allocate(std::size_t{17} << 20);
  ASSERT_TRUE(pinned.is_ok()) << pinned.error().message();
  std::vector<unsigned char> pageable(std::size_t{17} << 20);
  for (const std::optional<CopyMethod> required :
       {std::optional<CopyMethod>(), std::optional(CopyMethod::cpu), std::optional(CopyMethod::cpu_parallel),
        std::optional(CopyMethod::copy_engine)}) {
    for (unsigned char* const host : {static_cast<unsigned char*>(pinned->address()), pageable.data()}) {
      for (std::size_t bytes = 1; bytes <= std::size_t{16} << 20; bytes *= 4) {
        const std::size_t offset = 64 + bytes % 7;
        set_device(kGuard);
        std::memcpy(host, host_.data(), bytes);
        const auto to = copy({*mapping_, offset}, host, bytes, required);
        ASSERT_TRUE(to.is_ok()) << to.error().message();
        if (required) EXPECT_EQ(*to, *required);
        const auto seen = device_content(offset + bytes + 64);
        ASSERT_EQ(std::memcmp(seen.data() + offset, host_.data(), bytes), 0) << name_of(*to) << " " << bytes;
        ASSERT_EQ(seen[offset - 1], kGuard) << name_of(*to) << " " << bytes;
        ASSERT_EQ(seen[offset + bytes], kGuard) << name_of(*to) << " " << bytes;
        std::memset(host, 0, bytes);
        const auto from = copy(host, {*mapping_, offset}, bytes, required);
        ASSERT_TRUE(from.is_ok()) << from.error().message();
        ASSERT_EQ(std::memcmp(host, host_.data(), bytes), 0) << name_of(*from) << " " << bytes;
      }
    }
  }
}

TEST_F(CopyTest, FillSetsExactlyTheRange) {
  for (const std::size_t bytes : Sizes{1, 3, 64, 4095, 4097, 100'001}) {
    set_device(kGuard);
    ASSERT_TRUE(fill(*mapping_, 65, std::byte{0x21}, bytes));
    const auto seen = device_content(bytes + 256);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      ASSERT_EQ(seen[i], i >= 65 && i < 65 + bytes ? 0x21 : kGuard) << bytes << " bytes, at " << i;
    }
  }
}

// A calibration measured on this machine is used and copies as correctly as the defaults.
TEST_F(CopyTest, MeasuresAndUsesACalibration) {
  const auto begin = std::chrono::steady_clock::now();
  const auto measured = Calibration::measure(0, 3.0);
  ASSERT_TRUE(measured.is_ok()) << measured.error().message();
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 10);
  std::printf("%s", measured->to_text().c_str());
  EXPECT_FALSE(measured->device_uuid.empty());
  EXPECT_EQ(measured->choose(CopyDirection::to_device, true, 8), CopyMethod::cpu);
  EXPECT_EQ(measured->choose(CopyDirection::from_device, true, 8), CopyMethod::cpu);
  EXPECT_EQ(measured->choose(CopyDirection::from_device, true, std::size_t{16} << 20), CopyMethod::copy_engine);
  ASSERT_TRUE(use_calibration(0, *measured));
  EXPECT_EQ("", wrong_store([&](std::size_t offset, const void* source, std::size_t bytes) {
              EXPECT_TRUE(copy_to(*mapping_, offset, source, bytes));
            }));
  ASSERT_TRUE(use_calibration(0, Calibration::defaults()));
}

}  // namespace
}  // namespace gigabar::test
