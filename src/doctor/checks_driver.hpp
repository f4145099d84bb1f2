// SPDX-License-Identifier: Apache-2.0
// The checks of the driver, one function each; checks_driver.cpp has their table.
#pragma once

#include "doctor/check.hpp"

namespace gigabar::doctor {

// checks_driver.cpp
void check_drv_loaded(const Patient& patient, Findings& findings);
void check_drv_flavour(const Patient& patient, Findings& findings);
void check_libs(const Patient& patient, Findings& findings);
// checks_driver_bus.cpp
void check_drv_gpus(const Patient& patient, Findings& findings);
void check_drv_grdma_topo(const Patient& patient, Findings& findings);
void check_drv_dmabuf_log(const Patient& patient, Findings& findings);
// checks_driver_modules.cpp
void check_kern_dmabuf(const Patient& patient, Findings& findings);
void check_mod_peermem(const Patient& patient, Findings& findings);
void check_mod_peermem_dmesg(const Patient& patient, Findings& findings);
void check_mod_gdrdrv(const Patient& patient, Findings& findings);
void check_mod_params(const Patient& patient, Findings& findings);
void check_imex(const Patient& patient, Findings& findings);
void check_gin(const Patient& patient, Findings& findings);

}  // namespace gigabar::doctor
