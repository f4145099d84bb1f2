// SPDX-License-Identifier: Apache-2.0
// One queue of a software HCA: takes work requests from the ring, sends them over the wire, writes completions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "device/soft_hca/memory_table.hpp"
#include "device/soft_hca/wire.hpp"
#include "gigabar/device/queue.hpp"

namespace gigabar::soft_hca {

// --- What can go wrong between a queue and its HCA, on demand

// Of one queue. Everything 0: none. (A start near the end of 16 bits is the queue's first_index.)
struct Faults {
  std::uint32_t lost_doorbells = 0;     // the next so many are not noticed; a later one brings their WQEs too
  std::uint32_t lost_records = 0;       // of the next so many doorbells the record is not noticed: as if it had not come
  std::uint32_t late_record_polls = 0;  // after each doorbell the record is seen so many polls later
  std::uint32_t late_read_polls = 0;    // data of reads land so many polls behind their CQE
  std::uint64_t error_at_wqe = 0;       // this WQE of the queue, counted from 1, is not executed and fails
  device::mlx5::Syndrome error_syndrome = device::mlx5::Syndrome::retries_exceeded;
  std::uint32_t sit_out_percent = 0;  // of polls in which the queue does nothing: its operations fall behind other queues'
  bool is_stalled = false;            // nothing is done, until it is taken back
};

// How often each of them took effect.
struct FaultCounts {
  std::uint64_t lost_doorbells = 0;
  std::uint64_t lost_records = 0;
  std::uint64_t late_records = 0;  // doorbells whose record was held back
  std::uint64_t late_reads = 0;    // reads whose data came behind their CQE
  std::uint64_t errors = 0;        // without the requests that were flushed behind one
  std::uint64_t polls_sat_out = 0;
  std::uint64_t polls_stalled = 0;
};

// Memory of a queue: where this process and where the device finds it.
struct Place {
  void* cpu = nullptr;
  std::uint64_t device_address = 0;
  static Place plain(void* address) { return {address, reinterpret_cast<std::uintptr_t>(address)}; }
};

// The caller's, until the HCA is destroyed.
struct QueueMemory {
  Place ring;             // depth * 64 bytes, at 64; the device writes, the HCA reads, and clears the tags
  Place doorbell_record;  // 8 bytes, at 8; the device writes, the HCA reads
  Place doorbell;         // 8 bytes, at 8; likewise
  Place cq;               // CQEs of 64 bytes, at 64; the HCA writes, the device reads
  // Between the body of a CQE that tells of an error and its last word, and behind every CQE: for a mapping that combines writes,
  // which reach their place in no order until they are drained. Null for other memory.
  void (*drain)() = nullptr;
};

struct QueueOptions {
  std::uint32_t depth = 1024;               // WQEs, a power of two, at most device::kMaxDepth
  std::uint32_t cq_depth = 0;               // CQEs of an ordinary CQ, a power of two, at least `depth`; 0: `depth`
  bool is_collapsed = true;                 // one CQE that is written over and over
  bool confirms_reads = false;              // see device::Queue
  std::uint64_t first_index = 0;            // of the first WQE
  std::uint32_t most_late_polls = 100'000;  // for a WQE that was rung for; then it is taken as it stands, which is an error
};

struct QueueStatistics {
  std::uint64_t doorbells = 0;          // values seen in the doorbell
  std::uint64_t ignored_doorbells = 0;  // of another queue, or for WQEs that cannot be there
  std::uint64_t late_records = 0;       // polls that found the record behind the doorbell
  std::uint64_t late_requests = 0;      // polls that found a WQE behind the record
  std::uint64_t work_requests = 0;      // begun, or flushed
  std::uint64_t cqes = 0;
  std::uint64_t error_cqes = 0;
  FaultCounts faults;
};

// A work request as it was read from the ring: what the wire is told of once the local memory was found, and what only the queue
// looks at.
struct WorkRequest : WireOperation {
  Syndrome syndrome = Syndrome::none;  // local_operation: it makes no sense, and of the rest only `flags` may be good
  std::uint8_t flags = 0;
  bool is_inline = false;
  std::uint64_t local_address = 0;
  std::uint32_t local_key = 0;
  std::array<std::uint32_t, device::mlx5::kMaxInlineBytes / sizeof(std::uint32_t)> payload{};  // of an inline one
};

// Threads: one at a time.
class SendQueue {
 public:
  // Options and memory were checked; `cq_depth` is that of the CQ in any case.
  SendQueue(std::uint32_t number, const QueueOptions& options, const QueueMemory& memory, const MemoryTable& local, Wire& wire);

  // Does what can be done without waiting; whether that was anything.
  bool step();
  // Whether everything that was rung for is done, as far as the wire tells.
  bool is_idle() const;
  void set_faults(const Faults& faults) { faults_ = faults; }
  const QueueStatistics& statistics() const { return statistics_; }

 private:
  // Begun, and in the order of the ring until its end is known.
  struct Pending {
    std::uint64_t index = 0;
    WorkRequest request;
    bool is_on_wire = false;
    std::byte* landing = nullptr;  // where a read's data go at the end, when they come late
    std::vector<std::byte> late_data;
  };
  // The last that asked for a CQE and has none yet, within a step.
  struct GoodCqe {
    bool is_due = false;
    std::uint64_t index = 0;
    Opcode opcode = Opcode::nop;
    std::uint64_t bytes = 0;
  };
  struct Landing {
    std::byte* place;
    std::vector<std::byte> data;
    std::uint32_t polls_left;
  };

  bool is_held_up();
  void look_at_doorbell();
  void take_doorbell(std::uint64_t value);
  bool begin_rung();
  bool is_there();
  bool begin_one();
  bool do_at_once(WorkRequest& request);
  bool is_to_fail(std::uint64_t index) const;
  bool is_fence_open(const WorkRequest& request) const;
  Syndrome prepare(Pending& pending);
  bool collect();
  void finish(Pending& pending);
  void note_good(std::uint64_t index, const WorkRequest& request);
  void land_late_data();
  void write_last_good_cqe();
  void write_cqe(std::uint64_t index, Opcode opcode, std::uint64_t bytes, Syndrome syndrome);

  const std::uint32_t number_;
  const QueueOptions options_;
  device::mlx5::Block* const ring_;
  const std::uint32_t* const record_;
  const std::uint64_t* const doorbell_;
  device::mlx5::Cqe* const cq_;
  void (*const drain_)();
  const MemoryTable* const local_;
  Wire* const wire_;

  std::uint64_t seen_doorbell_ = 0;
  std::uint64_t rung_;      // behind the last WQE that a doorbell told of
  std::uint64_t produced_;  // and that the record has too
  std::uint64_t begun_;
  std::uint64_t cq_produced_ = 0;
  bool is_broken_ = false;               // nothing is begun any more
  bool has_failed_ = false;              // the first failure was told
  std::uint32_t open_result_count_ = 0;  // reads and atomics in pending_
  std::uint32_t record_polls_left_ = 0;
  std::uint32_t late_polls_ = 0;  // that found the next WQE not there yet
  std::uint64_t random_;
  std::deque<Pending> pending_;
  std::deque<Landing> landings_;
  GoodCqe good_cqe_;
  Faults faults_;
  QueueStatistics statistics_;
};

}  // namespace gigabar::soft_hca
