/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine is made of and what works on it, as JSON (gigabar.h). The documents' schemas are installed in
 * share/gigabar/schema; each function names its own. A text is UTF-8, ends with a line feed, and is freed with gigabar_text_free().
 * Where memory runs out while a text is made, the call fails, or some of its lists are empty. */
#ifndef GIGABAR_MACHINE_H
#define GIGABAR_MACHINE_H

#include <gigabar/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Stores which paths can be used, and which libraries and kernel interfaces: each with a code, one sentence and a remedy. Schema:
 * common.schema.json, `availability_report`.
 * `machine` names a machine that was captured, a file or a folder (see gigabar_topology_json()); null: this machine. Libraries and
 * kernel interfaces are reported for this machine only.
 * Errors: INVALID_ARGUMENT (`text` is null, no such file), NO_PERMISSION, BAD_FILE, OUT_OF_MEMORY.
 * Ordering: none. Threads: any. Cost: as gigabar_device_count(). */
GIGABAR_C_API gigabar_status gigabar_availability_json(const char* machine, char** text);

/* Stores the PCI tree, NUMA nodes, GPUs, NICs and NVLinks, the route between any two of GPUs and NICs, and the NICs of each GPU in
 * the order in which it should use them. Schema: common.schema.json, `topology`.
 * `machine` is an archive of `gigabar topology --capture`, or a folder with sys/, proc/, dev/, etc/ and boot/; null: this machine.
 * Errors: as gigabar_availability_json(); NOT_SUPPORTED (hwloc cannot be used), OUT_OF_DESCRIPTORS.
 * Ordering: none. Threads: any. Cost: tens to hundreds of ms. */
GIGABAR_C_API gigabar_status gigabar_topology_json(const char* machine, char** text);

#define GIGABAR_DOCTOR_MACHINE (UINT64_C(1) << 0)
#define GIGABAR_DOCTOR_ONLY (UINT64_C(1) << 1)
#define GIGABAR_DOCTOR_WITH_PROBES (UINT64_C(1) << 2)
#define GIGABAR_DOCTOR_DEADLINE_NS (UINT64_C(1) << 3)
typedef struct gigabar_doctor_options {
  uint64_t struct_size;
  uint64_t field_mask;
  const char* machine; /* as of gigabar_topology_json(); default: this machine */
  const char* only;    /* ids of checks, or groups by their first part, separated by commas: "pci,iommu.mode"; default: all */
  int64_t deadline_ns; /* checks that have not begun by then are UNKNOWN; above 0; default 30 s */
  int32_t with_probes; /* 0: only read; register, map and copy nothing; default 1 */
} gigabar_doctor_options;

/* Runs the checks of everything that decides the path of a transfer and its speed, and stores the findings: verdict, readings,
 * reason, remedy. A FAIL is a finding, not an error of the call. Nothing of the machine is changed. `options` may be null. Schema:
 * common.schema.json, `doctor_report`.
 * Errors: INVALID_ARGUMENT (`text` is null, an option; `only` names no check, and the record lists similar ones), NO_PERMISSION,
 * BAD_FILE, OUT_OF_MEMORY.
 * Ordering: none. Threads: any; one at a time in a process when probes run. Cost: below a second without probes, seconds with
 * them. */
GIGABAR_C_API gigabar_status gigabar_doctor_json(const gigabar_doctor_options* options, char** text);

#ifdef __cplusplus
}
#endif

#endif
