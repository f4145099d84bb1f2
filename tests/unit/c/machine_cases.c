/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "unit/c/check.h"

/* A text that is one JSON object, with `part` in it. */
static void check_text(char* text, const char* part) {
  CHECK(text != NULL && text[0] == '{' && strcmp(text + strlen(text) - 2, "}\n") == 0);
  CHECK(strstr(text, part) != NULL);
  CHECK_OK(gigabar_text_free(text));
}

void case_availability(void) {
  char* text = NULL;
  CHECK_OK(gigabar_availability_json(NULL, &text));
  CHECK(strstr(text, "\"name\": \"libcuda\"") != NULL);
  check_text(text, "\"path\": \"mapping.rm\"");
  CHECK_OK(gigabar_availability_json(GIGABAR_TEST_MACHINE, &text));
  check_text(text, "\"drivers\": []");
}

void case_topology(void) {
  char* text = NULL;
  CHECK_OK(gigabar_topology_json(NULL, &text));
  check_text(text, "\"what\": \"topology\"");
  CHECK_OK(gigabar_topology_json(GIGABAR_TEST_MACHINE, &text));
  CHECK(strstr(text, "\"could_not_be_found_out\"") != NULL);
  check_text(text, "NVIDIA H200");
}

void case_doctor(void) {
  char* text = NULL;
  gigabar_doctor_options options = {
      .struct_size = sizeof options,
      .field_mask = GIGABAR_DOCTOR_MACHINE | GIGABAR_DOCTOR_ONLY | GIGABAR_DOCTOR_WITH_PROBES | GIGABAR_DOCTOR_DEADLINE_NS,
      .machine = GIGABAR_TEST_MACHINE,
      .only = "pci,iommu",
      .with_probes = 0,
      .deadline_ns = INT64_C(20000000000)};
  CHECK_OK(gigabar_doctor_json(&options, &text));
  CHECK(strstr(text, "\"check\": \"pci.acs\"") != NULL && strstr(text, "\"check\": \"rdma.") == NULL);
  check_text(text, "\"summary\": {\"checks\": ");
  options.field_mask = GIGABAR_DOCTOR_ONLY | GIGABAR_DOCTOR_WITH_PROBES;
  options.only = "pci.acs";
  CHECK_OK(gigabar_doctor_json(&options, &text));
  check_text(text, "\"checks\": 1,");
  /* No deadline is too long for its checks to begin. */
  options.field_mask |= GIGABAR_DOCTOR_MACHINE | GIGABAR_DOCTOR_DEADLINE_NS;
  options.deadline_ns = INT64_MAX;
  CHECK_OK(gigabar_doctor_json(&options, &text));
  CHECK(strstr(text, "was over before this check") == NULL);
  check_text(text, "\"checks\": 1,");
}

void case_machine_refusals(void) {
  char* text = NULL;
  gigabar_doctor_options options = {.struct_size = sizeof options, .field_mask = GIGABAR_DOCTOR_ONLY, .only = "no.such.check"};
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "text", gigabar_availability_json(NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "text", gigabar_topology_json(NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "text", gigabar_doctor_json(NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "/nonexistent", gigabar_availability_json("/nonexistent", &text));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "/nonexistent", gigabar_topology_json("/nonexistent", &text));
  CHECK_REFUSED(GIGABAR_BAD_FILE, "", gigabar_topology_json("/proc/self/exe", &text));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "no.such.check", gigabar_doctor_json(&options, &text));
  options.only = NULL;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->only", gigabar_doctor_json(&options, &text));
  options.field_mask = GIGABAR_DOCTOR_MACHINE;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->machine", gigabar_doctor_json(&options, &text));
  options.field_mask = GIGABAR_DOCTOR_DEADLINE_NS;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->deadline_ns", gigabar_doctor_json(&options, &text));
  options.field_mask = GIGABAR_DOCTOR_DEADLINE_NS * 2;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->field_mask", gigabar_doctor_json(&options, &text));
  options.struct_size = 8;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->struct_size", gigabar_doctor_json(&options, &text));
  CHECK(text == NULL);
}
