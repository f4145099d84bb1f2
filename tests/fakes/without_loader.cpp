// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 that is new enough by its version and has no cuGetProcAddress.
extern "C" __attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  *version = 12000;
  return 0;
}
