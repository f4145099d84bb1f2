// SPDX-License-Identifier: Apache-2.0
#include "fakes/paths.hpp"

namespace gigabar::test {

// One that was not built is defined as a path where nothing is.
const char* const kFakeCudaLibrary = GIGABAR_FAKE_CUDA;
const char* const kFakeCudaWithoutLoader = GIGABAR_FAKE_CUDA_WITHOUT_LOADER;
const char* const kFakeNvmlLibrary = GIGABAR_FAKE_NVML;
const char* const kFakeOldNvmlLibrary = GIGABAR_FAKE_NVML_OLD;
const char* const kFakeVerbsLibrary = GIGABAR_FAKE_VERBS;
const char* const kFakeOldVerbsLibrary = GIGABAR_FAKE_VERBS_OLD;
const char* const kFakeRdmaLibrary = GIGABAR_FAKE_RDMA;
const char* const kFakeHcaLibrary = GIGABAR_FAKE_HCA;
const char* const kFakePmixLibrary = GIGABAR_FAKE_PMIX;
const char* const kFakeUcpLibrary = GIGABAR_FAKE_UCP;

}  // namespace gigabar::test
