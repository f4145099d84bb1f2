// SPDX-License-Identifier: Apache-2.0
#include "transport/local/device_copier.hpp"

#include "base/errors.hpp"
#include "driver/cuda/cuda.hpp"

#if GIGABAR_HAS_CUDA

#include <array>
#include <atomic>
#include <deque>
#include <optional>

#include "base/clock.hpp"
#include "memory/cuda_context.hpp"
#include "memory/cuda_copy_stream.hpp"

namespace gigabar::transport::local {
namespace {

// Two copies that overlap hide each other's start; more than a few share the same engines.
constexpr std::uint32_t kStreamCount = 4;
constexpr std::int64_t kCheckEveryNs = 100'000;
// Of copies that wait behind each other so many share a point, which stops the engine.
constexpr std::uint64_t kMaxWithoutPoint = 4;

Error copier_error(int device, const char* operation, CUresult result) {
  return make_error(cuda::status_of(result) == Status::out_of_memory ? Status::out_of_memory : Status::device_error, operation,
                    text("copy engine of device ", device), cuda::describe_result(result), "check the GPU with nvidia-smi",
                    cuda::native_code(result));
}

// A copy that the persistent copy kernel was asked for. What it left undone goes to a copy engine.
struct AskedCopy {
  std::uint32_t number;
  std::uintptr_t to, from;
  std::uint64_t bytes;
  std::optional<CopyTicket> again;
};

class CudaDeviceCopier final : public DeviceCopier {
 public:
  CudaDeviceCopier(const cuda::Functions& functions, CUcontext context, int device)
      : functions_(functions), context_(context), device_(device) {}
  ~CudaDeviceCopier() override;

  Result<void> prepare(CopierOptions options);
  Result<CopyTicket> copy(CopyWay way, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) override;
  CopyState look(CopyTicket ticket) override;
  Error failure() const override { return *failure_; }
  void check() override;
  bool is_idle() override;

 private:
  ContextGuard enter() const { return ContextGuard(functions_, context_); }
  void record_if_due(CudaCopyStream& stream);
  Result<CopyTicket> copy_by_engine(CopyWay way, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes);
  std::optional<CopyTicket> ask(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes);
  CopyState look_at(AskedCopy& asked);
  void settle_asked();
  CudaCopyStream& least_busy();
  void refresh(CudaCopyStream& stream);
  void fail(const char* operation, CUresult result) {
    if (!failure_) failure_ = copier_error(device_, operation, result);
  }

  const cuda::Functions& functions_;
  CUctx_st* const context_;
  const int device_;
  std::array<CudaCopyStream, kStreamCount> streams_;
  std::uint32_t next_stream_ = 0;
  std::unique_ptr<PersistentCopyKernel> kernel_;  // null: there is none
  std::uint64_t most_kernel_bytes_ = 0;
  std::deque<AskedCopy> asked_;  // that have not been seen to be over, oldest first
  std::int64_t next_kernel_check_ns_ = 0;
  std::optional<Error> failure_;
};

Result<void> CudaDeviceCopier::prepare(CopierOptions options) {
  kernel_ = std::move(options.kernel);
  if (kernel_ == nullptr && options.most_kernel_bytes != 0) {
    auto kernel = PersistentCopyKernel::open(device_, options.first_number);
    if (kernel) kernel_ = std::move(*kernel);  // without it the engines do everything
  }
  most_kernel_bytes_ = kernel_ == nullptr ? 0 : options.most_kernel_bytes;
  const ContextGuard guard = enter();
  if (guard.result() != CUDA_SUCCESS) return copier_error(device_, "use device", guard.result());
  for (CudaCopyStream& stream : streams_) {
    const CUresult result = stream.open(functions_, CudaCopyStream::Points::words, options.first_number);
    if (result != CUDA_SUCCESS) return copier_error(device_, "make a stream", result);
  }
  return {};
}

CudaDeviceCopier::~CudaDeviceCopier() {
  is_idle();  // brings the streams up to date: what may still be under way keeps its word
  kernel_.reset();
  const ContextGuard guard = enter();
  for (CudaCopyStream& stream : streams_) stream.close();
}

// Without a point the end of a copy that is under way would never be seen: the whole device is given up then.
void CudaDeviceCopier::record_if_due(CudaCopyStream& stream) {
  const std::uint64_t count = stream.behind_last_point();
  if (count == 0 || (stream.has_point_under_way() && count < kMaxWithoutPoint)) return;
  const ContextGuard guard = enter();
  if (const CUresult result = stream.record(); result != CUDA_SUCCESS) fail("mark the end of a copy", result);
}

CudaCopyStream& CudaDeviceCopier::least_busy() {
  CudaCopyStream* best = &streams_[next_stream_];
  for (CudaCopyStream& stream : streams_) {
    refresh(stream);
    if (stream.under_way() < best->under_way()) best = &stream;
  }
  next_stream_ = (next_stream_ + 1) % kStreamCount;
  return *best;
}

Result<CopyTicket> CudaDeviceCopier::copy(CopyWay way, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  const bool is_for_kernel = way == CopyWay::between_devices && bytes <= most_kernel_bytes_ && (to - from) % 16 == 0 && !failure_;
  if (is_for_kernel) {
    if (const auto ticket = ask(to, from, bytes)) return *ticket;
  }
  auto ticket = copy_by_engine(way, to, from, bytes);
  if (is_for_kernel && ticket) {
    settle_asked();
    kernel_->note_copy();
  }
  return ticket;
}

std::optional<CopyTicket> CudaDeviceCopier::ask(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  const auto number = kernel_->post(to, from, bytes);
  if (!number) return std::nullopt;
  if (asked_.empty()) next_kernel_check_ns_ = now_ns() + kCheckEveryNs;
  asked_.push_back({*number, to, from, bytes, std::nullopt});
  return CopyTicket{kPersistentKernel, *number};
}

CopyState CudaDeviceCopier::look_at(AskedCopy& asked) {
  if (!asked.again) {
    const auto state = kernel_->look(asked.number);
    if (state == PersistentCopyKernel::State::finished) return CopyState::finished;
    if (failure_) return CopyState::failed;
    if (state == PersistentCopyKernel::State::running) return CopyState::running;
    const auto ticket = copy_by_engine(CopyWay::between_devices, asked.to, asked.from, asked.bytes);
    if (!ticket) return CopyState::failed;
    asked.again = *ticket;
  }
  return look(*asked.again);
}

// Forgets those that are over; the engine takes what the kernel has left undone.
void CudaDeviceCopier::settle_asked() {
  std::erase_if(asked_, [this](AskedCopy& asked) { return look_at(asked) == CopyState::finished; });
}

Result<CopyTicket> CudaDeviceCopier::copy_by_engine(CopyWay way, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  if (failure_) return *failure_;
  const ContextGuard guard = enter();
  if (guard.result() != CUDA_SUCCESS) return copier_error(device_, "use device", guard.result());
  CudaCopyStream& stream = least_busy();
  const CUresult result = stream.copy(way, reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  if (result != CUDA_SUCCESS) {
    fail("copy", result);
    return *failure_;
  }
  record_if_due(stream);
  return CopyTicket{static_cast<std::uint32_t>(&stream - streams_.data()), stream.started()};
}

void CudaDeviceCopier::refresh(CudaCopyStream& stream) {
  if (stream.under_way() == 0) return;
  std::optional<ContextGuard> guard;
  if (stream.uses_events()) guard.emplace(functions_, context_);
  if (const CUresult result = stream.look(); result != CUDA_SUCCESS) return fail("copy", result);
  record_if_due(stream);
}

CopyState CudaDeviceCopier::look(CopyTicket ticket) {
  if (ticket.stream == kPersistentKernel) {
    for (auto asked = asked_.begin(); asked != asked_.end(); ++asked) {
      if (asked->number != ticket.number) continue;
      const CopyState state = look_at(*asked);
      if (state == CopyState::finished) asked_.erase(asked);
      return state;
    }
    return CopyState::finished;
  }
  CudaCopyStream& stream = streams_[ticket.stream];
  refresh(stream);
  if (stream.finished() >= ticket.number) return CopyState::finished;
  return failure_ ? CopyState::failed : CopyState::running;
}

void CudaDeviceCopier::check() {
  if (!asked_.empty() && !failure_ && now_ns() >= next_kernel_check_ns_) {
    next_kernel_check_ns_ = now_ns() + kCheckEveryNs;
    if (Result<void> sound = kernel_->check(); !sound) failure_ = std::move(sound).error();
  }
  for (CudaCopyStream& stream : streams_) {
    if (failure_ || !stream.is_check_due()) continue;
    const ContextGuard guard = enter();
    if (const CUresult result = stream.check(); result != CUDA_SUCCESS) fail("copy", result);
  }
}

bool CudaDeviceCopier::is_idle() {
  for (CudaCopyStream& stream : streams_) {
    refresh(stream);
    if (stream.under_way() != 0) return false;
  }
  settle_asked();
  return asked_.empty();
}

}  // namespace

Result<std::unique_ptr<DeviceCopier>> DeviceCopier::open(int device, CopierOptions options) {
  auto context = primary_context(device);
  if (!context) return std::move(context).error();
  const cuda::Functions& functions = cuda::driver().functions;
  if (const char* const missing = CudaCopyStream::missing_function(functions)) {
    return make_error(Status::unavailable, "use the copy engine", text("device ", device), text("libcuda has no ", missing),
                      "install driver 525 or newer");
  }
  auto copier = std::make_unique<CudaDeviceCopier>(functions, *context, device);
  if (Result<void> prepared = copier->prepare(std::move(options)); !prepared) return std::move(prepared).error();
  return std::unique_ptr<DeviceCopier>(std::move(copier));
}

}  // namespace gigabar::transport::local

#else

namespace gigabar::transport::local {

Result<std::unique_ptr<DeviceCopier>> DeviceCopier::open(int device, CopierOptions) {
  return make_error("use the copy engine", text("device ", device), cuda::driver().availability);
}

}  // namespace gigabar::transport::local

#endif
