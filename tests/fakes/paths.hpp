// SPDX-License-Identifier: Apache-2.0
// Where the build put the shared objects that play a part: absolute paths. Only paths.cpp is told them, so that every other object
// of the tests is the same in each checkout.
#pragma once

namespace gigabar::test {

extern const char* const kFakeCudaLibrary;
extern const char* const kFakeCudaWithoutLoader;
extern const char* const kFakeNvmlLibrary;
extern const char* const kFakeOldNvmlLibrary;
extern const char* const kFakeVerbsLibrary;
extern const char* const kFakeOldVerbsLibrary;
extern const char* const kFakeRdmaLibrary;
extern const char* const kFakeHcaLibrary;
extern const char* const kFakePmixLibrary;
extern const char* const kFakeUcpLibrary;

}  // namespace gigabar::test
