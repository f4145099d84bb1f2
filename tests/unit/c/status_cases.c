/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "unit/c/check.h"
#include "unit/c/thread.h"

static gigabar_error all_of_an_error(void) {
  gigabar_error error = {.struct_size = sizeof error, .field_mask = GIGABAR_ERROR_ALL};
  CHECK(gigabar_last_error(&error) == GIGABAR_OK);
  CHECK(error.field_mask == GIGABAR_ERROR_ALL);
  return error;
}

void case_names_and_version(void) {
  CHECK(strcmp(gigabar_status_name(GIGABAR_OK), "ok") == 0);
  CHECK(strcmp(gigabar_status_name(GIGABAR_OUT_OF_BAR1), "out_of_bar1") == 0);
  CHECK(strcmp(gigabar_status_name(GIGABAR_FOREIGN_PROCESS), "foreign_process") == 0);
  CHECK(strcmp(gigabar_status_name(16), "unknown") == 0);
  CHECK(strcmp(gigabar_status_name(-1), "unknown") == 0);
  CHECK(strcmp(gigabar_status_name(256), "unknown") == 0);
  CHECK(strcmp(gigabar_version(), "0.1.0") == 0);
}

void case_error_record(void) {
  gigabar_mapping* mapping = NULL;
  gigabar_error error;
  CHECK(gigabar_map(NULL, 1, NULL, &mapping) == GIGABAR_INVALID_ARGUMENT);
  error = all_of_an_error();
  CHECK(error.status == GIGABAR_INVALID_ARGUMENT);
  CHECK(strcmp(error.operation, "map") == 0);
  CHECK(error.object[0] != '\0' && error.cause[0] != '\0');
  CHECK(error.native_domain == GIGABAR_NATIVE_NONE && error.native_code == 0);
  CHECK(strcmp(error.native_name, "") == 0 && error.remedy != NULL && error.check != NULL);
  CHECK(strstr(error.message, error.cause) != NULL);
  CHECK(error.message == gigabar_last_error_message());
  /* A call that succeeds leaves it. */
  CHECK_OK(gigabar_fence());
  CHECK_OK(gigabar_mapping_trim(0, NULL));
  CHECK(all_of_an_error().status == GIGABAR_INVALID_ARGUMENT);
  /* The next failure replaces it, and has a native code where the system gave one. */
  char* text = NULL;
  CHECK(gigabar_topology_json("/nonexistent/machine", &text) == GIGABAR_INVALID_ARGUMENT);
  error = all_of_an_error();
  CHECK(strstr(error.message, "/nonexistent/machine") != NULL);
  CHECK(error.native_domain == GIGABAR_NATIVE_ERRNO && strcmp(error.native_name, "ENOENT") == 0 && error.native_code == 2);
}

void case_error_record_is_refused(void) {
  gigabar_error error = {.struct_size = sizeof error, .field_mask = GIGABAR_ERROR_ALL * 2 + 1};
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "text", gigabar_text_free(NULL));
  CHECK(gigabar_last_error(NULL) == GIGABAR_INVALID_ARGUMENT);
  CHECK(gigabar_last_error(&error) == GIGABAR_INVALID_ARGUMENT);
  error.struct_size = 8;
  CHECK(gigabar_last_error(&error) == GIGABAR_INVALID_ARGUMENT);
  CHECK(strstr(gigabar_last_error_message(), "gigabar_text_free") != NULL); /* the record stays */
}

static void fail_in_another(void) {
  CHECK(strcmp(gigabar_last_error_message(), "ok") == 0);
  CHECK(all_of_an_error().status == GIGABAR_OK);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "count", gigabar_device_count(NULL));
}

void case_error_record_is_of_its_thread(void) {
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "text", gigabar_text_free(NULL));
  run_in_thread(fail_in_another);
  CHECK(strstr(gigabar_last_error_message(), "gigabar_text_free") != NULL);
}
