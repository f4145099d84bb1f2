// SPDX-License-Identifier: Apache-2.0
// A kernel of each of two ranks asks the other rank's CPU, which answers, by GASPI's functions on both: gaspi_run -n 2
// ./gaspi_kernels Compiled by nvcc (-x cu) a warp of the GPU asks; by a C++ compiler a thread of the CPU does, over memory of a
// stand-in.
#include <GASPI_Device.hpp>
#include <cstdio>
#include <thread>

constexpr gaspi_segment_id_t kAnswers = 0, kQuestions = 1;  // kernels take the notifications of the first, CPUs those of the second
constexpr gaspi_timeout_t kTimeout = 20000;                 // ms
constexpr unsigned kCalls = 100;

// Calls with all threads of the scope. Word 0 of the answers is the answer, word 1 the question.
template <class Scope>
GIGABAR_DEVICE gaspi_return_t ask(const Scope& scope, const gaspi_device_t& device, unsigned long* words) {
  const auto peer = static_cast<gaspi_rank_t>(1 - device.fabric.rank);
  for (unsigned call = 1; call <= kCalls; ++call) {
    if (scope.rank() == 0) words[1] = 1000 * device.fabric.rank + call;
    scope.sync();
    gaspi_return_t code = gaspi_write_notify(scope, device, kAnswers, 8, peer, kQuestions, 0, 8, 0, call, 0, kTimeout);
    gaspi_notification_id_t id = 0;
    gaspi_notification_t value = 0;
    if (code == GASPI_SUCCESS) code = gaspi_notify_waitsome(scope, device, kAnswers, 0, 1, &id, kTimeout);
    if (code == GASPI_SUCCESS) code = gaspi_notify_reset(scope, device, kAnswers, id, &value);
    if (code != GASPI_SUCCESS) return code;
    if (words[0] != words[1] * words[1] || value != call) return GASPI_ERROR;
  }
  return GASPI_SUCCESS;
}

#if defined(__CUDACC__)
__global__ void ask_on_gpu(gaspi_device_t device, unsigned long* words, gaspi_return_t* ended) {
  const gaspi_return_t code = ask(gigabar::device::Warp{}, device, words);
  if (threadIdx.x == 0) *ended = code;
}

gaspi_return_t run_kernel(const gaspi_device_t& device, unsigned long* words) {
  gaspi_return_t code = GASPI_ERR_DEVICE;
  gaspi_return_t* ended = nullptr;
  cudaPointerAttributes memory{};
  if (cudaPointerGetAttributes(&memory, words) != cudaSuccess || cudaSetDevice(memory.device) != cudaSuccess) return code;
  if (cudaMalloc(&ended, sizeof code) != cudaSuccess) return code;
  ask_on_gpu<<<1, 32>>>(device, words, ended);
  if (cudaMemcpy(&code, ended, sizeof code, cudaMemcpyDeviceToHost) != cudaSuccess) code = GASPI_ERR_DEVICE;
  cudaFree(ended);
  return code;
}
#else
gaspi_return_t run_kernel(const gaspi_device_t& device, unsigned long* words) {
  return ask(gigabar::device::Thread{}, device, words);
}
#endif

// The CPU: a question arrives in word 0 of host memory, its square goes back from word 1.
gaspi_return_t answer(gaspi_rank_t peer, unsigned long* words) {
  for (unsigned call = 1; call <= kCalls; ++call) {
    gaspi_notification_id_t id = 0;
    gaspi_notification_t value = 0;
    gaspi_return_t code = gaspi_notify_waitsome(kQuestions, 0, 1, &id, kTimeout);
    if (code == GASPI_SUCCESS) code = gaspi_notify_reset(kQuestions, id, &value);
    if (code != GASPI_SUCCESS) return code;
    words[1] = words[0] * words[0];
    code = gaspi_write_notify(kQuestions, 8, peer, kAnswers, 0, 8, 0, value, 0, kTimeout);
    if (code == GASPI_SUCCESS) code = gaspi_wait(0, kTimeout);
    if (code != GASPI_SUCCESS) return code;
  }
  return GASPI_SUCCESS;
}

int failed(const char* what, gaspi_return_t code) { return std::printf("%s: %s\n", what, gaspi_error_str(code)), 1; }

int main() {
  gaspi_return_t code = gaspi_proc_init(kTimeout);
  if (code != GASPI_SUCCESS) return failed("init", code);
  gaspi_rank_t rank = 0, count = 0;
  gaspi_proc_rank(&rank);
  gaspi_proc_num(&count);
  if (count != 2) return std::puts("start two ranks: gaspi_run -n 2 ./gaspi_kernels"), 1;
  code = gaspi_segment_create(kAnswers, 4096, GASPI_GROUP_ALL, kTimeout, GASPI_MEM_GPU);
  if (code != GASPI_SUCCESS) return failed("segment of answers", code);
  code = gaspi_segment_create(kQuestions, 4096, GASPI_GROUP_ALL, kTimeout, GASPI_MEM_INITIALIZED);
  if (code != GASPI_SUCCESS) return failed("segment of questions", code);
  gaspi_pointer_t answers = nullptr, questions = nullptr;
  gaspi_segment_ptr(kAnswers, &answers);
  gaspi_segment_ptr(kQuestions, &questions);

  const gaspi_device_segment_t segments[] = {{kAnswers, GASPI_NOTIFY_KERNELS}, {kQuestions, GASPI_NOTIFY_CPU}};
  const gaspi_device_t* device = nullptr;
  code = gaspi_device_open(segments, 2, 1, &device, kTimeout);
  if (code != GASPI_SUCCESS) return failed("device side", code);

  gaspi_return_t asked = GASPI_ERROR;
  std::thread kernel([&] { asked = run_kernel(*device, static_cast<unsigned long*>(answers)); });
  const gaspi_return_t answered = answer(static_cast<gaspi_rank_t>(1 - rank), static_cast<unsigned long*>(questions));
  kernel.join();
  std::printf("rank %u: kernel %s, CPU %s\n", unsigned{rank}, gaspi_error_str(asked), gaspi_error_str(answered));

  if ((code = gaspi_device_close(kTimeout)) != GASPI_SUCCESS) return failed("close the device side", code);
  if ((code = gaspi_proc_term(kTimeout)) != GASPI_SUCCESS) return failed("term", code);
  return asked == GASPI_SUCCESS && answered == GASPI_SUCCESS ? 0 : 1;
}
