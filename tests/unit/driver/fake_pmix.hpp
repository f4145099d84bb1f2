// SPDX-License-Identifier: Apache-2.0
// The launcher's server of tests/fakes/pmix.cpp, for ISOLATED_TEST: the library is opened once per process.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "fakes/paths.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar::test {

class FakePmix {
 public:
  static constexpr const char* kJobSize = "pmix.job.size";

  struct Answer {
    int status = 0;
    int type = -1;  // none: it never comes
    std::uint32_t number = 0;
    std::string bytes = {};
  };
  static Answer late() { return {}; }
  static Answer refused() { return {kNoPermissions, kUint32}; }
  static Answer number(std::uint32_t value) { return {0, kUint32, value}; }
  static Answer bytes(std::string value) { return {0, kByteObject, 0, std::move(value)}; }

  static void answer(const char* key, const Answer& answer) {
    function<void(const char*, int, int, std::uint32_t, const char*)>("gigabar_fake_pmix_answer")(
        key, answer.status, answer.type, answer.number, answer.bytes.c_str());
  }
  static void fail(const char* call, bool fails) {
    function<void(const char*, int)>("gigabar_fake_pmix_fail")(call, fails ? kNoPermissions : 0);
  }

 private:
  static constexpr int kNoPermissions = -23, kUint32 = 14, kByteObject = 27;  // as pmix_common.h numbers them

  template <class Function>
  static Function* function(const char* name) {
    static void* const library = ::dlopen(kFakePmixLibrary, RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Function*>(::dlsym(library, name));
  }

  ScopedEnvironment library_{"GIGABAR_PMIX_LIBRARY", kFakePmixLibrary};
};

}  // namespace gigabar::test
