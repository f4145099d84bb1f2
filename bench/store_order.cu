// SPDX-License-Identifier: Apache-2.0
// What order costs between two GPUs in reach of each other's stores, and what is seen without it; for bench/store_order.py.
// usage: store_order. One process with two GPUs. Prints lines of: what, fence, blocks that load the link, figure. Latencies in
// microseconds: of a fence alone; half of the round trip of a word there, behind a payload or alone, and a word back. Of loaded
// links: words that were seen before their payload, of kRounds.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::uint32_t kRounds = 200'000;
constexpr std::uint32_t kPlaces = 1U << 20;  // of payloads, 8 bytes each: every one has a line of another slice
constexpr std::size_t kLoadBytes = std::size_t{64} << 20;
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15U;
constexpr long long kMaxCycles = 20'000'000'000;

enum class Fence { none, device, system };

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

__device__ std::uint32_t load_acquire(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ void store(std::uint32_t* word, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}
__device__ void fence(Fence kind) {
  if (kind == Fence::device) asm volatile("fence.acq_rel.gpu;" : : : "memory");
  if (kind == Fence::system) asm volatile("fence.acq_rel.sys;" : : : "memory");
}

// What one GPU has, and the other stores to.
struct Side {
  std::uint32_t* word;
  std::uint64_t* payloads;  // [kPlaces]
  uint4* load;              // kLoadBytes
  long long* cycles;        // of all rounds, or 0: too many
  unsigned long long* early_count;
  std::uint32_t* is_over;
};

__device__ bool await(const std::uint32_t* word, std::uint32_t value, long long begin) {
  while (load_acquire(word) < value) {
    if (clock64() - begin > kMaxCycles) return false;
  }
  return true;
}

// Block 0 plays with the other GPU, the others store to it until it is over.
__global__ void play(Side here, Side there, bool is_first, bool has_payload, Fence kind) {
  if (blockIdx.x != 0) {
    const std::size_t step = std::size_t{gridDim.x - 1} * blockDim.x;
    std::size_t at = (blockIdx.x - 1) * std::size_t{blockDim.x} + threadIdx.x;
    while (*const_cast<volatile std::uint32_t*>(here.is_over) == 0) {
      for (int i = 0; i < 64; ++i, at += step) there.load[at % (kLoadBytes / sizeof(uint4))] = make_uint4(i, 0, 0, 0);
    }
    return;
  }
  if (threadIdx.x != 0) return;
  const long long begin = clock64();
  unsigned long long early = 0;
  bool is_well = true;
  for (std::uint32_t round = 1; round <= kRounds && is_well; ++round) {
    const std::uint32_t place = round * 7919U % kPlaces;
    if (is_first) {
      if (has_payload) there.payloads[place] = round * kOdd;
      fence(kind);
      store(there.word, round);
      is_well = await(here.word, round, begin);
    } else {
      is_well = await(here.word, round, begin);
      if (has_payload && *const_cast<volatile std::uint64_t*>(here.payloads + place) != round * kOdd) ++early;
      store(there.word, round);
    }
  }
  *here.cycles = is_well ? clock64() - begin : 0;
  *here.early_count = early;
  *here.is_over = 1;
}

__global__ void fence_alone(Fence kind, long long* cycles) {
  const long long begin = clock64();
  for (std::uint32_t i = 0; i < kRounds; ++i) fence(kind);
  *cycles = clock64() - begin;
}

template <class T>
T* allocate(std::size_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(T)), "allocate");
  check(cudaMemset(memory, 0, count * sizeof(T)), "clear");
  return static_cast<T*>(memory);
}

Side open(int gpu) {
  check(cudaSetDevice(gpu), "choose a GPU");
  check(cudaDeviceEnablePeerAccess(1 - gpu, 0), "enable peer access");
  return {allocate<std::uint32_t>(1), allocate<std::uint64_t>(kPlaces), allocate<uint4>(kLoadBytes / sizeof(uint4)),
          allocate<long long>(1),     allocate<unsigned long long>(1),  allocate<std::uint32_t>(1)};
}

void clear(int gpu, const Side& side) {
  check(cudaSetDevice(gpu), "choose a GPU");
  check(cudaMemset(side.word, 0, sizeof *side.word), "clear");
  check(cudaMemset(side.payloads, 0, kPlaces * sizeof *side.payloads), "clear");
  check(cudaMemset(side.is_over, 0, sizeof *side.is_over), "clear");
  check(cudaDeviceSynchronize(), "clear");
}

template <class T>
T read(const T* place) {
  T value;
  check(cudaMemcpy(&value, place, sizeof value, cudaMemcpyDefault), "read");
  return value;
}

double us(long long cycles) {
  int khz = 0;
  check(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0), "ask for the clock");
  return static_cast<double>(cycles) / khz * 1e3 / kRounds;
}

const char* const kNames[] = {"none", "device", "system"};

void play_all(const Side (&sides)[2], bool has_payload, Fence kind, unsigned load_blocks) {
  for (int gpu : {0, 1}) clear(gpu, sides[gpu]);
  check(cudaSetDevice(1), "choose a GPU");
  play<<<1, 32>>>(sides[1], sides[0], false, has_payload, Fence::none);
  check(cudaSetDevice(0), "choose a GPU");
  play<<<1 + load_blocks, 512>>>(sides[0], sides[1], true, has_payload, kind);
  check(cudaDeviceSynchronize(), "play");
  check(cudaSetDevice(1), "choose a GPU");
  check(cudaDeviceSynchronize(), "play");
  const long long cycles = read(sides[0].cycles);
  if (cycles == 0) std::exit((std::fprintf(stderr, "a word did not come\n"), 1));
  if (load_blocks == 0)
    std::printf("%s %s 0 %.4f\n", has_payload ? "payload" : "word", kNames[static_cast<int>(kind)], us(cycles) / 2);
  if (has_payload) std::printf("early %s %u %llu\n", kNames[static_cast<int>(kind)], load_blocks, read(sides[1].early_count));
}

}  // namespace

int main() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "count GPUs");
  if (count < 2) return std::fprintf(stderr, "there are no two GPUs\n"), 1;
  const Side sides[2] = {open(0), open(1)};
  check(cudaSetDevice(0), "choose a GPU");
  for (const Fence kind : {Fence::device, Fence::system}) {
    fence_alone<<<1, 1>>>(kind, sides[0].cycles);
    check(cudaDeviceSynchronize(), "fence");
    std::printf("fence %s 0 %.4f\n", kNames[static_cast<int>(kind)], us(read(sides[0].cycles)));
  }
  play_all(sides, false, Fence::none, 0);
  for (const unsigned load_blocks : {0U, 4U, 32U, 100U}) {
    for (const Fence kind : {Fence::none, Fence::device, Fence::system}) play_all(sides, true, kind, load_blocks);
  }
  return 0;
}
