// SPDX-License-Identifier: Apache-2.0
// What else uses a path, as NVML tells it.
#include <gtest/gtest.h>

#include <string>

#include "fakes/paths.hpp"
#include "preflight/preflight.hpp"
#include "preflight_node.hpp"
#include "support/isolated.hpp"
#include "support/scoped_environment.hpp"

namespace gigabar::tool::preflight {
namespace {

using gigabar::test::ScopedEnvironment;
using test::Node;

constexpr int kHost = StreamPlace::kHost;

Path path_over(const std::string& link, double gb_per_s, int source, int destination) {
  Path path;
  path.source = source;
  path.destination = destination;
  path.link = {link, gb_per_s, ""};
  return path;
}

ISOLATED_TEST(PreflightLoad, IsReadFromNvml) {
  const ScopedEnvironment library("GIGABAR_NVML_LIBRARY", gigabar::test::kFakeNvmlLibrary);
  const ScopedEnvironment gpus("GIGABAR_FAKE_NVML_GPUS",
                               "0000:10:00.0 traffic=23100 process=1; 0000:11:00.0 traffic=10; 0000:12:00.0 carried=100000000");
  const Node node(3);
  const Path to_first = path_over("PCIe 5.0 x16", 63, kHost, 0), to_second = path_over("PCIe 5.0 x16", 63, kHost, 1);
  const std::string load = load_of(to_first, node.devices);
  EXPECT_TRUE(load.starts_with("23.1 GB/s cross the PCIe link of GPU 0000:10:00.0 (process 1")) << load;
  EXPECT_EQ(load_of(to_second, node.devices), "");
  EXPECT_EQ(load_of(path_over("PCIe 5.0 x16", 63, 1, 2), node.devices), "") << "NVML does not tell";
  EXPECT_NE(load_of(path_over("NVLink 18 x 26.6 GB/s", 478, 0, 2), node.devices).find("cross the NVLinks of GPU 0000:12:00.0"),
            std::string::npos);
  EXPECT_EQ(load_of(path_over("NVLink 18 x 26.6 GB/s", 478, 0, 1), node.devices), "");
}

}  // namespace
}  // namespace gigabar::tool::preflight
