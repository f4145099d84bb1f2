#include "transport/local/copy_lanes.hpp"

#include "base/errors.hpp"
#include "driver/cuda/cuda.hpp"

#if GIGABAR_HAS_CUDA

#include <array>
#include <atomic>
#include <deque>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "memory/cuda_context.hpp"

namespace gigabar::transport::local {
namespace {

// Two copies that overlap hide each other's start; more than a few share the same engines.
constexpr std::uint32_t kLaneCount = 4;
constexpr std::size_t kWordBytes = 128;  // each lane's word has lines of its own
constexpr std::int64_t kCheckEveryNs = 100'000;
// A mark stops the engine for about 2 µs. Of copies that wait behind each other so many share one.
constexpr std::uint32_t kMostUnmarked = 4;

struct Mark {
  std::uint32_t number;
  CUevent event;
};

struct Lane {
  CUstream stream = nullptr;
  std::uint32_t* word = nullptr;
  std::uint32_t started = 0;   // number of the last copy
  std::uint32_t marked = 0;    // number of the last copy that has a mark behind it
  std::uint32_t finished = 0;  // number of the last copy that is known to have ended
  std::deque<Mark> marks;      // only with events
  std::int64_t next_check_ns = 0;

  std::uint32_t under_way() const noexcept { return started - finished; }
};

Error lane_error(int device, const char* operation, CUresult result) {
  return make_error(cuda::status_of(result) == Status::out_of_memory ? Status::out_of_memory : Status::device_error, operation,
                    text("copy engine of device ", device), cuda::describe_result(result), "check the GPU with nvidia-smi",
                    cuda::native_code(result));
}

// A copy that the resident kernel was asked for. What it left undone goes to a copy engine.
struct AskedCopy {
  std::uint32_t number;
  std::uintptr_t to, from;
  std::uint64_t bytes;
  std::optional<CopyTicket> again;
};

class CudaCopyLanes final : public CopyLanes {
 public:
  CudaCopyLanes(const cuda::Functions& functions, CUcontext context, int device)
      : functions_(functions), context_(context), device_(device), uses_events_(functions.cuStreamWriteValue32 == nullptr) {}
  ~CudaCopyLanes() override;

  Outcome prepare(LaneOptions options);
  Result<CopyTicket> copy(CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) override;
  CopyState look(CopyTicket ticket) override;
  Error failure() const override { return *failure_; }
  void check() override;
  bool is_idle() override;

 private:
  ContextGuard enter() const { return ContextGuard(functions_, context_); }
  CUresult start(const Lane& lane, CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) const;
  void mark_if_due(Lane& lane);
  CUresult mark(Lane& lane);
  CUresult mark_by_event(Lane& lane);
  Result<CopyTicket> copy_by_engine(CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes);
  std::optional<CopyTicket> ask(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes);
  CopyState look_at(AskedCopy& asked);
  void settle_asked();
  Lane& least_busy();
  void refresh(Lane& lane);
  void fail(const char* operation, CUresult result) {
    if (!failure_) failure_ = lane_error(device_, operation, result);
  }

  const cuda::Functions& functions_;
  CUctx_st* const context_;
  const int device_;
  bool uses_events_;
  std::byte* words_ = nullptr;  // pinned
  std::array<Lane, kLaneCount> lanes_;
  std::uint32_t next_lane_ = 0;
  std::vector<CUevent> free_events_;
  std::unique_ptr<ResidentCopier> resident_;  // null: there is none
  std::uint64_t most_kernel_bytes_ = 0;
  std::deque<AskedCopy> asked_;  // that have not been seen to be over, oldest first
  std::int64_t next_resident_check_ns_ = 0;
  std::optional<Error> failure_;
};

Outcome CudaCopyLanes::prepare(LaneOptions options) {
  resident_ = std::move(options.resident);
  if (resident_ == nullptr && options.most_kernel_bytes != 0) {
    auto resident = ResidentCopier::open(device_, options.first_number);
    if (resident) resident_ = std::move(*resident);  // without it the engines do everything
  }
  most_kernel_bytes_ = resident_ == nullptr ? 0 : options.most_kernel_bytes;
  const ContextGuard guard = enter();
  if (guard.result() != CUDA_SUCCESS) return lane_error(device_, "use device", guard.result());
  void* words = nullptr;
  CUresult result = functions_.cuMemHostAlloc(&words, kLaneCount * kWordBytes, CU_MEMHOSTALLOC_PORTABLE);
  if (result != CUDA_SUCCESS) return lane_error(device_, "allocate pinned memory", result);
  words_ = static_cast<std::byte*>(words);
  for (std::uint32_t index = 0; index < kLaneCount; ++index) {
    Lane& lane = lanes_[index];
    lane.word = reinterpret_cast<std::uint32_t*>(words_ + index * kWordBytes);
    *lane.word = lane.started = lane.marked = lane.finished = options.first_number;
    result = functions_.cuStreamCreate(&lane.stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) return lane_error(device_, "make a stream", result);
  }
  return {};
}

// What may still be under way keeps its words for ever: a late write must find them.
CudaCopyLanes::~CudaCopyLanes() {
  const bool was_idle = is_idle();
  resident_.reset();
  const ContextGuard guard = enter();
  for (const Lane& lane : lanes_) {
    if (lane.stream != nullptr) functions_.cuStreamDestroy(lane.stream);
    for (const Mark& pending : lane.marks) free_events_.push_back(pending.event);
  }
  for (CUevent_st* const event : free_events_) functions_.cuEventDestroy(event);
  if (words_ != nullptr && was_idle) functions_.cuMemFreeHost(words_);
}

CUresult CudaCopyLanes::start(const Lane& lane, CopyKind kind, std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) const {
  switch (kind) {
    case CopyKind::host_to_device: return functions_.cuMemcpyHtoDAsync(to, reinterpret_cast<void*>(from), bytes, lane.stream);
    case CopyKind::device_to_host: return functions_.cuMemcpyDtoHAsync(reinterpret_cast<void*>(to), from, bytes, lane.stream);
    case CopyKind::device_to_device: break;
  }
  return functions_.cuMemcpyDtoDAsync(to, from, bytes, lane.stream);
}

CUresult CudaCopyLanes::mark_by_event(Lane& lane) {
  CUevent event = nullptr;
  if (!free_events_.empty()) {
    event = free_events_.back();
    free_events_.pop_back();
  } else if (const CUresult result = functions_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING); result != CUDA_SUCCESS) {
    return result;
  }
  lane.marks.push_back({lane.started, event});
  return functions_.cuEventRecord(event, lane.stream);
}

// The stream's write is ordered behind the copy, everywhere: by default it comes after a fence of the whole system.
// Source: CUDA driver API, "Stream Memory Operations", cuStreamWriteValue32.
CUresult CudaCopyLanes::mark(Lane& lane) {
  if (!uses_events_) {
    const CUresult result = functions_.cuStreamWriteValue32(lane.stream, reinterpret_cast<CUdeviceptr>(lane.word), lane.started,
                                                            CU_STREAM_WRITE_VALUE_DEFAULT);
    if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
    uses_events_ = true;  // known at the first copy of all, before any number was written
  }
  return mark_by_event(lane);
}

// Without a mark the end of a copy that is under way would never be seen: the whole device is given up then.
void CudaCopyLanes::mark_if_due(Lane& lane) {
  const std::uint32_t unmarked = lane.started - lane.marked;
  if (unmarked == 0 || (lane.marked != lane.finished && unmarked < kMostUnmarked)) return;
  const ContextGuard guard = enter();
  if (const CUresult result = mark(lane); result != CUDA_SUCCESS) fail("mark the end of a copy", result);
  lane.marked = lane.started;
}

Lane& CudaCopyLanes::least_busy() {
  Lane* best = &lanes_[next_lane_];
  for (Lane& lane : lanes_) {
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
    resident_->note_copy();
  }
  return ticket;
}

std::optional<CopyTicket> CudaCopyLanes::ask(std::uintptr_t to, std::uintptr_t from, std::uint64_t bytes) {
  const auto number = resident_->post(to, from, bytes);
  if (!number) return std::nullopt;
  if (asked_.empty()) next_resident_check_ns_ = now_ns() + kCheckEveryNs;
  asked_.push_back({*number, to, from, bytes, std::nullopt});
  return CopyTicket{kResidentLane, *number};
}

CopyState CudaCopyLanes::look_at(AskedCopy& asked) {
  if (!asked.again) {
    const auto state = resident_->look(asked.number);
    if (state == ResidentCopier::State::finished) return CopyState::finished;
    if (failure_) return CopyState::failed;
    if (state == ResidentCopier::State::running) return CopyState::running;
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
  Lane& lane = least_busy();
  if (const CUresult result = start(lane, kind, to, from, bytes); result != CUDA_SUCCESS) {
    fail("copy", result);
    return *failure_;
  }
  if (lane.under_way() == 0) lane.next_check_ns = now_ns() + kCheckEveryNs;
  ++lane.started;
  mark_if_due(lane);
  return CopyTicket{static_cast<std::uint32_t>(&lane - lanes_.data()), lane.started};
}

void CudaCopyLanes::refresh(Lane& lane) {
  if (lane.under_way() == 0) return;
  if (!uses_events_) {
    lane.finished = std::atomic_ref(*lane.word).load(std::memory_order_acquire);
    return mark_if_due(lane);
  }
  const ContextGuard guard = enter();
  while (!lane.marks.empty()) {
    const CUresult result = functions_.cuEventQuery(lane.marks.front().event);
    if (result == CUDA_ERROR_NOT_READY) return;
    if (result != CUDA_SUCCESS) return fail("copy", result);
    lane.finished = lane.marks.front().number;
    free_events_.push_back(lane.marks.front().event);
    lane.marks.pop_front();
  }
  mark_if_due(lane);
}

CopyState CudaCopyLanes::look(CopyTicket ticket) {
  if (ticket.lane == kResidentLane) {
    for (auto asked = asked_.begin(); asked != asked_.end(); ++asked) {
      if (asked->number != ticket.number) continue;
      const CopyState state = look_at(*asked);
      if (state == CopyState::finished) asked_.erase(asked);
      return state;
    }
    return CopyState::finished;
  }
  Lane& lane = lanes_[ticket.lane];
  refresh(lane);
  // Numbers wrap: the distance to the last one started tells which is older.
  if (lane.started - ticket.number >= lane.under_way()) return CopyState::finished;
  return failure_ ? CopyState::failed : CopyState::running;
}

void CudaCopyLanes::check() {
  if (!asked_.empty() && !failure_ && now_ns() >= next_resident_check_ns_) {
    next_resident_check_ns_ = now_ns() + kCheckEveryNs;
    if (Outcome sound = resident_->check(); !sound) failure_ = std::move(sound).take_error();
  }
  for (Lane& lane : lanes_) {
    if (lane.under_way() == 0 || failure_) continue;
    const std::int64_t now = now_ns();
    if (now < lane.next_check_ns) continue;
    lane.next_check_ns = now + kCheckEveryNs;
    const ContextGuard guard = enter();
    const CUresult result = functions_.cuStreamQuery(lane.stream);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) fail("copy", result);
  }
}

bool CudaCopyLanes::is_idle() {
  for (Lane& lane : lanes_) {
    refresh(lane);
    if (lane.under_way() != 0) return false;
  }
  settle_asked();
  return asked_.empty();
}

const char* missing_function(const cuda::Functions& f) {
  if (f.cuStreamDestroy == nullptr) return "cuStreamDestroy";
  if (f.cuMemcpyDtoDAsync == nullptr) return "cuMemcpyDtoDAsync";
  if (f.cuEventCreate == nullptr) return "cuEventCreate";
  if (f.cuEventDestroy == nullptr) return "cuEventDestroy";
  if (f.cuEventRecord == nullptr) return "cuEventRecord";
  return f.cuEventQuery == nullptr ? "cuEventQuery" : nullptr;
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
  if (Outcome prepared = lanes->prepare(std::move(options)); !prepared) return std::move(prepared).take_error();
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
