// SPDX-License-Identifier: Apache-2.0
// The ordering table of gigabar/copy.hpp, on the hardware: copy_from never shows a line kept from an earlier read, publish never
// shows a flag before its data. Each has a control that leaves the fence out and reports what then happens; the checkers themselves
// are proved with a planted violation.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gigabar/copy.hpp"
#include "gpu/gpu_fixture.hpp"

namespace gigabar::test {
namespace {

using Sizes = std::initializer_list<std::size_t>;

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kStop = ~std::uint64_t{0};
constexpr std::uint64_t kKernelNs = 20'000'000'000;  // a kernel that nobody stops ends itself
constexpr auto kAnswerTime = std::chrono::seconds(5);

__device__ std::uint64_t gpu_now_ns() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void fill_bytes(unsigned char* begin, std::size_t bytes, unsigned char value) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += gridDim.x * blockDim.x) begin[i] = value;
}

// Writes each requested value to every word of a line and then says so: `request` and `answer` lie in pinned host memory.
__global__ void answer_requests(const volatile std::uint64_t* request, volatile std::uint64_t* answer,
                                volatile std::uint64_t* words, std::size_t word_count) {
  const std::uint64_t end_ns = gpu_now_ns() + kKernelNs;
  std::uint64_t last = 0;
  while (gpu_now_ns() < end_ns) {
    const std::uint64_t wanted = *request;
    if (wanted == last) continue;
    if (wanted == kStop) return;
    for (std::size_t i = 0; i < word_count; ++i) words[i] = wanted;
    __threadfence_system();
    *answer = wanted;
    last = wanted;
  }
}

// Counts two words up until it is told to stop; whoever sees a value of `late` can see that value of `early`.
__global__ void count_up(const volatile std::uint64_t* request, volatile std::uint64_t* early, volatile std::uint64_t* late) {
  const std::uint64_t end_ns = gpu_now_ns() + kKernelNs;
  for (std::uint64_t value = 1; *request != kStop && gpu_now_ns() < end_ns; ++value) {
    *early = value;
    __threadfence_system();
    *late = value;
    __threadfence_system();
  }
}

// One block. For each round: waits until the flag in device memory shows it, counts the data words that do not, and answers.
__global__ void check_rounds(const volatile std::uint64_t* flag, const volatile std::uint64_t* data, std::size_t word_count,
                             std::uint64_t round_count, volatile std::uint64_t* answer, unsigned long long* wrong_count) {
  __shared__ bool is_stopped;
  const std::uint64_t end_ns = gpu_now_ns() + kKernelNs;
  for (std::uint64_t round = 1; round <= round_count; ++round) {
    if (threadIdx.x == 0) {
      while (*flag != round && gpu_now_ns() < end_ns) {
      }
      is_stopped = *flag != round;
    }
    __syncthreads();
    if (is_stopped) return;
    __threadfence_system();
    unsigned long long wrong = 0;
    for (std::size_t i = threadIdx.x; i < word_count; i += blockDim.x) wrong += data[i] != round ? 1 : 0;
    if (wrong != 0) atomicAdd(wrong_count, wrong);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) *answer = round;
  }
}

// Words in pinned host memory that both sides poll.
class Mailbox {
 public:
  Mailbox() {
    void* words = nullptr;
    EXPECT_EQ(cudaSuccess, cudaHostAlloc(&words, 4096, cudaHostAllocMapped));
    words_ = static_cast<std::uint64_t*>(words);
    std::memset(words_, 0, 4096);
  }
  ~Mailbox() { cudaFreeHost(words_); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Apart, so that neither side's polling disturbs the other's line.
  std::uint64_t* request() const { return words_; }
  std::uint64_t* answer() const { return words_ + 64; }
  void ask(std::uint64_t value) const { __atomic_store_n(request(), value, __ATOMIC_RELEASE); }
  bool wait_for(std::uint64_t value) const {
    const auto end = Clock::now() + kAnswerTime;
    while (__atomic_load_n(answer(), __ATOMIC_ACQUIRE) != value) {
      if (Clock::now() > end) return false;
    }
    return true;
  }

 private:
  std::uint64_t* words_ = nullptr;
};

class OrderingTest : public GpuTest {
 protected:
  static constexpr std::size_t kBytes = 256 << 10;

  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    memory_ = std::make_unique<CudaBuffer>(kBytes);
    auto mapped = map(memory_->address(), kBytes);
    ASSERT_TRUE(mapped.is_ok()) << mapped.error().message();
    mapping_ = std::make_unique<Mapping>(std::move(mapped).value());
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
    mapping_.reset();
    memory_.reset();
  }

  void gpu_fill(std::size_t offset, std::size_t bytes, unsigned char value) const {
    fill_bytes<<<8, 256, 0, stream_>>>(reinterpret_cast<unsigned char*>(memory_->at(offset)), bytes, value);
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
  }
  std::uint64_t* words_at(std::size_t offset) const { return reinterpret_cast<std::uint64_t*>(memory_->at(offset)); }

  std::unique_ptr<CudaBuffer> memory_;
  std::unique_ptr<Mapping> mapping_;
  cudaStream_t stream_ = nullptr;
};

std::vector<CopyKernel> supported_kernels() {
  std::vector<CopyKernel> all;
  for (const CopyKernel& kernel : copy_kernels()) {
    if (kernel.is_supported) all.push_back(kernel);
  }
  return all;
}

// What copy_from does, with a kernel of the test's choice.
void fenced_load(const CopyKernel& kernel, void* to, const std::byte* from, std::size_t bytes) {
  detail::fence_before_loads(from, bytes);
  kernel.load(to, from, bytes);
  detail::fence_after_loads();
}

// Every size to 256 bytes, and around the powers of two to 64 KiB.
std::vector<std::size_t> sizes_to_64_kib() {
  std::vector<std::size_t> sizes(256);
  std::iota(sizes.begin(), sizes.end(), std::size_t{1});
  for (std::size_t bytes = 512; bytes <= 65536; bytes *= 2) {
    for (const std::size_t size : Sizes{bytes - 1, bytes, bytes + 1}) sizes.push_back(std::min<std::size_t>(size, 65536));
  }
  return sizes;
}

TEST_F(OrderingTest, EveryReadOfEverySizeShowsWhatTheGpuWroteBetween) {
  std::vector<unsigned char> host(65536 + 64);
  unsigned char value = 0;
  std::size_t stale_count = 0;
  const auto check = [&](const std::string& name, std::size_t offset, std::size_t bytes, auto read) {
    for (int pass = 0; pass < 2; ++pass) {
      gpu_fill(offset, bytes, ++value);
      std::memset(host.data(), ~value, bytes);
      read(host.data(), offset, bytes);
      const bool is_new =
          std::all_of(host.begin(), host.begin() + static_cast<std::ptrdiff_t>(bytes), [&](auto b) { return b == value; });
      if (!is_new) ++stale_count;
      EXPECT_TRUE(is_new) << name << ": " << bytes << " bytes at " << offset << ", pass " << pass;
    }
  };
  for (const std::size_t bytes : sizes_to_64_kib()) {
    const std::size_t offset = bytes * 5 % 64;
    check("copy_from", offset, bytes,
          [&](void* to, std::size_t at, std::size_t count) { EXPECT_TRUE(copy_from(*mapping_, at, to, count)); });
    for (const CopyKernel& kernel : supported_kernels()) {
      if (kernel.name == "generic" && bytes > 4096) continue;  // a round trip for each 8 bytes
      check(std::string(kernel.name), offset, bytes,
            [&](void* to, std::size_t at, std::size_t count) { fenced_load(kernel, to, mapping_->address() + at, count); });
    }
    if (stale_count > 10) break;
  }
  EXPECT_EQ(stale_count, 0u);
}

// Reads a line, lets the GPU change it, reads again at once, thousands of times. Returns how often the second read showed old
// bytes.
template <class Read>
std::uint64_t stale_reads(const Mailbox& mailbox, std::uint64_t& next, std::uint64_t round_count, std::size_t word_count,
                          Read read) {
  std::uint64_t stale_count = 0;
  std::uint64_t seen[8] = {};
  for (std::uint64_t round = 0; round < round_count; ++round) {
    read(seen, word_count * 8);  // now a streaming buffer may hold the line
    mailbox.ask(++next);
    if (!mailbox.wait_for(next)) {
      ADD_FAILURE() << "the GPU did not answer";
      return stale_count;
    }
    read(seen, word_count * 8);
    for (std::size_t i = 0; i < word_count; ++i) {
      if (seen[i] != next) {
        ++stale_count;
        break;
      }
    }
  }
  return stale_count;
}

TEST_F(OrderingTest, ATightLoopNeverReadsAStaleLine) {
  constexpr std::uint64_t kRounds = 500;
  constexpr std::size_t kOffset = 4096;
  const Mailbox mailbox;
  ASSERT_CUDA(cudaMemset(memory_->address(), 0, kBytes));
  ASSERT_CUDA(cudaDeviceSynchronize());
  answer_requests<<<1, 1, 0, stream_>>>(mailbox.request(), mailbox.answer(), words_at(kOffset), 8);
  std::uint64_t next = 0;
  for (const std::size_t word_count : Sizes{1, 2, 3, 4, 6, 8}) {
    EXPECT_EQ(stale_reads(mailbox, next, kRounds, word_count,
                          [&](void* to, std::size_t bytes) { EXPECT_TRUE(copy_from(*mapping_, kOffset, to, bytes)); }),
              0u)
        << "copy_from, " << word_count * 8 << " bytes";
    for (const CopyKernel& kernel : supported_kernels()) {
      EXPECT_EQ(stale_reads(mailbox, next, kRounds, word_count,
                            [&](void* to, std::size_t bytes) { fenced_load(kernel, to, mapping_->address() + kOffset, bytes); }),
                0u)
          << kernel.name << ", " << word_count * 8 << " bytes";
      // The control: the same loads without the fence before them. Stale lines are what the hardware may show, not what it must.
      const std::uint64_t without_fence = stale_reads(mailbox, next, kRounds, word_count, [&](void* to, std::size_t bytes) {
        kernel.load(to, mapping_->address() + kOffset, bytes);
        detail::fence_after_loads();
      });
      const std::string name = "stale_without_fence_" + std::string(kernel.name) + "_" + std::to_string(word_count * 8);
      RecordProperty(name, std::to_string(without_fence));
      if (without_fence != 0) {
        std::printf("%s: %llu of %llu\n", name.c_str(), static_cast<unsigned long long>(without_fence),
                    static_cast<unsigned long long>(kRounds));
      }
    }
  }
  mailbox.ask(kStop);
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
}

// The checker must see a stale line: a reader that keeps what it read first.
TEST_F(OrderingTest, TheStaleLineCheckSeesAReaderThatKeepsOldBytes) {
  const Mailbox mailbox;
  ASSERT_CUDA(cudaMemset(memory_->address(), 0, kBytes));
  ASSERT_CUDA(cudaDeviceSynchronize());
  answer_requests<<<1, 1, 0, stream_>>>(mailbox.request(), mailbox.answer(), words_at(0), 8);
  std::uint64_t next = 0;
  std::uint64_t kept[8] = {};
  EXPECT_TRUE(copy_from(*mapping_, 0, kept, sizeof kept));
  EXPECT_EQ(stale_reads(mailbox, next, 100, 8, [&](void* to, std::size_t bytes) { std::memcpy(to, kept, bytes); }), 100u);
  mailbox.ask(kStop);
  ASSERT_CUDA(cudaStreamSynchronize(stream_));
}

// A kernel counts two words in different lines up, `early` always before `late`. Reading `late` and then `early` may not find
// `early` behind; reading them the other way round must, now and then, or this test could not see anything.
TEST_F(OrderingTest, TwoReadsOfOneThreadAreInCallOrder) {
  constexpr int kReads = 10'000;
  constexpr std::size_t kEarly = 0;
  constexpr std::size_t kLate = 8192;
  for (const std::size_t bytes : Sizes{8, 64}) {
    const Mailbox mailbox;
    ASSERT_CUDA(cudaMemset(memory_->address(), 0, kBytes));
    ASSERT_CUDA(cudaDeviceSynchronize());
    count_up<<<1, 1, 0, stream_>>>(mailbox.request(), words_at(kEarly), words_at(kLate));
    std::uint64_t first[8] = {};
    std::uint64_t second[8] = {};
    int wrong_count = 0;
    int swapped_count = 0;
    for (int i = 0; i < kReads; ++i) {
      EXPECT_TRUE(copy_from(*mapping_, kLate, first, bytes));
      EXPECT_TRUE(copy_from(*mapping_, kEarly, second, bytes));
      if (second[0] < first[0]) ++wrong_count;
      EXPECT_TRUE(copy_from(*mapping_, kEarly, first, bytes));
      EXPECT_TRUE(copy_from(*mapping_, kLate, second, bytes));
      if (second[0] > first[0]) ++swapped_count;
    }
    mailbox.ask(kStop);
    ASSERT_CUDA(cudaStreamSynchronize(stream_));
    EXPECT_EQ(wrong_count, 0) << bytes;
    EXPECT_GT(swapped_count, 0) << bytes;
  }
}

struct PublishCase {
  std::size_t data_offset;
  std::size_t bytes;
  std::size_t flag_offset;
};

// Runs rounds of `send(data, round)` against the checking kernel and returns how many words it found wrong.
class PublishRounds {
 public:
  PublishRounds(const CudaBuffer& memory, cudaStream_t stream)
      : memory_(memory), stream_(stream), wrong_(sizeof(unsigned long long)) {}

  template <class Send>
  unsigned long long run(const PublishCase& at, std::uint64_t round_count, Send send) {
    EXPECT_EQ(cudaSuccess, cudaMemset(memory_.address(), 0, memory_.bytes()));
    EXPECT_EQ(cudaSuccess, cudaMemset(wrong_.address(), 0, wrong_.bytes()));
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    const Mailbox mailbox;
    std::vector<std::uint64_t> data(at.bytes / 8);
    check_rounds<<<1, 256, 0, stream_>>>(reinterpret_cast<std::uint64_t*>(memory_.at(at.flag_offset)),
                                         reinterpret_cast<std::uint64_t*>(memory_.at(at.data_offset)), data.size(), round_count,
                                         mailbox.answer(), static_cast<unsigned long long*>(wrong_.address()));
    for (std::uint64_t round = 1; round <= round_count; ++round) {
      data.assign(data.size(), round);
      send(data.data(), round);
      if (!mailbox.wait_for(round)) {
        ADD_FAILURE() << "the GPU did not see round " << round;
        break;
      }
    }
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream_));
    return peek(wrong_.address());
  }

 private:
  const CudaBuffer& memory_;
  cudaStream_t stream_;
  CudaBuffer wrong_;
};

// The flag behind the data, before it, and in the same line.
std::vector<PublishCase> publish_cases() {
  std::vector<PublishCase> cases = {{0, 8, 8}, {8, 48, 0}};
  for (const std::size_t bytes : Sizes{8, 64, 200, 256, 1024, 4096, 16384}) {
    cases.push_back({0, bytes, 65536});
    cases.push_back({4096 + 8, bytes, 64});
  }
  return cases;
}

std::string text_of(const PublishCase& at) {
  return std::to_string(at.bytes) + " bytes at " + std::to_string(at.data_offset) + ", flag at " + std::to_string(at.flag_offset);
}

TEST_F(OrderingTest, PublishNeverShowsTheFlagBeforeTheData) {
  constexpr std::uint64_t kRounds = 2000;
  PublishRounds rounds(*memory_, stream_);
  for (const PublishCase& at : publish_cases()) {
    EXPECT_EQ(rounds.run(at, kRounds,
                         [&](const std::uint64_t* data, std::uint64_t round) {
                           EXPECT_TRUE(publish(*mapping_, at.data_offset, data, at.bytes, at.flag_offset, round));
                         }),
              0u)
        << text_of(at);
  }
}

// As publish promises it for data that was stored in other ways before: copy_to in pieces, a batch, several threads.
TEST_F(OrderingTest, PublishComesAfterEveryEarlierStore) {
  constexpr std::uint64_t kRounds = 1000;
  const PublishCase at{64, 8192, 32768};
  PublishRounds rounds(*memory_, stream_);
  EXPECT_EQ(rounds.run(at, kRounds,
                       [&](const std::uint64_t* data, std::uint64_t round) {
                         Batch batch(*mapping_);
                         for (std::size_t piece = 0; piece < at.bytes; piece += 1024) {
                           EXPECT_TRUE(batch.copy_to(at.data_offset + piece, data + piece / 8, 1024));
                         }
                         EXPECT_TRUE(publish(*mapping_, at.flag_offset, round));
                       }),
            0u);
  EXPECT_EQ(rounds.run(at, kRounds,
                       [&](const std::uint64_t* data, std::uint64_t round) {
                         EXPECT_TRUE(copy_to_parallel(*mapping_, at.data_offset, data, at.bytes, 4));
                         EXPECT_TRUE(publish(*mapping_, at.flag_offset, round));
                       }),
            0u);
}

// Planted: the flag two microseconds before the data. The checking kernel must see it.
TEST_F(OrderingTest, TheFlagCheckSeesAFlagBeforeItsData) {
  const PublishCase at{0, 1024, 65536};
  PublishRounds rounds(*memory_, stream_);
  const auto wrong = rounds.run(at, 200, [&](const std::uint64_t* data, std::uint64_t round) {
    EXPECT_TRUE(publish(*mapping_, at.flag_offset, round));
    const auto end = Clock::now() + std::chrono::microseconds(2);
    while (Clock::now() < end) {
    }
    EXPECT_TRUE(copy_to(*mapping_, at.data_offset, data, at.bytes));
  });
  EXPECT_GT(wrong, 0u);
}

// The control: data and flag stored without a fence between them. A violation is what the hardware may show, not what it must.
TEST_F(OrderingTest, ReportsWhatHappensWithoutTheFence) {
  constexpr std::uint64_t kRounds = 2000;
  PublishRounds rounds(*memory_, stream_);
  for (const CopyKernel& kernel : supported_kernels()) {
    for (const PublishCase& at : publish_cases()) {
      const auto wrong = rounds.run(at, kRounds, [&](const std::uint64_t* data, std::uint64_t round) {
        kernel.store(mapping_->address() + at.data_offset, data, at.bytes);
        kernel.store(mapping_->address() + at.flag_offset, &round, sizeof round);
        detail::fence_stores();
      });
      if (wrong == 0) continue;
      std::printf("without a fence, %s, %s: %llu words of %llu rounds were old\n", std::string(kernel.name).c_str(),
                  text_of(at).c_str(), wrong, static_cast<unsigned long long>(kRounds));
      RecordProperty("old_words_without_fence_" + std::string(kernel.name) + "_" + std::to_string(at.bytes), std::to_string(wrong));
    }
  }
}

}  // namespace
}  // namespace gigabar::test
