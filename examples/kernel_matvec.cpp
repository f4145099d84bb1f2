// SPDX-License-Identifier: Apache-2.0
// A constant matrix times vectors that stream in from another rank, while the products stream back:
// gigabar run -n 2 -- ./kernel_matvec [cpu]
//
// Rank 1 makes the vectors and checks the products; rank 0 multiplies. Its kernel keeps the matrix in shared memory and sends each
// product itself; with `cpu` the CPUs of both ranks wait, send, and start a kernel for each vector.
// Compiled by nvcc (-x cu) blocks of the GPUs work; by a C++ compiler threads of the CPU do, over memory of a stand-in.
#include <cstdio>
#include <cstring>
#include <gigabar/device/channel.hpp>
#include <gigabar/device_session.hpp>

namespace device = gigabar::device;
using gigabar::Status;

constexpr gigabar::SegmentId kSegment = 0;
constexpr std::uint32_t kSize = 96;  // elements of a vector; the matrix takes 36 KiB
constexpr std::uint32_t kVectors = 2000;
constexpr std::uint32_t kUnderWay = 8;  // vectors whose products have not come back
constexpr std::uint64_t kVectorBytes = kSize * sizeof(float);
constexpr std::uint64_t kHalfBytes = kUnderWay * kVectorBytes;  // of the segment: what goes out, then what comes in
constexpr gigabar::Rank kServer = 0;
constexpr device::Timeout kPatience{5'000'000'000};  // ns, of one wait

// Sums of them are exact: wrong data differ.
GIGABAR_DEVICE float matrix_element(std::uint32_t i, std::uint32_t j) {
  return static_cast<float>((i * 31 + j * 17) % 64) / 64 - 0.5F;
}
GIGABAR_DEVICE float vector_element(std::uint32_t k, std::uint32_t j) { return static_cast<float>((k * 7 + j * 13) % 32) / 32; }

// Vector k goes through place k % kUnderWay, and notification k % kUnderWay says that it has come.
GIGABAR_DEVICE std::uint64_t out_offset(std::uint32_t k) { return k % kUnderWay * kVectorBytes; }
GIGABAR_DEVICE std::uint64_t in_offset(std::uint32_t k) { return kHalfBytes + out_offset(k); }
GIGABAR_DEVICE float* at(std::byte* memory, std::uint64_t offset) { return reinterpret_cast<float*>(memory + offset); }

enum class Task { make, multiply, check };

// What one scope does with vector k, in this rank's memory.
template <class Scope>
GIGABAR_DEVICE void perform(const Scope& scope, Task task, std::uint32_t k, const float* matrix, std::byte* memory,
                            std::uint32_t* wrong) {
  const float* const in = at(memory, in_offset(k));
  float* const out = at(memory, out_offset(k));
  bool is_wrong = false;
  for (std::uint32_t i = scope.rank(); i < kSize; i += scope.size()) {
    float sum = 0;
    for (std::uint32_t j = 0; task != Task::make && j < kSize; ++j)
      sum += task == Task::multiply ? matrix[i * kSize + j] * in[j] : matrix_element(i, j) * vector_element(k, j);
    if (task == Task::check)
      is_wrong = is_wrong || sum != in[i];
    else
      out[i] = task == Task::multiply ? sum : vector_element(k, i);
  }
  const bool is_any_wrong = scope.any(is_wrong);  // behind it all of the scope have done their part
  if (is_any_wrong && scope.rank() == 0) ++*wrong;
}

template <class Scope>
GIGABAR_DEVICE void fill(const Scope& scope, float* matrix) {
  for (std::uint32_t i = scope.rank(); i < kSize * kSize; i += scope.size()) matrix[i] = matrix_element(i / kSize, i % kSize);
  scope.sync();
}

// --- What each rank does: receive(k), perform(task, k) and send(k) are a kernel's or a CPU's -------------------------------------

#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // a CPU's link is called on the CPU only
#endif
template <class Link>
GIGABAR_DEVICE Status serve(Link& link) {
  Status status = Status::ok;
  for (std::uint32_t k = 0; k < kVectors && status == Status::ok; ++k) {
    status = link.receive(k);
    if (status == Status::ok) status = link.perform(Task::multiply, k);
    if (status == Status::ok) status = link.send(k);
  }
  return status;
}

#if defined(__CUDACC__)
#pragma nv_exec_check_disable  // a CPU's link is called on the CPU only
#endif
template <class Link>
GIGABAR_DEVICE Status ask(Link& link) {
  Status status = Status::ok;
  for (std::uint32_t k = 0; k < kVectors + kUnderWay && status == Status::ok; ++k) {
    if (k >= kUnderWay) {
      status = link.receive(k - kUnderWay);
      if (status == Status::ok) status = link.perform(Task::check, k - kUnderWay);
    }
    if (k >= kVectors || status != Status::ok) continue;
    status = link.perform(Task::make, k);
    if (status == Status::ok) status = link.send(k);
  }
  return status;
}

template <class Scope>
struct KernelLink {
  const Scope& scope;
  const device::DeviceFabric& fabric;
  std::byte* memory;
  float* matrix;
  std::uint32_t* wrong;
  device::Channel peer;

  GIGABAR_DEVICE Status run() {
    fill(scope, matrix);
    const gigabar::Rank rank = 1 - fabric.rank;
    const Status status = device::Channel::open(scope, fabric, rank, kSegment, kSegment, 0, peer);
    if (status != Status::ok) return status;
    const Status ended = fabric.rank == kServer ? serve(*this) : ask(*this);
    peer.close(scope);
    return ended;
  }
  GIGABAR_DEVICE Status receive(std::uint32_t k) {
    std::uint32_t value = 0;
    return peer.notification_wait_until(scope, k % kUnderWay, k + 1, kPatience, value);
  }
  GIGABAR_DEVICE Status perform(Task task, std::uint32_t k) {
    ::perform(scope, task, k, matrix, memory, wrong);
    return Status::ok;
  }
  GIGABAR_DEVICE Status send(std::uint32_t k) {
    return peer.write_notify(scope, out_offset(k), in_offset(k), kVectorBytes, k % kUnderWay, k + 1, kPatience);
  }
};

// --- Kernels ---------------------------------------------------------------------------------------------------------------------

struct Result {
  Status status = Status::ok;
  std::uint32_t wrong = 0;
};

#if defined(__CUDACC__)
__global__ void run_all(device::DeviceFabric fabric, std::byte* memory, Result* result) {
  __shared__ float matrix[kSize * kSize];
  const device::Block block;
  const Status status = KernelLink<device::Block>{block, fabric, memory, matrix, &result->wrong, {}}.run();
  if (threadIdx.x == 0) result->status = status;
}
__global__ void perform_one(Task task, std::uint32_t k, std::byte* memory, Result* result) {
  __shared__ float matrix[kSize * kSize];
  if (task == Task::multiply) fill(device::Block{}, matrix);
  perform(device::Block{}, task, k, matrix, memory, &result->wrong);
}

class Gpu {
 public:
  explicit Gpu(int index) {
    if (cudaSetDevice(index) != cudaSuccess || cudaMalloc(&result_, sizeof *result_) != cudaSuccess)
      std::puts("no memory on the GPU");
    cudaMemset(result_, 0, sizeof *result_);
  }
  ~Gpu() { cudaFree(result_); }
  void run(const device::DeviceFabric& fabric, std::byte* memory) { run_all<<<1, kSize>>>(fabric, memory, result_); }
  Status perform(Task task, std::uint32_t k, std::byte* memory) {
    perform_one<<<1, kSize>>>(task, k, memory, result_);
    return cudaDeviceSynchronize() == cudaSuccess ? Status::ok : Status::device_error;
  }
  Result result() const {
    Result result;
    if (cudaMemcpy(&result, result_, sizeof result, cudaMemcpyDeviceToHost) != cudaSuccess) result.status = Status::device_error;
    return result;
  }

 private:
  Result* result_ = nullptr;
};
#else
class Gpu {
 public:
  explicit Gpu(int) { fill(device::Thread{}, matrix_); }
  void run(const device::DeviceFabric& fabric, std::byte* memory) {
    const device::Thread thread;
    result_.status = KernelLink<device::Thread>{thread, fabric, memory, matrix_, &result_.wrong, {}}.run();
  }
  Status perform(Task task, std::uint32_t k, std::byte* memory) {
    ::perform(device::Thread{}, task, k, matrix_, memory, &result_.wrong);
    return Status::ok;
  }
  Result result() const { return result_; }

 private:
  Result result_;
  float matrix_[kSize * kSize];
};
#endif

// --- CPUs ------------------------------------------------------------------------------------------------------------------------

struct CpuLink {
  gigabar::Fabric& fabric;
  Gpu& gpu;
  std::byte* memory;
  const gigabar::Timeout patience = gigabar::Timeout::of(std::chrono::seconds(5));

  Status receive(std::uint32_t k) {
    const auto found = fabric.notification_wait(kSegment, k % kUnderWay, 1, patience);
    return found ? fabric.notification_reset(kSegment, *found).status() : found.status();
  }
  Status perform(Task task, std::uint32_t k) { return gpu.perform(task, k, memory); }
  Status send(std::uint32_t k) {
    const auto posted = fabric.write_notify({kSegment, out_offset(k)}, {1 - fabric.rank(), kSegment, in_offset(k)}, kVectorBytes,
                                            k % kUnderWay, k + 1);
    return posted ? fabric.wait(0, patience).status() : posted.status();
  }
};

// 1, with the reason, where something failed.
int tell(const gigabar::Result<void>& outcome) { return outcome ? 0 : (std::puts(outcome.message().c_str()), 1); }

int main(int count, char** words) {
  const auto patience = gigabar::Timeout::of(std::chrono::seconds(10));
  const bool is_by_cpu = count == 2 && std::strcmp(words[1], "cpu") == 0;
  if (count > 1 && !is_by_cpu) return std::puts("usage: gigabar run -n 2 -- ./kernel_matvec [cpu]"), 2;
  auto fabric = gigabar::Fabric::open({});
  if (!fabric) return std::puts(fabric.error().message().c_str()), 1;
  if (fabric->rank_count() != 2) return std::puts("start two ranks: gigabar run -n 2 -- ./kernel_matvec"), 1;

  auto memory = gigabar::DeviceMemory::allocate(fabric->device(), 2 * kHalfBytes);
  if (!memory) return std::puts(memory.error().message().c_str()), 1;
  if (tell(fabric->register_segment(kSegment, memory->address(), memory->bytes())) != 0) return 1;
  auto* const bytes = static_cast<std::byte*>(memory->address());
  {
    // Opening it, all ranks meet.
    auto session = gigabar::DeviceSession::open(*fabric);
    if (!session) return std::puts(session.error().message().c_str()), 1;
    Gpu gpu(fabric->device());
    const auto begin = std::chrono::steady_clock::now();
    Status status = Status::ok;
    if (is_by_cpu) {
      CpuLink link{*fabric, gpu, bytes};
      status = fabric->rank() == kServer ? serve(link) : ask(link);
    } else {
      gpu.run(session->handle(), bytes);
    }
    const Result result = gpu.result();
    if (status == Status::ok) status = result.status;
    const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
    std::printf("rank %u: %s, %.2f us per vector, %u wrong products\n", fabric->rank(), std::string(name_of(status)).c_str(),
                elapsed.count() / kVectors, result.wrong);
    if (status != Status::ok || result.wrong != 0) return 1;
    if (tell(session->close(patience)) != 0) return 1;
  }
  if (tell(fabric->deregister_segment(kSegment, patience)) != 0) return 1;
  return tell(fabric->close(patience));
}
