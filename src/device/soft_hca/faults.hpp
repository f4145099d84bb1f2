// SPDX-License-Identifier: Apache-2.0
// What can go wrong between a queue and its HCA, on demand.
#pragma once

#include <cstdint>

#include "gigabar/device/mlx5.hpp"

namespace gigabar::soft_hca {

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

}  // namespace gigabar::soft_hca
