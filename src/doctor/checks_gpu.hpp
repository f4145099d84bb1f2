// SPDX-License-Identifier: Apache-2.0
// The checks of the GPUs, one function each; checks_gpu.cpp has their table.
#pragma once

#include "doctor/check.hpp"

namespace gigabar::doctor {

// checks_gpu.cpp
void check_gpu_rdma(const Patient& patient, Findings& findings);
void check_gpu_persist(const Patient& patient, Findings& findings);
void check_gpu_mig(const Patient& patient, Findings& findings);
void check_gpu_ecc(const Patient& patient, Findings& findings);
void check_gpu_throttle(const Patient& patient, Findings& findings);
void check_bar1_size(const Patient& patient, Findings& findings);
void check_bar1_used(const Patient& patient, Findings& findings);
// checks_gpu_peers.cpp
void check_gpu_p2p(const Patient& patient, Findings& findings);
void check_nvlink(const Patient& patient, Findings& findings);

}  // namespace gigabar::doctor
