// SPDX-License-Identifier: Apache-2.0
// The file of tuned limits: what is stored is loaded, nothing else is, and two writers lose nothing.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/in_child.hpp"
#include "support/temporary_folder.hpp"
#include "unit/fabric/tuning/pairs.hpp"

namespace gigabar::fabric {
namespace {

using nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class TuningFile : public testing::Test {
 protected:
  void write(const std::string& content) const { std::ofstream(path_, std::ios::binary | std::ios::trunc) << content; }
  std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string valid() const { return Tuning{some_machine(), {some_pair(), some_pair("stand-in")}}.to_json(); }

  const test::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const std::string path_ = folder_ + "/tuning.json";
};

TEST_F(TuningFile, LoadsWhatWasStored) {
  TunedPair nothing_measured = some_pair("stand-in");
  nothing_measured.key.is_same_host = true;
  nothing_measured.gdr_bytes = nothing_measured.gdr_read_bytes = nothing_measured.chunk_bytes = {};
  nothing_measured.stripe_bytes = 0;
  ASSERT_TRUE(store_tuned(path_, some_machine(), some_pair()));
  ASSERT_TRUE(store_tuned(path_, some_machine(), nothing_measured));
  const auto loaded = Tuning::load(path_);
  ASSERT_TRUE(loaded.is_ok()) << loaded.error().message();
  EXPECT_EQ(loaded->machine, some_machine());
  ASSERT_EQ(loaded->pairs.size(), 2U);
  EXPECT_TRUE(are_equal(loaded->pairs[0], some_pair()));
  EXPECT_TRUE(are_equal(loaded->pairs[1], nothing_measured));
}

TEST_F(TuningFile, ReplacesThePairOfTheSameKeyOnly) {
  ASSERT_TRUE(store_tuned(path_, some_machine(), some_pair("GPU-a")));
  ASSERT_TRUE(store_tuned(path_, some_machine(), some_pair("GPU-b")));
  TunedPair again = some_pair("GPU-a");
  again.gdr_bytes = {};
  again.stripe_bytes = 65536;
  ASSERT_TRUE(store_tuned(path_, some_machine(), again));
  const auto loaded = Tuning::load(path_);
  ASSERT_TRUE(loaded.is_ok()) << loaded.error().message();
  ASSERT_EQ(loaded->pairs.size(), 2U);
  EXPECT_TRUE(are_equal(loaded->pairs[0], some_pair("GPU-b")));
  EXPECT_TRUE(are_equal(loaded->pairs[1], again));
}

TEST_F(TuningFile, OfAnotherMachineStays) {
  ASSERT_TRUE(store_tuned(path_, some_machine(), some_pair()));
  const std::string before = read();
  MachineFingerprint other = some_machine();
  other.driver_version = "590.2";
  const Result<void> refused = store_tuned(path_, other, some_pair());
  EXPECT_EQ(refused.status(), Status::bad_file);
  EXPECT_TRUE(has(refused.message(), "580.1") && has(refused.message(), "590.2")) << refused.message();
  EXPECT_FALSE(refused.record().remedy.empty());
  EXPECT_EQ(read(), before);
}

TEST_F(TuningFile, ThatIsMalformedStays) {
  write("{ half");
  const Result<void> refused = store_tuned(path_, some_machine(), some_pair());
  EXPECT_EQ(refused.status(), Status::bad_file);
  EXPECT_TRUE(has(refused.record().remedy, "delete the file")) << refused.record().remedy;
  EXPECT_EQ(read(), "{ half");
}

TEST_F(TuningFile, MakesItsFolderAndSaysWhyItCannotBeWritten) {
  const std::string deep = folder_ + "/a/b/tuning.json";
  EXPECT_TRUE(store_tuned(deep, some_machine(), some_pair()));
  EXPECT_TRUE(Tuning::load(deep).is_ok());
  write("not a folder");
  const Result<void> under_a_file = store_tuned(path_ + "/tuning.json", some_machine(), some_pair());
  EXPECT_EQ(under_a_file.status(), Status::bad_file);
  EXPECT_TRUE(has(under_a_file.message(), "ENOTDIR")) << under_a_file.message();
}

TEST_F(TuningFile, OfAFolderWithoutPermissionIsAnError) {
  // As an ordinary user: root may write everywhere. In a child, whose ids stay changed.
  ASSERT_EQ(::chmod(folder_.c_str(), 0555), 0);
  const test::ChildEnd end = test::run_in_child([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 3;
    const Result<void> refused = store_tuned(path_, some_machine(), some_pair());
    return refused.status() == Status::bad_file && has(refused.message(), "EACCES") ? 0 : 1;
  });
  ::chmod(folder_.c_str(), 0755);
  EXPECT_TRUE(end.is_exit(0)) << end.to_string();
}

TEST_F(TuningFile, TakesManyWritersAtOnce) {
  constexpr int kWriters = 4, kPairs = 10;
  std::vector<pid_t> children;
  for (int writer = 0; writer < kWriters; ++writer) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool is_well = true;
      for (int pair = 0; pair < kPairs; ++pair) {
        const std::string name = "GPU-" + std::to_string(writer) + "-" + std::to_string(pair);
        is_well = is_well && store_tuned(path_, some_machine(), some_pair(name)).is_ok();
      }
      ::_exit(is_well ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  const auto loaded = Tuning::load(path_);
  ASSERT_TRUE(loaded.is_ok()) << loaded.error().message();
  EXPECT_EQ(loaded->pairs.size(), std::size_t{kWriters * kPairs}) << "a writer's pairs are lost";
  // The file and its lock: no temporary one is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

TEST_F(TuningFile, ThatAnotherProcessHoldsForeverIsATimeOut) {
  const int held = ::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(held, 0);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  const Result<void> late = store_tuned(path_, some_machine(), some_pair());
  EXPECT_EQ(late.status(), Status::timed_out) << late.message();
  ::close(held);
  EXPECT_TRUE(store_tuned(path_, some_machine(), some_pair()));
}

// An edit of a valid file, and what the error must name.
struct BadFile {
  const char* name;
  std::function<void(json&)> edit;
  const char* named;
};

TEST_F(TuningFile, RefusesWrongValuesAndSaysWhere) {
  const BadFile kBadFiles[] = {
      {"another format", [](json& f) { f["format"] = "gigabar calibration"; }, "format"},
      {"a later version", [](json& f) { f["version"] = 2; }, "version"},
      {"an unknown name", [](json& f) { f["extra"] = 1; }, "extra"},
      {"no machine", [](json& f) { f.erase("machine"); }, "machine"},
      {"a machine without processor", [](json& f) { f["machine"].erase("processor"); }, "machine"},
      {"nics that are a text", [](json& f) { f["machine"]["nics"] = "mlx5_0"; }, "machine.nics"},
      {"a nic that is a number", [](json& f) { f["machine"]["nics"][1] = 5; }, "machine.nics[1]"},
      {"pairs that are an object", [](json& f) { f["pairs"] = json::object(); }, "pairs"},
      {"too many pairs", [](json& f) { f["pairs"] = std::vector<int>(2000); }, "pairs"},
      {"a pair twice", [](json& f) { f["pairs"][1] = f["pairs"][0]; }, "pairs[1]"},
      {"a pair without date", [](json& f) { f["pairs"][1].erase("date"); }, "pairs[1]"},
      {"an unknown transport", [](json& f) { f["pairs"][0]["transport"] = "smoke"; }, "pairs[0].transport"},
      {"too many rails", [](json& f) { f["pairs"][0]["rails"] = std::vector<std::string>(9, "r"); }, "pairs[0].rails"},
      {"an unknown peer", [](json& f) { f["pairs"][0]["peer"] = "here"; }, "pairs[0].peer"},
      {"an escape sequence", [](json& f) { f["pairs"][0]["device"] = "\x1b[2J"; }, "pairs[0].device"},
      {"a long text", [](json& f) { f["pairs"][0]["device"] = std::string(257, 'x'); }, "pairs[0].device"},
      {"a negative limit", [](json& f) { f["pairs"][0]["gdr_limit"] = -1; }, "pairs[0].gdr_limit"},
      {"half a byte", [](json& f) { f["pairs"][0]["gdr_read_limit"] = 0.5; }, "pairs[0].gdr_read_limit"},
      {"another word", [](json& f) { f["pairs"][0]["stripe"] = "much"; }, "pairs[0].stripe"},
      {"a chunk of nothing", [](json& f) { f["pairs"][0]["chunk"] = 0; }, "pairs[0].chunk"},
      {"a huge chunk", [](json& f) { f["pairs"][0]["chunk"] = std::uint64_t{1} << 30; }, "pairs[0].chunk"},
      {"an unlimited chunk", [](json& f) { f["pairs"][0]["chunk"] = "unlimited"; }, "pairs[0].chunk"},
      {"null instead of all", [](json& f) { f = nullptr; }, "format"},
  };
  for (const BadFile& bad : kBadFiles) {
    json file = json::parse(valid());
    bad.edit(file);
    write(file.dump());
    const auto refused = Tuning::load(path_);
    ASSERT_FALSE(refused.is_ok()) << bad.name;
    EXPECT_EQ(refused.status(), Status::bad_file) << bad.name;
    EXPECT_TRUE(has(refused.error().record().cause, bad.named)) << bad.name << ": " << refused.error().message();
    EXPECT_EQ(refused.error().record().object, path_);
    EXPECT_TRUE(has(refused.error().record().remedy, "gigabar tune")) << refused.error().record().remedy;
  }
}

TEST_F(TuningFile, RefusesEveryTruncation) {
  const std::string content = valid();
  const std::size_t end = content.find_last_of('}');
  for (std::size_t bytes = 0; bytes <= end; ++bytes) {
    write(content.substr(0, bytes));
    ASSERT_EQ(Tuning::load(path_).status(), Status::bad_file) << bytes << " of " << content.size() << " bytes";
  }
}

TEST(MachineFingerprint, DiffersWhereAPartDoes) {
  const MachineFingerprint one = some_machine();
  EXPECT_EQ(one.difference(one), "");
  EXPECT_EQ(one.digits().size(), 16U);
  for (const auto& change :
       {+[](MachineFingerprint& m) { m.processor += "x"; }, +[](MachineFingerprint& m) { m.driver_version.clear(); },
        +[](MachineFingerprint& m) { m.nics.pop_back(); },
        +[](MachineFingerprint& m) { m.nics = {"mlx5_0 0001:0002mlx5_1 0001:0003"}; }}) {
    MachineFingerprint other = one;
    change(other);
    EXPECT_NE(one.difference(other), "");
    EXPECT_NE(one.digits(), other.digits());
  }
  EXPECT_EQ(machine_fingerprint(), machine_fingerprint());
  EXPECT_FALSE(machine_fingerprint().processor.empty());
}

}  // namespace
}  // namespace gigabar::fabric
