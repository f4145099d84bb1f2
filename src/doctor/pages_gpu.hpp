// SPDX-License-Identifier: Apache-2.0
// The pages of the checks of the driver and of the GPUs.
#pragma once

#include "gigabar/doctor.hpp"

namespace gigabar::doctor::page {

// pages_driver.cpp
CheckInfo drv_loaded();
CheckInfo drv_flavour();
CheckInfo drv_gpus();
CheckInfo kern_dmabuf();
CheckInfo mod_peermem();
CheckInfo mod_peermem_dmesg();
CheckInfo mod_gdrdrv();
CheckInfo mod_params();
CheckInfo drv_grdma_topo();
CheckInfo drv_dmabuf_log();
CheckInfo imex();
CheckInfo libs();
CheckInfo gin();

// pages_gpu.cpp
CheckInfo gpu_rdma();
CheckInfo gpu_persist();
CheckInfo gpu_mig();
CheckInfo gpu_ecc();
CheckInfo gpu_throttle();
CheckInfo gpu_p2p();
CheckInfo nvlink();
CheckInfo bar1_size();
CheckInfo bar1_used();

}  // namespace gigabar::doctor::page
