/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "unit/c/check.h"

enum { kBytes = 65536 };

/* Memory of a stand-in and its mapping. */
typedef struct Mapped {
  gigabar_memory* memory;
  unsigned char* content; /* the memory itself: on a stand-in the CPU can look */
  gigabar_mapping* mapping;
} Mapped;

static Mapped mapped(void) {
  Mapped it = {NULL, NULL, NULL};
  void* address = NULL;
  CHECK_OK(gigabar_memory_allocate(0, kBytes, GIGABAR_ALLOCATOR_CUDA_MALLOC, &it.memory));
  CHECK_OK(gigabar_memory_address(it.memory, &address));
  it.content = address;
  CHECK_OK(gigabar_map(address, kBytes, NULL, &it.mapping));
  return it;
}

static void unmapped(Mapped it) {
  CHECK_OK(gigabar_unmap(it.mapping));
  CHECK_OK(gigabar_memory_free(it.memory));
}

void case_devices(void) {
  int32_t count = 0;
  CHECK_OK(gigabar_device_count(&count));
  CHECK(count == 2);
  gigabar_device_info info = {.struct_size = sizeof info, .field_mask = GIGABAR_DEVICE_ALL};
  CHECK_OK(gigabar_device_describe(1, &info));
  CHECK((info.field_mask & GIGABAR_DEVICE_NAME) != 0 && strstr(info.name, "stand-in") != NULL);
  CHECK((info.field_mask & GIGABAR_DEVICE_IS_STAND_IN) != 0 && info.is_stand_in == 1);
  CHECK((info.field_mask & GIGABAR_DEVICE_MEMORY_BYTES) != 0 && info.memory_bytes > 0);
  /* What a stand-in has not is not claimed. */
  CHECK((info.field_mask & (GIGABAR_DEVICE_UUID | GIGABAR_DEVICE_PCI_ADDRESS | GIGABAR_DEVICE_COMPUTE_CAPABILITY)) == 0);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "count", gigabar_device_count(NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "info", gigabar_device_describe(0, NULL));
  info.field_mask = GIGABAR_DEVICE_ALL;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "device", gigabar_device_describe(2, &info));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "device", gigabar_device_describe(-1, &info));
  info.field_mask = GIGABAR_DEVICE_ALL * 2;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "info->field_mask", gigabar_device_describe(0, &info));
  info.struct_size = 15;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "info->struct_size", gigabar_device_describe(0, &info));
}

void case_memory(void) {
  gigabar_memory* memory = NULL;
  void* address = NULL;
  CHECK_OK(gigabar_memory_allocate(1, 4096, GIGABAR_ALLOCATOR_VMM, &memory));
  CHECK_OK(gigabar_memory_address(memory, &address));
  CHECK(address != NULL);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "address", gigabar_memory_address(memory, NULL));
  CHECK_OK(gigabar_memory_free(memory));
  memory = NULL;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "memory", gigabar_memory_allocate(0, 4096, 0, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "allocator", gigabar_memory_allocate(0, 4096, 2, &memory));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "allocator", gigabar_memory_allocate(0, 4096, -1, &memory));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "device", gigabar_memory_allocate(2, 4096, 0, &memory));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_memory_allocate(0, 0, 0, &memory));
  CHECK(memory == NULL);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "memory", gigabar_memory_free(NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "memory", gigabar_memory_address(NULL, &address));
}

void case_map_and_describe(void) {
  const Mapped it = mapped();
  gigabar_mapping_info info = {.struct_size = sizeof info, .field_mask = GIGABAR_MAPPING_ALL};
  CHECK_OK(gigabar_mapping_describe(it.mapping, &info));
  CHECK(info.field_mask == GIGABAR_MAPPING_ALL);
  CHECK(info.address == it.content && info.bytes == kBytes && info.device_address == (uint64_t)(uintptr_t)it.content);
  CHECK(info.type == GIGABAR_CACHED && info.backend == GIGABAR_BACKEND_HOST && info.device == 0 && info.is_stand_in == 1);
  CHECK(info.is_shared == 0 || info.is_shared == 1);
  char* text = NULL;
  CHECK_OK(gigabar_mapping_json(it.mapping, &text));
  CHECK(text != NULL && strstr(text, "\"backend\": \"host\"") != NULL && strstr(text, "\"type\": \"cached\"") != NULL);
  CHECK_OK(gigabar_text_free(text));
  unmapped(it);
  size_t released = 12345;
  CHECK_OK(gigabar_mapping_trim(0, &released));
  CHECK(released != 12345);
}

void case_map_options(void) {
  const Mapped it = mapped();
  gigabar_mapping* other = NULL;
  gigabar_map_options options = {.struct_size = sizeof options,
                                 .field_mask = GIGABAR_MAP_BACKEND | GIGABAR_MAP_VERIFICATION | GIGABAR_MAP_INHERIT_ON_FORK,
                                 .backend = GIGABAR_BACKEND_HOST,
                                 .verification = GIGABAR_VERIFY_NONCE,
                                 .inherit_on_fork = 1};
  CHECK_OK(gigabar_map(it.content + 1, 100, &options, &other));
  CHECK_OK(gigabar_unmap(other));
  other = NULL;
  options.backend = GIGABAR_BACKEND_RM; /* required, and not possible for a stand-in */
  CHECK(gigabar_map(it.content, 100, &options, &other) != GIGABAR_OK);
  CHECK(other == NULL);
  /* Members whose bit is not set do not count, whatever they are. */
  options.backend = 77;
  options.verification = 77;
  options.field_mask = 0;
  CHECK_OK(gigabar_map(it.content, 100, &options, &other));
  CHECK_OK(gigabar_unmap(other));
  other = NULL;
  options.field_mask = GIGABAR_MAP_BACKEND;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->backend", gigabar_map(it.content, 100, &options, &other));
  options.field_mask = GIGABAR_MAP_VERIFICATION;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->verification", gigabar_map(it.content, 100, &options, &other));
  options.field_mask = GIGABAR_MAP_INHERIT_ON_FORK * 2;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->field_mask", gigabar_map(it.content, 100, &options, &other));
  options.struct_size = 0;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "options->struct_size", gigabar_map(it.content, 100, &options, &other));
  CHECK(other == NULL);
  unmapped(it);
}

void case_map_refusals(void) {
  const Mapped it = mapped();
  gigabar_mapping* other = NULL;
  gigabar_mapping_info info = {.struct_size = sizeof info, .field_mask = GIGABAR_MAPPING_ALL};
  char* text = NULL;
  static const char pageable[64];
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_map(it.content, kBytes, NULL, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_map(NULL, kBytes, NULL, &other));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_map(it.content, 0, NULL, &other));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_map(it.content, (size_t)kBytes * 1024, NULL, &other));
  CHECK_REFUSED(GIGABAR_NOT_SUPPORTED, "", gigabar_map(pageable, sizeof pageable, NULL, &other));
  CHECK(other == NULL);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_unmap(NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_mapping_describe(NULL, &info));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "info", gigabar_mapping_describe(it.mapping, NULL));
  info.field_mask = GIGABAR_MAPPING_ALL * 2;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "info->field_mask", gigabar_mapping_describe(it.mapping, &info));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_mapping_json(NULL, &text));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "text", gigabar_mapping_json(it.mapping, NULL));
  unmapped(it);
}

void case_copies(void) {
  const Mapped it = mapped();
  const char sent[] = "hello, stand-in";
  char received[sizeof sent] = "";
  CHECK_OK(gigabar_copy_to(it.mapping, 100, sent, sizeof sent));
  CHECK(memcmp(it.content + 100, sent, sizeof sent) == 0);
  CHECK_OK(gigabar_copy_from(it.mapping, 100, received, sizeof received));
  CHECK(memcmp(received, sent, sizeof sent) == 0);
  CHECK_OK(gigabar_fill(it.mapping, 200, 0xab, 3));
  CHECK(it.content[199] == 0 && it.content[200] == 0xab && it.content[202] == 0xab && it.content[203] == 0);
  CHECK_OK(gigabar_fence());
  CHECK_OK(gigabar_copy_to(it.mapping, kBytes, NULL, 0));
  CHECK_OK(gigabar_copy_from(it.mapping, 0, NULL, 0));
  unmapped(it);
}

void case_copies_by_method(void) {
  const Mapped it = mapped();
  static unsigned char sent[kBytes], received[kBytes];
  for (int i = 0; i < kBytes; ++i) sent[i] = (unsigned char)(i * 7 + i / 256);
  for (gigabar_copy_method method = GIGABAR_COPY_CHOOSE; method <= GIGABAR_COPY_ENGINE; ++method) {
    gigabar_copy_method used = 99;
    memset(it.content, 0, kBytes);
    memset(received, 0, sizeof received);
    CHECK_OK(gigabar_copy_to_by(it.mapping, 0, sent, kBytes, method, &used));
    CHECK(method == GIGABAR_COPY_CHOOSE ? used >= 0 && used <= GIGABAR_COPY_ENGINE : used == method);
    CHECK(memcmp(it.content, sent, kBytes) == 0);
    CHECK_OK(gigabar_copy_from_by(it.mapping, 0, received, kBytes, method, &used));
    CHECK(method == GIGABAR_COPY_CHOOSE ? used >= 0 && used <= GIGABAR_COPY_ENGINE : used == method);
    CHECK(memcmp(received, sent, kBytes) == 0);
  }
  CHECK_OK(gigabar_copy_to_by(it.mapping, 0, sent, 1, GIGABAR_COPY_CHOOSE, NULL));
  CHECK_OK(gigabar_copy_from_by(it.mapping, 0, received, 1, GIGABAR_COPY_CHOOSE, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "method", gigabar_copy_to_by(it.mapping, 0, sent, 1, 4, NULL));
  CHECK_REFUSED(GIGABAR_NOT_SUPPORTED, "readback", gigabar_copy_to_by(it.mapping, 0, sent, 1, GIGABAR_COPY_READBACK, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "method", gigabar_copy_from_by(it.mapping, 0, received, 1, -2, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_copy_to_by(NULL, 0, sent, 1, 0, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_copy_from_by(NULL, 0, received, 1, 0, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_copy_to_by(it.mapping, 1, sent, kBytes, GIGABAR_COPY_ENGINE, NULL));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_copy_from_by(it.mapping, 1, received, kBytes, GIGABAR_COPY_CHOOSE, NULL));
  unmapped(it);
}

void case_copy_refusals(void) {
  const Mapped it = mapped();
  char byte = 1;
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_copy_to(NULL, 0, &byte, 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_copy_from(NULL, 0, &byte, 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_fill(NULL, 0, 0, 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "null", gigabar_copy_to(it.mapping, 0, NULL, 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "null", gigabar_copy_from(it.mapping, 0, NULL, 1));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_copy_to(it.mapping, kBytes, &byte, 1));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_copy_from(it.mapping, SIZE_MAX, &byte, 1));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_fill(it.mapping, kBytes - 1, 0, 2));
  CHECK(it.content[kBytes - 1] == 0);
  unmapped(it);
}

void case_publish(void) {
  const Mapped it = mapped();
  const char data[] = "data before flag";
  uint32_t flag32 = 0;
  uint64_t flag64 = 0;
  CHECK_OK(gigabar_publish32(it.mapping, 0, data, sizeof data, 64, 7));
  memcpy(&flag32, it.content + 64, sizeof flag32);
  CHECK(memcmp(it.content, data, sizeof data) == 0 && flag32 == 7);
  CHECK_OK(gigabar_publish64(it.mapping, 128, data, sizeof data, 256, UINT64_C(1) << 40));
  memcpy(&flag64, it.content + 256, sizeof flag64);
  CHECK(memcmp(it.content + 128, data, sizeof data) == 0 && flag64 == UINT64_C(1) << 40);
  CHECK_OK(gigabar_publish32(it.mapping, 0, NULL, 0, 64, 8)); /* the flag alone */
  memcpy(&flag32, it.content + 64, sizeof flag32);
  CHECK(flag32 == 8);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_publish32(NULL, 0, data, 1, 64, 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_publish64(NULL, 0, data, 1, 64, 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_publish32(it.mapping, 0, data, 1, 66, 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "", gigabar_publish64(it.mapping, 0, data, 1, 68, 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "null", gigabar_publish32(it.mapping, 0, NULL, 1, 64, 1));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_publish32(it.mapping, kBytes, data, 1, 64, 1));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "flag", gigabar_publish64(it.mapping, 0, "x", 1, kBytes, 1));
  CHECK(it.content[0] == 'd'); /* nothing was stored */
  unmapped(it);
}

void case_batch(void) {
  const Mapped it = mapped();
  gigabar_batch* batch = NULL;
  CHECK_OK(gigabar_batch_open(it.mapping, &batch));
  CHECK_OK(gigabar_batch_copy_to(batch, 0, "ab", 2));
  CHECK_OK(gigabar_batch_copy_to(batch, 2, "cd", 2));
  CHECK_REFUSED(GIGABAR_OUT_OF_RANGE, "", gigabar_batch_copy_to(batch, kBytes, "e", 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "null", gigabar_batch_copy_to(batch, 0, NULL, 1));
  CHECK_OK(gigabar_batch_commit(batch));
  CHECK(memcmp(it.content, "abcd", 4) == 0);
  CHECK_OK(gigabar_batch_copy_to(batch, 4, "ef", 2));
  CHECK_OK(gigabar_batch_close(batch));
  CHECK(memcmp(it.content, "abcdef", 6) == 0);
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "mapping", gigabar_batch_open(NULL, &batch));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "batch", gigabar_batch_open(it.mapping, NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "batch", gigabar_batch_copy_to(NULL, 0, "a", 1));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "batch", gigabar_batch_commit(NULL));
  CHECK_REFUSED(GIGABAR_INVALID_ARGUMENT, "batch", gigabar_batch_close(NULL));
  unmapped(it);
}
