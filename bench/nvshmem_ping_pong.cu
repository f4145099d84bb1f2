// SPDX-License-Identifier: Apache-2.0
// What device-latency and device-bw measure, by NVSHMEM's device functions; for bench/nvshmem.py.
// usage: nvshmem_ping_pong FOLDER: two processes, which meet there, each on a GPU of its own where there are two. Rank 0 prints a
// line for each measure: op, bytes, threads, blocks, p50, p99; microseconds one way (atomics: there and back), or GB/s.
#include <nvshmem.h>
#include <nvshmemx.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kWarmUp = 1000, kRounds = 10000, kWindow = 64;
constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

enum class Op { signal, put_signal, fetch_add, put };

struct Plan {
  Op op;
  std::size_t bytes;
  int rounds;
};

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

// Nobody's turn lasts longer than the clock lets it: a peer that is gone must not hold the GPU.
__device__ bool await(std::uint64_t* signal, std::uint64_t value) {
  for (long long begin = clock64(); clock64() - begin < 20'000'000'000LL;) {
    if (nvshmem_signal_fetch(signal) >= value) return true;
  }
  return false;
}

// Half of a round trip of rank 0 by a whole block, or one thread.
__global__ void ping(Plan plan, int rank, char* source, char* target, std::uint64_t* signal, std::uint64_t* word,
                     long long* samples) {
  __shared__ bool goes_on;
  const int peer = 1 - rank;
  goes_on = true;
  for (int round = 1; round <= plan.rounds; ++round) {
    __syncthreads();
    const long long begin = clock64();
    for (int turn = 0; turn < 2; ++turn) {
      if (plan.op == Op::fetch_add) {
        // The value is looked at, so that it is waited for.
        if (rank == 0 && turn == 0 && threadIdx.x == 0 && nvshmem_uint64_atomic_fetch_add(word, 1, peer) != round - 1)
          goes_on = false;
      } else if (turn == rank) {
        if (plan.op == Op::signal) {
          if (threadIdx.x == 0) nvshmemx_signal_op(signal, round, NVSHMEM_SIGNAL_SET, peer);
        } else if (blockDim.x == 1) {
          nvshmem_putmem_signal(target, source, plan.bytes, signal, round, NVSHMEM_SIGNAL_SET, peer);
        } else {
          nvshmemx_putmem_signal_block(target, source, plan.bytes, signal, round, NVSHMEM_SIGNAL_SET, peer);
        }
      } else {
        if (threadIdx.x == 0) goes_on = await(signal, round);
        __syncthreads();
        if (!goes_on) return;
      }
    }
    if (threadIdx.x == 0) samples[round - 1] = clock64() - begin;
  }
}

// A window of writes, each divided among the blocks.
__global__ void put(Plan plan, int peer, char* source, char* target) {
  const std::size_t part = plan.bytes / gridDim.x;
  for (int i = 0; i < kWindow; ++i) {
    nvshmemx_putmem_nbi_block(target + blockIdx.x * part, source + blockIdx.x * part, part, peer);
  }
  __syncthreads();
  if (threadIdx.x == 0) nvshmem_quiet();
}

// Asked for once: drivers take milliseconds.
double khz() {
  static int rate = 0;
  if (rate == 0) check(cudaDeviceGetAttribute(&rate, cudaDevAttrClockRate, 0), "ask for the clock");
  return rate;
}

void print(const char* op, std::size_t bytes, int threads, int blocks, std::vector<double> values, bool is_rate) {
  std::sort(values.begin(), values.end());
  const double p50 = values[values.size() / 2];
  const double p99 = values[is_rate ? values.size() / 100 : values.size() * 99 / 100];
  std::printf("%s %zu %d %d %.4f %.4f\n", op, bytes, threads, blocks, p50, p99);
}

void measure(int rank, const char* name, Plan plan, int threads) {
  static char* const source = static_cast<char*>(nvshmem_malloc(kMaxBytes));
  static char* const target = static_cast<char*>(nvshmem_malloc(kMaxBytes));
  static std::uint64_t* const words = static_cast<std::uint64_t*>(nvshmem_calloc(64, sizeof(std::uint64_t)));
  static long long* samples = nullptr;
  if (samples == nullptr) check(cudaMalloc(&samples, kRounds * 64 * sizeof(long long)), "allocate samples");
  check(cudaMemset(words, 0, 64 * sizeof(std::uint64_t)), "clear words");
  check(cudaDeviceSynchronize(), "clear words");
  nvshmem_barrier_all();
  if (plan.op == Op::put) {
    const int blocks = threads;
    std::vector<double> rates;
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "make an event");
    check(cudaEventCreate(&end), "make an event");
    for (int round = 0; rank == 0 && round < plan.rounds; ++round) {
      check(cudaEventRecord(begin), "begin");
      put<<<blocks, 512>>>(plan, 1, source, target);
      check(cudaEventRecord(end), "end");
      check(cudaEventSynchronize(end), "put");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin, end), "take the time");
      if (round >= plan.rounds / 4) rates.push_back(static_cast<double>(plan.bytes) * kWindow / (ms * 1e6));
    }
    if (rank == 0) print(name, plan.bytes, 512, blocks, rates, true);
  } else {
    ping<<<1, threads>>>(plan, rank, source, target, words, words + 8, samples);
    check(cudaDeviceSynchronize(), "ping");
    std::vector<long long> ticks(plan.rounds);
    check(cudaMemcpy(ticks.data(), samples, ticks.size() * sizeof(long long), cudaMemcpyDeviceToHost), "read samples");
    std::vector<double> us;
    for (int i = kWarmUp < plan.rounds / 2 ? kWarmUp : plan.rounds / 10; i < plan.rounds; ++i) {
      us.push_back(static_cast<double>(ticks[i]) / khz() * 1e3 / (plan.op == Op::fetch_add ? 1 : 2));
    }
    if (rank == 0) print(name, plan.bytes, threads, 1, us, false);
  }
  std::fflush(stdout);
  nvshmem_barrier_all();
}

int run(int rank, const std::string& folder) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "count GPUs");
  check(cudaSetDevice(rank % devices), "choose a GPU");
  // Rank 0 leaves its name where rank 1 finds it.
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  const std::string path = folder + "/id", unfinished = path + ".new";
  if (rank == 0) {
    if (nvshmemx_get_uniqueid(&id) != 0) return std::fprintf(stderr, "no unique id\n"), 1;
    std::FILE* const file = std::fopen(unfinished.c_str(), "wb");
    if (file == nullptr || std::fwrite(&id, sizeof id, 1, file) != 1 || std::fclose(file) != 0)
      return std::perror("write the id"), 1;
    if (std::rename(unfinished.c_str(), path.c_str()) != 0) return std::perror("show the id"), 1;
  } else {
    std::FILE* file = nullptr;
    for (int i = 0; i < 3000 && file == nullptr; ++i) {
      file = std::fopen(path.c_str(), "rb");
      if (file == nullptr) ::usleep(10'000);
    }
    if (file == nullptr || std::fread(&id, sizeof id, 1, file) != 1) return std::fprintf(stderr, "rank 0 left no id\n"), 1;
    std::fclose(file);
  }
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  nvshmemx_set_attr_uniqueid_args(rank, 2, &id, &attributes);
  if (nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes) != 0) return std::fprintf(stderr, "no NVSHMEM\n"), 1;
  constexpr int kAll = kWarmUp + kRounds / 2;
  measure(rank, "signal", {Op::signal, 0, kAll}, 1);
  measure(rank, "fetch-add", {Op::fetch_add, 0, kAll}, 1);
  measure(rank, "put-signal", {Op::put_signal, 8, kAll}, 1);
  for (const std::size_t bytes : {8, 1536, 6144, 12288, 49152, 1 << 16, 1 << 18, 1 << 20, 1 << 22}) {
    measure(rank, "put-signal", {Op::put_signal, bytes, bytes > 65536 ? 400 : kAll}, 512);
  }
  for (const int blocks : {16, 32, 64}) measure(rank, "put", {Op::put, kMaxBytes, 8}, blocks);
  nvshmem_finalize();
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) return std::fprintf(stderr, "usage: nvshmem_ping_pong FOLDER\n"), 2;
  const pid_t other = ::fork();
  if (other < 0) return std::perror("fork"), 1;
  const int status = run(other == 0 ? 1 : 0, words[1]);
  if (other == 0) return status;
  int others = 0;
  ::waitpid(other, &others, 0);
  return status != 0 || others != 0 ? 1 : 0;
}
