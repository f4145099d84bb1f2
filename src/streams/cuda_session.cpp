// SPDX-License-Identifier: Apache-2.0
#include "streams/cuda_session.hpp"

#include "base/check_ids.hpp"
#include "base/errors.hpp"
#include "streams/plan.hpp"

#if GIGABAR_HAS_CUDA

#include <algorithm>
#include <map>

#include "gigabar/copy.hpp"
#include "memory/runtime.hpp"
#include "streams/cuda_stream.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr std::uint64_t kChaseSteps = 4000;  // loads per sample: a few milliseconds
constexpr double kUtilitySeconds = 60;       // for filling and checking
constexpr double kEchoSeconds = 5;           // without a flag, and with nothing that holds the CPU up

Availability stream_functions() {
  const cuda::Driver& driver = cuda::driver();
  if (!driver.availability.is_ok()) return driver.availability;
  const cuda::Functions& f = driver.functions;
  const char* missing = CudaCopyStream::missing_function(f);
  const std::pair<bool, const char*> needed[] = {{f.cuStreamWaitValue32 != nullptr, "cuStreamWaitValue32"},
                                                 {f.cuEventElapsedTime != nullptr, "cuEventElapsedTime"},
                                                 {f.cuMemcpyPeerAsync != nullptr, "cuMemcpyPeerAsync"},
                                                 {f.cuDeviceCanAccessPeer != nullptr, "cuDeviceCanAccessPeer"},
                                                 {f.cuCtxEnablePeerAccess != nullptr, "cuCtxEnablePeerAccess"}};
  for (const auto& [is_there, name] : needed) {
    if (!is_there && missing == nullptr) missing = name;
  }
  if (missing == nullptr) return {};
  return {AvailabilityCode::symbol_missing, text("libcuda has no ", missing), "install driver 525 or newer"};
}

bool needs_kernels(const Transfer& transfer) {
  return transfer.executor == StreamExecutor::kernel || !moves_data(transfer.executor);
}

class Session final : public CudaSession {
 public:
  ~Session() override;
  Result<void> open(std::span<const DeviceInfo> devices, const StreamPlan& plan);

  Result<void> prepare(std::size_t index, const Transfer& transfer) override;
  bool uses_peer_access(std::size_t index) const override {
    const auto found = transfers_.find(index);
    return found != transfers_.end() && found->second.uses_peer_access;
  }
  std::string path_of(std::size_t index) const override;
  Result<void> read_clocks() override;
  void add_workers(std::span<const std::unique_ptr<TransferRun>> runs, std::span<const std::unique_ptr<Ends>> ends, Repeat& repeat,
                   std::vector<Worker>& workers) override;

  Result<void> fill(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed, const GiveUp& give_up) override;
  Result<void> poison(int device, std::uintptr_t address, std::size_t bytes, const GiveUp& give_up) override;
  Result<std::optional<PatternMismatch>> check(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed,
                                               const GiveUp& give_up) override;

 private:
  Result<void> enable_peer_access(CudaTransfer& transfer, const std::string& object);
  void add_blocking_worker(CudaTransfer& transfer, TransferRun& run, const Ends& ends, Repeat& repeat,
                           std::vector<Worker>& workers);
  template <class... Parameters>
  static Result<void> launch_and_wait(StreamDevice& device, CUfunction kernel, const char* operation, Parameters... parameters) {
    constexpr unsigned kThreads = 256;
    const auto blocks = static_cast<unsigned>(device.multiprocessor_count) * 8;
    const ContextGuard guard = device.enter();
    const CUresult launched = device.launch(kernel, blocks, kThreads, device.own_stream.stream(), parameters...);
    if (launched != CUDA_SUCCESS) return cuda::failure(operation, text("device ", device.index), launched);
    return device.wait(device.own_stream, kUtilitySeconds, operation);
  }

  std::map<int, std::unique_ptr<StreamDevice>> devices_;
  std::map<std::size_t, CudaTransfer> transfers_;  // those that a GPU carries
};

Result<void> Session::open(std::span<const DeviceInfo> devices, const StreamPlan& plan) {
  std::map<int, bool> used;  // device -> needs kernels
  for (const Transfer& transfer : plan.transfers) {
    for (const int device : {transfer.source.device, transfer.destination.device}) {
      if (device >= 0) used[device] = used[device] || (device == working_device(transfer) && needs_kernels(transfer));
    }
  }
  for (const auto& [device, with_kernels] : used) {
    auto opened = StreamDevice::open(devices[static_cast<std::size_t>(device)], with_kernels);
    if (!opened) return std::move(opened).error();
    devices_[device] = std::move(opened).value();
  }
  return {};
}

Session::~Session() {
  for (const auto& [index, transfer] : transfers_) {
    const ContextGuard guard = transfer.device->enter();
    transfer.stream->close();
  }
}

// Never disabled again: everybody else in the process who uses the same two GPUs may rely on it by now.
Result<void> Session::enable_peer_access(CudaTransfer& transfer, const std::string& object) {
  const StreamDevice& device = *transfer.device;
  int can_access = 0;
  CUresult result = device.functions.cuDeviceCanAccessPeer(&can_access, device.handle, transfer.other->handle);
  if (result != CUDA_SUCCESS) return cuda::failure("run streams", object, result);
  if (can_access == 0) {
    if (transfer.transfer->may_stage && transfer.transfer->executor == StreamExecutor::copy_engine) return {};
    return make_error(
        Status::not_supported, "run streams", object,
        text("device ", device.index, " has no peer access to device ", transfer.other->index,
             ": CUDA reports no NVLink or PCIe path between them"),
        "allow staging through the host (may_stage, 'stage', --stage) with the copy engine, or check `nvidia-smi topo -p2p r`", {},
        check_id::kPeerAccess);
  }
  const ContextGuard guard = device.enter();
  result = device.functions.cuCtxEnablePeerAccess(transfer.other->context, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    return cuda::failure("enable peer access", object, result);
  transfer.uses_peer_access = true;
  return {};
}

Result<void> Session::prepare(std::size_t index, const Transfer& transfer) {
  if (transfer.executor == StreamExecutor::cpu) return {};
  CudaTransfer prepared{.index = index,
                        .transfer = &transfer,
                        .device = devices_[working_device(transfer)].get(),
                        .stream = std::make_unique<CudaCopyStream>()};
  const int source = transfer.source.device;
  const int destination = transfer.destination.device;
  if (source >= 0 && destination >= 0 && source != destination) {
    prepared.other = devices_[prepared.device->index == source ? destination : source].get();
    if (Result<void> enabled = enable_peer_access(prepared, describe_transfer(index, transfer)); !enabled) return enabled;
  }
  const ContextGuard guard = prepared.device->enter();
  const CUresult result = prepared.stream->open(prepared.device->functions, CudaCopyStream::Points::timed_events);
  if (result != CUDA_SUCCESS) return cuda::failure("make a stream", describe_transfer(index, transfer), result);
  transfers_.emplace(index, std::move(prepared));
  return {};
}

std::string Session::path_of(std::size_t index) const {
  const auto found = transfers_.find(index);
  if (found == transfers_.end()) return {};
  const CudaTransfer& transfer = found->second;
  const std::string device = text("device ", transfer.device->index);
  switch (transfer.transfer->executor) {
    case StreamExecutor::flag: return text("CPU and one thread of ", device);
    case StreamExecutor::pointer_chase: return text("one thread of ", device);
    case StreamExecutor::kernel:
    case StreamExecutor::copy_engine:
    case StreamExecutor::cpu: break;
  }
  std::string path = text(transfer.transfer->executor == StreamExecutor::kernel ? "kernel on " : "copy engine of ", device);
  if (transfer.other == nullptr) return path;
  path += transfer.device->index == transfer.transfer->source.device ? " (push)" : " (pull)";
  return transfer.uses_peer_access ? path : path + ", staged through the host by the driver";
}

Result<void> Session::read_clocks() {
  for (const auto& [index, device] : devices_) {
    if (Result<void> read = device->read_clock(); !read) return read;
  }
  return {};
}

// Serves all streams of one GPU in turn, so that none gets ahead of the others. They wait behind the gate when `others`, the
// workers that wait for copies of theirs before it opens, have arrived: streams share hardware queues
// (CUDA_DEVICE_MAX_CONNECTIONS), and what one waits for holds up those behind it.
void serve_streams(const StreamDevice& device, std::vector<std::unique_ptr<CudaStream>>& streams, std::size_t others,
                   Repeat& repeat) {
  const ContextGuard guard = device.enter();
  if (repeat.await_arrivals(others)) {
    for (const auto& stream : streams) stream->prepare();
  }
  repeat.arrive_and_wait();  // when it was given up, what waits behind the gate still has to end
  Pause pause;
  for (;;) {
    bool has_advanced = false;
    bool is_any_left = false;
    for (const auto& stream : streams) {
      has_advanced |= stream->advance();
      is_any_left |= !stream->is_finished();
    }
    if (!is_any_left) break;
    if (repeat.has_timed_out()) {
      for (const auto& stream : streams) stream->give_up();
      break;
    }
    if (has_advanced) {
      pause.reset();
    } else {
      pause();
    }
  }
}

void Session::add_workers(std::span<const std::unique_ptr<TransferRun>> runs, std::span<const std::unique_ptr<Ends>> ends,
                          Repeat& repeat, std::vector<Worker>& workers) {
  std::map<StreamDevice*, std::vector<CudaTransfer*>> by_device;
  std::map<StreamDevice*, std::size_t> carried_count;
  for (auto& [index, transfer] : transfers_) {
    if (runs[index] == nullptr) continue;  // failed in an earlier repeat
    ++carried_count[transfer.device];
    if (transfer.waits_for_each_copy()) {
      add_blocking_worker(transfer, *runs[index], *ends[index], repeat, workers);
    } else {
      by_device[transfer.device].push_back(&transfer);
    }
  }
  const std::size_t others = workers.size();
  for (const auto& [device, served] : by_device) {
    auto streams = std::make_shared<std::vector<std::unique_ptr<CudaStream>>>();
    for (CudaTransfer* const transfer : served) {
      streams->push_back(std::make_unique<CudaStream>(*transfer, *ends[transfer->index], *runs[transfer->index], repeat,
                                                      carried_count[device] == 1));
    }
    workers.push_back(
        {device->numa_node, [worker = device, streams, others, &repeat] { serve_streams(*worker, *streams, others, repeat); }});
  }
}

// One copy, and the wait for it.
Result<void> copy_and_wait(const CudaTransfer& transfer, const Ends& ends, std::size_t bytes, const Repeat& repeat) {
  const StreamDevice& device = *transfer.device;
  CUresult result = start_copy(transfer, ends, bytes);
  if (result == CUDA_SUCCESS) result = transfer.stream->wait([&] { return repeat.has_timed_out(); });
  if (result == CUDA_SUCCESS) return {};
  if (result == CUDA_ERROR_NOT_READY) {
    return make_error(Status::timed_out, "copy", text("device ", device.index), "was not done within the plan's time");
  }
  return cuda::failure("copy", text("device ", device.index), result);
}

// Loads per sample through the source's memory, timed by the GPU.
OneCopy chase_once(const CudaTransfer& transfer, const Ends& ends, HostMemory& result) {
  StreamDevice& device = *transfer.device;
  const void* const first = ends.source().address();
  auto* const words = static_cast<std::uint64_t*>(result.address());
  const CUresult launched = device.launch(device.kernels.chase, 1, 1, transfer.stream->stream(), first, kChaseSteps, words);
  if (launched != CUDA_SUCCESS) return {cuda::failure("chase pointers", text("device ", device.index), launched)};
  OneCopy done;
  done.outcome = device.wait(*transfer.stream, kUtilitySeconds, "chase pointers");
  done.latency_us = static_cast<double>(words[0]) / 1000 / static_cast<double>(kChaseSteps);
  return done;
}

void run_echo(const CudaTransfer& transfer, const Ends& ends, TransferRun& run, Repeat& repeat) {
  StreamDevice& device = *transfer.device;
  const bool is_host_source = ends.source().host.has_value();
  auto* const asked = reinterpret_cast<std::uint32_t*>((is_host_source ? ends.destination() : ends.source()).address());
  auto* const answered = reinterpret_cast<std::uint32_t*>((is_host_source ? ends.source() : ends.destination()).address());
  *answered = 0;
  Result<void> started = publish(*ends.mapping(), 0, std::uint32_t{0});
  if (started) {
    const auto timeout_ns = static_cast<std::uint64_t>((kEchoSeconds + run.transfer.delay_seconds) * 1e9);
    const CUresult launched = device.launch(device.kernels.echo, 1, 1, transfer.stream->stream(),
                                            static_cast<const std::uint32_t*>(asked), answered, kLastFlag, timeout_ns);
    if (launched != CUDA_SUCCESS) started = cuda::failure("flag", text("device ", device.index), launched);
  }
  if (!started) run.fail(failure_of(run, started.record()));
  run_flag_loop(repeat, run, *ends.mapping(), answered);
  if (Result<void> ended = device.wait(*transfer.stream, kUtilitySeconds, "flag"); !ended)
    run.fail(failure_of(run, ended.record()));
}

void Session::add_blocking_worker(CudaTransfer& transfer, TransferRun& run, const Ends& ends, Repeat& repeat,
                                  std::vector<Worker>& workers) {
  const auto body = [&transfer, &run, &ends, &repeat] {
    const ContextGuard guard = transfer.device->enter();
    if (run.transfer.executor == StreamExecutor::flag) return run_echo(transfer, ends, run, repeat);
    if (run.transfer.executor == StreamExecutor::pointer_chase) {
      auto result = HostMemory::allocate(4096);
      if (!result) run.fail(failure_of(run, result.error().record()));
      const auto chase = [&] { return chase_once(transfer, ends, *result); };
      return run_copy_loop(repeat, {run, 0, 0, 1, [&] { return result ? chase().outcome : Result<void>(); }, chase});
    }
    const std::size_t warm_bytes = std::min<std::size_t>(run.transfer.bytes, std::size_t{8} << 20);
    run_copy_loop(repeat, {run, 0, run.transfer.bytes, 1, [&] { return copy_and_wait(transfer, ends, warm_bytes, repeat); },
                           [&] { return OneCopy{copy_and_wait(transfer, ends, run.transfer.bytes, repeat), -1}; }});
  };
  workers.push_back({transfer.device->numa_node, body});
}

Result<void> Session::fill(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed, const GiveUp& give_up) {
  StreamDevice& worker = *devices_[device];
  if (!worker.has_kernels()) return host_side_device_code().fill(device, address, bytes, seed, give_up);
  return launch_and_wait(worker, worker.kernels.fill, "fill", reinterpret_cast<std::byte*>(address), bytes, seed);
}

// The pattern of a seed that no transfer has is as good a poison as any.
Result<void> Session::poison(int device, std::uintptr_t address, std::size_t bytes, const GiveUp& give_up) {
  if (!devices_[device]->has_kernels()) return host_side_device_code().poison(device, address, bytes, give_up);
  constexpr std::uint64_t kNobodysSeed = ~std::uint64_t{0};
  return fill(device, address, bytes, kNobodysSeed, give_up);
}

Result<std::optional<PatternMismatch>> Session::check(int device, std::uintptr_t address, std::size_t bytes, std::uint64_t seed,
                                                      const GiveUp& give_up) {
  StreamDevice& worker = *devices_[device];
  if (!worker.has_kernels()) return host_side_device_code().check(device, address, bytes, seed, give_up);
  constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t word = kNone;
  auto* const result = static_cast<std::uint64_t*>(worker.scratch->address());
  const auto result_address = reinterpret_cast<std::uintptr_t>(result);
  const auto* const first = reinterpret_cast<const std::byte*>(address);
  Result<void> done = engine_copy_to(device, result_address, &word, sizeof word);
  if (done) done = launch_and_wait(worker, worker.kernels.check, "check", first, bytes, seed, result);
  if (done) done = engine_copy_from(device, &word, result_address, sizeof word);
  if (!done) return std::move(done).error();
  if (word == kNone) return std::optional<PatternMismatch>{};
  PatternMismatch mismatch{word * 8, pattern_word(seed, word), pattern_word(seed, word)};
  const std::size_t length = std::min<std::size_t>(8, bytes - mismatch.offset_bytes);
  done = engine_copy_from(device, &mismatch.found, address + mismatch.offset_bytes, length);
  if (!done) return std::move(done).error();
  return std::optional(mismatch);
}

}  // namespace

Result<std::unique_ptr<CudaSession>> open_cuda_session(std::span<const DeviceInfo> devices, const StreamPlan& plan) {
  const Availability available = stream_functions();
  if (!available.is_ok()) return make_error("run streams", "CUDA", available);
  auto session = std::make_unique<Session>();
  if (Result<void> opened = session->open(devices, plan); !opened) return std::move(opened).error();
  return std::unique_ptr<CudaSession>(std::move(session));
}

}  // namespace gigabar::inline v0

#endif
