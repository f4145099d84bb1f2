// SPDX-License-Identifier: Apache-2.0
#include "platform/kernel_memcpy.hpp"

#include <gtest/gtest.h>

#include <string>

namespace gigabar {
namespace {

std::string cpuinfo(const std::string& flags) {
  return "processor\t: 0\nmodel name\t: One\nflags\t\t: fpu " + flags + " lm\nbugs\t\t: erms\n\nprocessor\t: 1\n";
}

TEST(KernelMemcpy, StoresAWordOnceOnlyWhereItIsRepMovsq) {
  EXPECT_TRUE(kernel_stores_words_once(cpuinfo("rep_good"), "6.1.0-56-amd64"));
  EXPECT_TRUE(kernel_stores_words_once(cpuinfo("rep_good fsrm"), "5.14.0"));
  EXPECT_TRUE(kernel_stores_words_once(cpuinfo("rep_good"), "6.3"));
  EXPECT_FALSE(kernel_stores_words_once(cpuinfo("rep_good erms"), "6.1.0"));
  EXPECT_FALSE(kernel_stores_words_once(cpuinfo("rep_goodness"), "6.1.0"));
  EXPECT_FALSE(kernel_stores_words_once(cpuinfo(""), "6.1.0"));
  for (const char* const later : {"6.4.0", "6.12.3", "7.0", "10.1", "", "6", "6.", "six.one"}) {
    EXPECT_FALSE(kernel_stores_words_once(cpuinfo("rep_good"), later)) << later;
  }
}

TEST(KernelMemcpy, OtherProcessorsHaveNoSuchFlags) {
  EXPECT_FALSE(kernel_stores_words_once("processor\t: 0\nFeatures\t: fp asimd\n", "6.1.0"));
  EXPECT_FALSE(kernel_stores_words_once("", "6.1.0"));
}

}  // namespace
}  // namespace gigabar
