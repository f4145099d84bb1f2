/* SPDX-License-Identifier: Apache-2.0 */
/* A program as GDRCopy's users write it: C, gdrapi.h and the shared library, nothing else of Gigabar. */
#include "consumer.h"

#include <gdrapi.h>
#include <string.h>

#define CHECK(condition)                 \
  do {                                   \
    if (!(condition)) return (__LINE__); \
  } while (0)

int consumer_flow(unsigned long d_ptr, size_t bytes, const unsigned char* source, unsigned char* back) {
  gdr_t g = gdr_open();
  gdr_mh_t handle;
  gdr_info_t info;
  void* va = NULL;
  char* place;
  const char* name = NULL;
  int major = 0, minor = 0, value = 0;

  CHECK(g != NULL);
  CHECK(gdr_driver_get_version(g, &major, &minor) == 0);
  CHECK(major == GDR_API_MAJOR_VERSION && minor == GDR_API_MINOR_VERSION);
  CHECK(gdr_get_attribute(g, GDR_ATTR_USE_PERSISTENT_MAPPING, &value) == 0 && value == 1);
  CHECK(gdr_pin_buffer(g, d_ptr, bytes, 0, 0, &handle) == 0);
  CHECK(gdr_map(g, handle, &va, bytes) == 0);
  CHECK(gdr_get_info(g, handle, &info) == 0);
  CHECK(info.mapped == 1 && info.wc_mapping == 1 && info.mapping_type == GDR_MAPPING_TYPE_WC);
  CHECK(gdr_get_mapping_type_string(info.mapping_type, &name) == 0 && strcmp(name, "Write Combining") == 0);
  place = (char*)va + (d_ptr - info.va);
  CHECK(gdr_copy_to_mapping(handle, place, source, bytes) == 0);
  CHECK(gdr_copy_from_mapping(handle, back, place, bytes) == 0);
  CHECK(memcmp(source, place, bytes) == 0);
  CHECK(gdr_unmap(g, handle, va, bytes) == 0);
  CHECK(gdr_copy_from_mapping(handle, back, place, bytes) != 0);
  CHECK(gdr_unpin_buffer(g, handle) == 0);
  CHECK(gdr_close(g) == 0);
  return 0;
}

size_t consumer_info_bytes(void) { return sizeof(gdr_info_t); }
