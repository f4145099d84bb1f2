// SPDX-License-Identifier: Apache-2.0
#include "transport/local/copy_lanes.hpp"

#include "base/errors.hpp"
#include "driver/cuda/cuda.hpp"

#if GIGABAR_HAS_CUDA

#include <array>
#include <atomic>
#include <deque>
#include <optional>

#include "base/clock.hpp"
#include "memory/cuda_context.hpp"
#include "memory/marked_stream.hpp"

namespace gigabar::transport::local {
namespace {

// Two copies that overlap hide each other's start; more than a few share the same engines.
constexpr std::uint32_t kLaneCount = 4;
constexpr std::size_t kWordBytes = 128;  // each lane's word has lines of its own
constexpr std::int64_t kCheckEveryNs = 100'000;
// Of copies that wait behind each other so many share a mark, which stops the engine.
constexpr std::uint32_t kMaxUnmarked = 4;

Error lane_error(int device, const char* operation, CUresult result) {
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

class CudaCopyLanes final : public CopyLanes {
 public:
  CudaCopyLanes(const cuda::Functions& functions, CUcontext context, int device)
      : functions_(functions), context_(context), device_(device) {}
  ~CudaCopyLanes() override;

  Result<void> prepare(LaneOptions options);
  Result<CopyTicket> copy(CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) override;
  CopyState look(CopyTicket ticket) override;
  Error failure() const override { return *failure_; }
  void check() override;
  bool is_idle() override;

 private:
  ContextGuard enter() const { return ContextGuard(functions_, context_); }
  CUresult start(CUstream stream, CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) const;
  void mark_if_due(MarkedStream& lane);
  Result<CopyTicket> copy_by_engine(CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes);
  std::optional<CopyTicket> ask(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes);
  CopyState look_at(AskedCopy& asked);
  void settle_asked();
  MarkedStream& least_busy();
  void refresh(MarkedStream& lane);
  void fail(const char* operation, CUresult result) {
    if (!failure_) failure_ = lane_error(device_, operation, result);
  }

  const cuda::Functions& functions_;
  CUctx_st* const context_;
  const int device_;
  std::byte* words_ = nullptr;  // pinned
  std::array<MarkedStream, kLaneCount> lanes_;
  std::uint32_t next_lane_ = 0;
  std::unique_ptr<PersistentCopyKernel> kernel_;  // null: there is none
  std::uint64_t most_kernel_bytes_ = 0;
  std::deque<AskedCopy> asked_;  // that have not been seen to be over, oldest first
  std::int64_t next_kernel_check_ns_ = 0;
  std::optional<Error> failure_;
};

Result<void> CudaCopyLanes::prepare(LaneOptions options) {
  kernel_ = std::move(options.kernel);
  if (kernel_ == nullptr && options.most_kernel_bytes != 0) {
    auto kernel = PersistentCopyKernel::open(device_, options.first_number);
    if (kernel) kernel_ = std::move(*kernel);  // without it the engines do everything
  }
  most_kernel_bytes_ = kernel_ == nullptr ? 0 : options.most_kernel_bytes;
  const ContextGuard guard = enter();
  if (guard.result() != CUDA_SUCCESS) return lane_error(device_, "use device", guard.result());
  void* words = nullptr;
  CUresult result = functions_.cuMemHostAlloc(&words, kLaneCount * kWordBytes, CU_MEMHOSTALLOC_PORTABLE);
  if (result != CUDA_SUCCESS) return lane_error(device_, "allocate pinned memory", result);
  words_ = static_cast<std::byte*>(words);
  for (std::uint32_t index = 0; index < kLaneCount; ++index) {
    auto* const word = reinterpret_cast<std::uint32_t*>(words_ + index * kWordBytes);
    result = lanes_[index].open(functions_, word, options.first_number);
    if (result != CUDA_SUCCESS) return lane_error(device_, "make a stream", result);
  }
  return {};
}

// What may still be under way keeps its words for ever: a late write must find them.
CudaCopyLanes::~CudaCopyLanes() {
  const bool was_idle = is_idle();
  kernel_.reset();
  const ContextGuard guard = enter();
  for (MarkedStream& lane : lanes_) lane.close();
  if (words_ != nullptr && was_idle) functions_.cuMemFreeHost(words_);
}

CUresult CudaCopyLanes::start(CUstream stream, CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) const {
  switch (kind) {
    case CopyKind::host_to_device: return functions_.cuMemcpyHtoDAsync(to, reinterpret_cast<void*>(from), bytes, stream);
    case CopyKind::device_to_host: return functions_.cuMemcpyDtoHAsync(reinterpret_cast<void*>(to), from, bytes, stream);
    case CopyKind::device_to_device: break;
  }
  return functions_.cuMemcpyDtoDAsync(to, from, bytes, stream);
}

// Without a mark the end of a copy that is under way would never be seen: the whole device is given up then.
void CudaCopyLanes::mark_if_due(MarkedStream& lane) {
  if (lane.unmarked() == 0 || (lane.has_mark_under_way() && lane.unmarked() < kMaxUnmarked)) return;
  const ContextGuard guard = enter();
  if (const CUresult result = lane.mark(); result != CUDA_SUCCESS) fail("mark the end of a copy", result);
}

MarkedStream& CudaCopyLanes::least_busy() {
  MarkedStream* best = &lanes_[next_lane_];
  for (MarkedStream& lane : lanes_) {
    refresh(lane);
    if (lane.under_way() < best->under_way()) best = &lane;
  }
  next_lane_ = (next_lane_ + 1) % kLaneCount;
  return *best;
}

Result<CopyTicket> CudaCopyLanes::copy(CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  const bool is_for_kernel =
      kind == CopyKind::device_to_device && bytes <= most_kernel_bytes_ && (to - from) % 16 == 0 && !failure_;
  if (is_for_kernel) {
    if (const auto ticket = ask(to, from, bytes)) return *ticket;
  }
  auto ticket = copy_by_engine(kind, to, from, bytes);
  if (is_for_kernel && ticket) {
    settle_asked();
    kernel_->note_copy();
  }
  return ticket;
}

std::optional<CopyTicket> CudaCopyLanes::ask(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  const auto number = kernel_->post(to, from, bytes);
  if (!number) return std::nullopt;
  if (asked_.empty()) next_kernel_check_ns_ = now_ns() + kCheckEveryNs;
  asked_.push_back({*number, to, from, bytes, std::nullopt});
  return CopyTicket{kPersistentKernel, *number};
}

CopyState CudaCopyLanes::look_at(AskedCopy& asked) {
  if (!asked.again) {
    const auto state = kernel_->look(asked.number);
    if (state == PersistentCopyKernel::State::finished) return CopyState::finished;
    if (failure_) return CopyState::failed;
    if (state == PersistentCopyKernel::State::running) return CopyState::running;
    const auto ticket = copy_by_engine(CopyKind::device_to_device, asked.to, asked.from, asked.bytes);
    if (!ticket) return CopyState::failed;
    asked.again = *ticket;
  }
  return look(*asked.again);
}

// Forgets those that are over; the engine takes what the kernel has left undone.
void CudaCopyLanes::settle_asked() {
  std::erase_if(asked_, [this](AskedCopy& asked) { return look_at(asked) == CopyState::finished; });
}

Result<CopyTicket> CudaCopyLanes::copy_by_engine(CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  if (failure_) return *failure_;
  const ContextGuard guard = enter();
  if (guard.result() != CUDA_SUCCESS) return lane_error(device_, "use device", guard.result());
  MarkedStream& lane = least_busy();
  if (const CUresult result = start(lane.stream(), kind, to, from, bytes); result != CUDA_SUCCESS) {
    fail("copy", result);
    return *failure_;
  }
  const std::uint32_t number = lane.note_started();
  mark_if_due(lane);
  return CopyTicket{static_cast<std::uint32_t>(&lane - lanes_.data()), number};
}

void CudaCopyLanes::refresh(MarkedStream& lane) {
  if (lane.under_way() == 0) return;
  std::optional<ContextGuard> guard;
  if (lane.uses_events()) guard.emplace(functions_, context_);
  if (const CUresult result = lane.look(); result != CUDA_SUCCESS) return fail("copy", result);
  mark_if_due(lane);
}

CopyState CudaCopyLanes::look(CopyTicket ticket) {
  if (ticket.lane == kPersistentKernel) {
    for (auto asked = asked_.begin(); asked != asked_.end(); ++asked) {
      if (asked->number != ticket.number) continue;
      const CopyState state = look_at(*asked);
      if (state == CopyState::finished) asked_.erase(asked);
      return state;
    }
    return CopyState::finished;
  }
  MarkedStream& lane = lanes_[ticket.lane];
  refresh(lane);
  // Numbers wrap: the distance to the last one started tells which is older.
  if (lane.started() - ticket.number >= lane.under_way()) return CopyState::finished;
  return failure_ ? CopyState::failed : CopyState::running;
}

void CudaCopyLanes::check() {
  if (!asked_.empty() && !failure_ && now_ns() >= next_kernel_check_ns_) {
    next_kernel_check_ns_ = now_ns() + kCheckEveryNs;
    if (Result<void> sound = kernel_->check(); !sound) failure_ = std::move(sound).error();
  }
  for (MarkedStream& lane : lanes_) {
    if (failure_ || !lane.is_check_due()) continue;
    const ContextGuard guard = enter();
    if (const CUresult result = lane.check(); result != CUDA_SUCCESS) fail("copy", result);
  }
}

bool CudaCopyLanes::is_idle() {
  for (MarkedStream& lane : lanes_) {
    refresh(lane);
    if (lane.under_way() != 0) return false;
  }
  settle_asked();
  return asked_.empty();
}

const char* missing_function(const cuda::Functions& f) {
  return f.cuMemcpyDtoDAsync == nullptr ? "cuMemcpyDtoDAsync" : MarkedStream::missing_function(f);
}

}  // namespace

Result<std::unique_ptr<CopyLanes>> CopyLanes::open(int device, LaneOptions options) {
  auto context = primary_context(device);
  if (!context) return std::move(context).error();
  const cuda::Functions& functions = cuda::driver().functions;
  if (const char* const missing = missing_function(functions)) {
    return make_error(Status::unavailable, "use the copy engine", text("device ", device), text("libcuda has no ", missing),
                      "install driver 525 or newer");
  }
  auto lanes = std::make_unique<CudaCopyLanes>(functions, *context, device);
  if (Result<void> prepared = lanes->prepare(std::move(options)); !prepared) return std::move(prepared).error();
  return std::unique_ptr<CopyLanes>(std::move(lanes));
}

}  // namespace gigabar::transport::local

#else

namespace gigabar::transport::local {

Result<std::unique_ptr<CopyLanes>> CopyLanes::open(int device, LaneOptions) {
  return make_error("use the copy engine", text("device ", device), cuda::driver().availability);
}

}  // namespace gigabar::transport::local

#endif
