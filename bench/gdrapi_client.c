// SPDX-License-Identifier: Apache-2.0
// A program that uses GPU memory as UCX's gdr_copy does: it pins whole GPU pages, maps them, and stores and loads through the
// mapping. It is built against an installed gdrapi.h and libgdrapi.so, as a client of GDRCopy is, and writes JSON to standard
// output. Times are medians of single calls in microseconds. Every size is checked against what the CUDA driver reads.
//
//   cc -O2 bench/gdrapi_client.c -o client -lgdrapi -lcuda
#define _GNU_SOURCE
#include <cuda.h>
#include <gdrapi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "samples.h"

enum { kCalls = 5000, kWarmUp = 500, kRegion = 1 << 20 };
static const size_t sizes[] = {8, 64, 1024, 4096, 8192};

static void require(int is_right, const char* what) {
  if (is_right) return;
  fprintf(stderr, "gdrapi_client: %s failed\n", what);
  exit(1);
}

static double time_calls(gdr_mh_t handle, char* mapped, char* host, size_t bytes, int is_store) {
  static double samples[kCalls];
  for (int i = -kWarmUp; i < kCalls; ++i) {
    const double begin = now_us();
    const int code =
        is_store ? gdr_copy_to_mapping(handle, mapped, host, bytes) : gdr_copy_from_mapping(handle, host, mapped, bytes);
    if (i >= 0) samples[i] = now_us() - begin;
    require(code == 0, is_store ? "gdr_copy_to_mapping" : "gdr_copy_from_mapping");
  }
  return median_of(samples, kCalls);
}

int main(void) {
  CUdevice device;
  CUcontext context;
  CUdeviceptr memory;
  char name[128];
  int driver = 0, major = 0, minor = 0;
  require(cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS, "opening the GPU");
  require(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS,
          "making a context");
  require(cuDeviceGetName(name, sizeof name, device) == CUDA_SUCCESS && cuDriverGetVersion(&driver) == CUDA_SUCCESS,
          "naming the GPU");
  require(cuMemAlloc(&memory, kRegion + GPU_PAGE_SIZE) == CUDA_SUCCESS, "cuMemAlloc");
  const uint64_t begin = (memory + GPU_PAGE_SIZE - 1) & ~(uint64_t)(GPU_PAGE_SIZE - 1);

  gdr_t gdr = gdr_open();
  require(gdr != NULL, "gdr_open");
  gdr_runtime_get_version(&major, &minor);
  gdr_mh_t handle;
  void* bar = NULL;
  gdr_info_t info;
  require(gdr_pin_buffer(gdr, begin, kRegion, 0, 0, &handle) == 0, "gdr_pin_buffer");
  require(gdr_map(gdr, handle, &bar, kRegion) == 0, "gdr_map");
  require(gdr_get_info(gdr, handle, &info) == 0, "gdr_get_info");
  char* const mapped = (char*)bar + (begin - info.va);

  struct utsname machine;
  uname(&machine);
  time_t now = time(NULL);
  char date[32];
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
  printf("{\n \"schema\": 1,\n \"tool\": \"gdrapi_client\",\n \"command\": [\"bench/gdrapi_client.c\"],\n \"date\": \"%s\",\n",
         date);
  printf(" \"machine\": {\"kernel\": \"%s\"},\n \"device\": {\"name\": \"%s\", \"cuda_driver\": %d},\n", machine.release, name,
         driver);
  printf(" \"library\": {\"version\": \"%d.%d\", \"write_combining\": %d},\n", major, minor, (int)info.wc_mapping);
  printf(" \"units\": {\"*_us\": \"microseconds, median of %d single calls\"},\n \"results\": [\n", kCalls);
  static char host[8192], seen[8192];
  const size_t count = sizeof sizes / sizeof *sizes;
  for (size_t i = 0; i < count; ++i) {
    const size_t bytes = sizes[i];
    for (size_t k = 0; k < bytes; ++k) host[k] = (char)(k * 31 + i + 1);
    const double store_us = time_calls(handle, mapped, host, bytes, 1);
    require(cuMemcpyDtoH(seen, begin, bytes) == CUDA_SUCCESS && memcmp(seen, host, bytes) == 0, "the check of what was stored");
    memset(seen, 0, bytes);
    const double load_us = time_calls(handle, mapped, seen, bytes, 0);
    require(memcmp(seen, host, bytes) == 0, "the check of what was loaded");
    printf("  {\"bytes\": %zu, \"store_us\": %.3f, \"load_us\": %.3f}%s\n", bytes, store_us, load_us, i + 1 < count ? "," : "");
  }
  printf(" ]\n}\n");
  require(gdr_unmap(gdr, handle, bar, kRegion) == 0 && gdr_unpin_buffer(gdr, handle) == 0 && gdr_close(gdr) == 0, "the end");
  cuMemFree(memory);
  cuDevicePrimaryCtxRelease(device);
  return 0;
}
