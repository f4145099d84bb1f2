// SPDX-License-Identifier: Apache-2.0
// Who wins: the option, the variable, what was tuned, the default; and what happens to a file that cannot be used.
#include <gtest/gtest.h>

#include <fstream>

#include "fabric/settings.hpp"
#include "support/expect_log.hpp"
#include "support/scoped_environment.hpp"
#include "support/temporary_folder.hpp"
#include "unit/fabric/tuning/pairs.hpp"

namespace gigabar::fabric {
namespace {

class TunedSettings : public testing::Test {
 protected:
  // What this process is: no other machine's file is taken.
  void store(TunedPair pair) const {
    const Result<void> stored = store_tuned(path_, machine_fingerprint(), pair);
    ASSERT_TRUE(stored) << stored.message();
  }
  TunedPair own_pair() const {
    TunedPair pair = some_pair(tuned_device_name(0));
    pair.key.rails = {"mlx5_0/1"};
    return pair;
  }
  Settings opened(const FabricOptions& options = {}) const {
    auto settings = find_settings(options);
    EXPECT_TRUE(settings.is_ok());
    apply_tuning(*settings, 0, {{TransportKind::local, {}}, {TransportKind::verbs, {"mlx5_0/1"}}});
    return std::move(*settings);
  }
  static std::string source_of(const Settings& settings, const std::string& name) {
    std::string source = "none";
    for (const Setting& setting : settings.table) {
      if (setting.name == name) source = setting.value + " by " + setting.source;
    }
    return source;
  }
  static const Limits& far(const Settings& settings) { return settings.limits(TransportKind::verbs, false); }

  const test::TemporaryFolder temporary_;
  const std::string path_ = temporary_.path() + "/tuning.json";
  const test::ScopedEnvironment variable_{"GIGABAR_TUNING", path_.c_str()};
};

TEST_F(TunedSettings, AreTakenWhereNobodySetThem) {
  ASSERT_NO_FATAL_FAILURE(store(own_pair()));
  const Settings settings = opened();
  EXPECT_EQ(far(settings).gdr_bytes, 32768U);
  EXPECT_EQ(far(settings).chunk_bytes, 524288U);
  EXPECT_EQ(source_of(settings, "gdr_limit (verbs, other hosts)"), "32768 by tuned, " + path_);
  EXPECT_EQ(source_of(settings, "gdr_read_limit (verbs, other hosts)"), "unlimited by tuned, " + path_);
  EXPECT_EQ(source_of(settings, "chunk (verbs, other hosts)"), "524288 by tuned, " + path_);
  // Not measured.
  EXPECT_EQ(far(settings).stripe_bytes, 16384U);
  EXPECT_EQ(source_of(settings, "stripe (verbs, other hosts)"), "none");
  EXPECT_EQ(source_of(settings, "stripe"), "16384 by default");
  // Other connections.
  EXPECT_EQ(settings.limits(TransportKind::verbs, true).chunk_bytes, 262144U);
  EXPECT_EQ(settings.limits(TransportKind::local, false).gdr_bytes, kNoLimit);
  EXPECT_EQ(source_of(settings, "chunk"), "262144 by default");
}

TEST_F(TunedSettings, GiveWayToOptionsAndVariables) {
  ASSERT_NO_FATAL_FAILURE(store(own_pair()));
  const test::ScopedEnvironment chunk("GIGABAR_CHUNK", "128K");
  FabricOptions options;
  options.limits.gdr_bytes = 0;
  const Settings settings = opened(options);
  EXPECT_EQ(far(settings).gdr_bytes, 0U);
  EXPECT_EQ(far(settings).chunk_bytes, 131072U);
  EXPECT_EQ(far(settings).gdr_read_bytes, kNoLimit);
  EXPECT_EQ(source_of(settings, "gdr_limit"), "0 by option");
  EXPECT_EQ(source_of(settings, "gdr_limit (verbs, other hosts)"), "none");
  EXPECT_EQ(source_of(settings, "chunk"), "131072 by GIGABAR_CHUNK");
  EXPECT_EQ(source_of(settings, "chunk (verbs, other hosts)"), "none");
  EXPECT_EQ(source_of(settings, "gdr_read_limit (verbs, other hosts)"), "unlimited by tuned, " + path_);
}

TEST_F(TunedSettings, AreOfTheirGpuAndRails) {
  TunedPair other_gpu = own_pair(), other_rail = own_pair(), more_rails = own_pair();
  other_gpu.key.device = "GPU-of-another-slot";
  other_rail.key.rails = {"mlx5_1/1"};
  more_rails.key.rails = {"mlx5_0/1", "mlx5_1/1"};
  for (const TunedPair& pair : {other_gpu, other_rail, more_rails}) ASSERT_NO_FATAL_FAILURE(store(pair));
  EXPECT_EQ(far(opened()).gdr_bytes, kNoLimit);
}

TEST_F(TunedSettings, OfAnotherMachineAreWarnedOfAndNotTaken) {
  MachineFingerprint other = machine_fingerprint();
  other.processor += " of another kind";
  ASSERT_TRUE(store_tuned(path_, other, own_pair()));
  EXPECT_EQ(far(opened()).gdr_bytes, kNoLimit);
  const auto lines = test::take_log();
  ASSERT_EQ(lines.size(), 1U);
  for (const std::string& word : {path_, std::string("of another kind"), std::string("gigabar tune")}) {
    EXPECT_NE(lines[0].find(word), std::string::npos) << lines[0];
  }
}

TEST_F(TunedSettings, ThatAreMalformedAreWarnedOfAndNotTaken) {
  std::ofstream(path_) << "{}";
  EXPECT_EQ(far(opened()).gdr_bytes, kNoLimit);
  const auto lines = test::take_log();
  ASSERT_EQ(lines.size(), 1U);
  for (const std::string& word : {path_, std::string("format"), std::string("delete the file")}) {
    EXPECT_NE(lines[0].find(word), std::string::npos) << lines[0];
  }
}

TEST_F(TunedSettings, AreLookedForWhereTheVariableSays) {
  const MachineFingerprint machine = some_machine();
  EXPECT_EQ(tuning_path(machine), path_);
  EXPECT_EQ(far(opened()).gdr_bytes, kNoLimit) << "no file is no error";
  {
    const test::ScopedEnvironment none("GIGABAR_TUNING", "none");
    EXPECT_EQ(tuning_path(machine), "");
  }
  const test::ScopedEnvironment unset("GIGABAR_TUNING", nullptr);
  const test::ScopedEnvironment cache("XDG_CACHE_HOME", "/some/where"), home("HOME", "/home/me");
  EXPECT_EQ(tuning_path(machine), "/some/where/gigabar/tuning-" + machine.digits() + ".json");
  const test::ScopedEnvironment no_cache("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(tuning_path(machine), "/home/me/.cache/gigabar/tuning-" + machine.digits() + ".json");
  const test::ScopedEnvironment no_home("HOME", nullptr);
  EXPECT_EQ(tuning_path(machine), "");
}

}  // namespace
}  // namespace gigabar::fabric
