// SPDX-License-Identifier: Apache-2.0
// Tokens go to the ranks of their experts and come back, as in a layer of a mixture of experts: each is one message of a small row,
// and a kernel of each rank does all of it: gigabar run -n 2 -- ./kernel_experts
// Compiled by nvcc (-x cu) each warp serves some of the ranks; by a C++ compiler a thread of the CPU serves all.
#include <cstdio>
#include <gigabar/device/message.hpp>
#include <gigabar/device_session.hpp>
#include <vector>

namespace device = gigabar::device;
using gigabar::Rank;
using gigabar::Status;
using namespace std::chrono_literals;

constexpr std::uint32_t kTokens = 64, kWords = 64;   // of each rank; of a row
constexpr std::uint32_t kRow = 1 + kWords;           // of a message: the token's number, then its row
constexpr std::uint32_t kToExpert = 0, kBack = 1;    // rings; each has room for the rows of all tokens
constexpr device::Timeout kPatience{5'000'000'000};  // ns, of one wait
constexpr std::uint32_t kWarps = 4;

GIGABAR_DEVICE Rank expert_of(std::uint32_t token, Rank rank_count) { return token * 7 / 3 % rank_count; }
GIGABAR_DEVICE std::uint32_t answer_to(std::uint32_t word) { return word * word + 1; }
GIGABAR_DEVICE std::uint32_t count_for(Rank expert, Rank rank_count) {
  std::uint32_t count = 0;
  for (std::uint32_t token = 0; token < kTokens; ++token) count += expert_of(token, rank_count) == expert;
  return count;
}

// Sends the number of tokens for that rank, and their rows.
template <class Scope>
GIGABAR_DEVICE Status dispatch(const Scope& scope, const device::DeviceFabric& fabric, Rank expert, const std::uint32_t* rows) {
  device::SendRing ring;
  Status status = open_ring(fabric, expert, kToExpert, ring);
  if (status == Status::ok) status = send_value(scope, ring, count_for(expert, fabric.rank_count), kPatience);
  for (std::uint32_t token = 0; token < kTokens && status == Status::ok; ++token) {
    if (expert_of(token, fabric.rank_count) != expert) continue;
    const auto word = [&](std::uint64_t i) { return i == 0 ? token : rows[token * kWords + i - 1]; };
    status = send_words(scope, ring, kRow * sizeof(std::uint32_t), word, kPatience);
  }
  ring.close(scope);
  return status;
}

// The expert: answers each row of that rank, whose words it computes while they are sent. `row`: memory for one.
template <class Scope>
GIGABAR_DEVICE Status serve(const Scope& scope, const device::DeviceFabric& fabric, Rank from, std::uint32_t* row) {
  device::RecvRing questions;
  device::SendRing answers;
  Status status = open_ring(fabric, from, kToExpert, questions);
  if (status == Status::ok) status = open_ring(fabric, from, kBack, answers);
  std::uint32_t count = 0;
  if (status == Status::ok) status = recv_value(scope, questions, count, kPatience);
  for (std::uint32_t i = 0; i < count && status == Status::ok; ++i) {
    std::uint64_t bytes = 0;
    status = recv(scope, questions, row, kRow * sizeof *row, bytes, kPatience);
    const auto word = [&](std::uint64_t k) { return k == 0 ? row[0] : answer_to(row[k]); };
    if (status == Status::ok) status = send_words(scope, answers, bytes, word, kPatience);
    scope.sync();  // the next row goes to the same memory
  }
  questions.close(scope), answers.close(scope);
  return status;
}

// Takes the answers of that rank to where their tokens are.
template <class Scope>
GIGABAR_DEVICE Status combine(const Scope& scope, const device::DeviceFabric& fabric, Rank expert, std::uint32_t* row,
                              std::uint32_t* results) {
  device::RecvRing ring;
  Status status = open_ring(fabric, expert, kBack, ring);
  const std::uint32_t count = count_for(expert, fabric.rank_count);
  for (std::uint32_t n = 0; n < count && status == Status::ok; ++n) {
    std::uint64_t bytes = 0;
    status = recv(scope, ring, row, kRow * sizeof *row, bytes, kPatience);
    for (std::uint32_t i = scope.rank(); i < kWords && status == Status::ok; i += scope.size()) {
      results[row[0] * kWords + i] = row[1 + i];
    }
    scope.sync();
  }
  ring.close(scope);
  return status;
}

// One of `parts` scopes, each with the ranks part, part + parts, ...
template <class Scope>
GIGABAR_DEVICE Status run_part(const Scope& scope, const device::DeviceFabric& fabric, std::uint32_t part, std::uint32_t parts,
                               const std::uint32_t* rows, std::uint32_t* row, std::uint32_t* results) {
  Status status = Status::ok;
  for (Rank r = part; r < fabric.rank_count && status == Status::ok; r += parts) status = dispatch(scope, fabric, r, rows);
  for (Rank r = part; r < fabric.rank_count && status == Status::ok; r += parts) status = serve(scope, fabric, r, row);
  for (Rank r = part; r < fabric.rank_count && status == Status::ok; r += parts) status = combine(scope, fabric, r, row, results);
  return status;
}

#if defined(__CUDACC__)
__global__ void run_on_gpu(device::DeviceFabric fabric, const std::uint32_t* rows, std::uint32_t* scratch, std::uint32_t* results,
                           Status* ended) {
  const std::uint32_t part = threadIdx.x / 32;
  ended[part] = run_part(device::Warp{}, fabric, part, kWarps, rows, scratch + part * kRow, results);
}

Status run_kernel(int gpu, const device::DeviceFabric& fabric, const std::vector<std::uint32_t>& rows,
                  std::vector<std::uint32_t>& results) {
  Status ended[kWarps] = {Status::device_error};
  std::uint32_t* memory = nullptr;
  const std::size_t count = rows.size(), bytes = count * sizeof *memory;
  if (cudaSetDevice(gpu) != cudaSuccess) return ended[0];
  if (cudaMalloc(&memory, 2 * bytes + kWarps * kRow * sizeof *memory + sizeof ended) != cudaSuccess) return ended[0];
  std::uint32_t* const scratch = memory + 2 * count;
  Status* const statuses = reinterpret_cast<Status*>(scratch + kWarps * kRow);
  bool is_done = cudaMemcpy(memory, rows.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess;
  run_on_gpu<<<1, 32 * kWarps>>>(fabric, memory, scratch, memory + count, statuses);
  is_done = is_done && cudaMemcpy(results.data(), memory + count, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
  is_done = is_done && cudaMemcpy(ended, statuses, sizeof ended, cudaMemcpyDeviceToHost) == cudaSuccess;
  cudaFree(memory);
  for (const Status status : ended) {
    if (status != Status::ok) return status;
  }
  return is_done ? Status::ok : Status::device_error;
}
#else
Status run_kernel(int, const device::DeviceFabric& fabric, const std::vector<std::uint32_t>& rows,
                  std::vector<std::uint32_t>& results) {
  std::vector<std::uint32_t> row(kRow);
  return run_part(device::Thread{}, fabric, 0, 1, rows.data(), row.data(), results.data());
}
#endif

template <class Failed>
int tell(const Failed& failed) {
  return std::puts(failed.error().message().c_str()), 1;
}

int main() {
  auto fabric = gigabar::Fabric::open({});
  if (!fabric) return tell(fabric);
  gigabar::DeviceSessionOptions options;
  options.ring_count = 2;
  options.ring_bytes = 65536;
  auto session = gigabar::DeviceSession::open(*fabric, options);
  if (!session) return tell(session);
  std::vector<std::uint32_t> rows(kTokens * kWords), results(rows.size());
  for (std::uint32_t i = 0; i < rows.size(); ++i) rows[i] = fabric->rank() * 100'000 + i;
  const Status status = run_kernel(fabric->device(), session->handle(), rows, results);
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < rows.size(); ++i) wrong += results[i] != answer_to(rows[i]);
  std::printf("rank %u: %s, %u tokens, %u wrong words\n", fabric->rank(), std::string(name_of(status)).c_str(), kTokens, wrong);
  if (auto closed = session->close(10s); !closed) return tell(closed);
  if (auto closed = fabric->close(10s); !closed) return tell(closed);
  return status == Status::ok && wrong == 0 ? 0 : 1;
}
