// SPDX-License-Identifier: Apache-2.0
// Calibration files: what is saved is loaded, and nothing else is.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>

#include "support/temporary_folder.hpp"
#include "unit/copy/stand_in.hpp"

namespace gigabar {
namespace {

using nlohmann::json;
using test::has;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class CalibrationFile : public testing::Test {
 protected:
  void write(const std::string& content) const { std::ofstream(path_, std::ios::binary | std::ios::trunc) << content; }

  const test::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  const std::string path_ = folder_ + "/calibration.json";
};

Calibration example() {
  Calibration calibration;
  calibration.is_measured = true;
  calibration.device_name = "stand-in \"quoted\" \\ ü";
  calibration.device_uuid = "GPU-01234567-89ab";
  calibration.cpu_name = "a CPU";
  calibration.driver_version = "580.1";
  calibration.date = "2026-01-02T03:04:05Z";
  calibration.thread_count = 8;
  calibration.points = {{CopyDirection::to_device, false, 8, {0.125, kInfinity, 7.4, kInfinity}},
                        {CopyDirection::to_device, true, 8, {1.0 / 3, 2.5, kInfinity, kInfinity}},
                        {CopyDirection::from_device, true, std::size_t{1} << 40, {1e9, 1e-3, 3, 0.5}}};
  calibration.store_kernel[4] = "generic";
  calibration.load_kernel[31] = "avx2";
  return calibration;
}

void expect_equal(const Calibration& one, const Calibration& other) {
  EXPECT_EQ(one.is_measured, other.is_measured);
  EXPECT_EQ(one.device_name, other.device_name);
  EXPECT_EQ(one.device_uuid, other.device_uuid);
  EXPECT_EQ(one.cpu_name, other.cpu_name);
  EXPECT_EQ(one.driver_version, other.driver_version);
  EXPECT_EQ(one.date, other.date);
  EXPECT_EQ(one.thread_count, other.thread_count);
  EXPECT_EQ(one.store_kernel, other.store_kernel);
  EXPECT_EQ(one.load_kernel, other.load_kernel);
  ASSERT_EQ(one.points.size(), other.points.size());
  for (std::size_t i = 0; i < one.points.size(); ++i) {
    EXPECT_EQ(one.points[i].direction, other.points[i].direction);
    EXPECT_EQ(one.points[i].is_pinned, other.points[i].is_pinned);
    EXPECT_EQ(one.points[i].bytes, other.points[i].bytes);
    EXPECT_EQ(one.points[i].median_us, other.points[i].median_us);
  }
}

TEST_F(CalibrationFile, LoadsWhatWasSaved) {
  for (const Calibration& saved : {example(), Calibration(), Calibration::defaults()}) {
    ASSERT_TRUE(saved.save(path_));
    const auto loaded = Calibration::load(path_);
    ASSERT_TRUE(loaded.is_ok()) << loaded.error().message();
    expect_equal(loaded.value(), saved);
  }
  // The temporary files are gone.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(CalibrationFile, MakesTheFolderItIsSavedIn) {
  const std::string deep = folder_ + "/a/b/calibration.json";
  ASSERT_TRUE(example().save(deep));
  EXPECT_TRUE(Calibration::load(deep).is_ok());
}

TEST_F(CalibrationFile, SaysWhyItCannotBeSaved) {
  write("not a folder");
  const Result<void> under_a_file = example().save(path_ + "/calibration.json");
  EXPECT_EQ(under_a_file.status(), Status::bad_file);
  EXPECT_TRUE(has(under_a_file.message(), "ENOTDIR")) << under_a_file.message();
  std::filesystem::create_directory(folder_ + "/folder");
  const Result<void> onto_a_folder = example().save(folder_ + "/folder");
  EXPECT_EQ(onto_a_folder.status(), Status::bad_file);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);  // nothing left behind
}

// An edit of a valid file, and what the error must name.
struct BadFile {
  const char* name;
  std::function<void(json&)> edit;
  const char* named;
};

TEST_F(CalibrationFile, RefusesWrongValuesAndSaysWhere) {
  const BadFile kBadFiles[] = {
      {"another format", [](json& f) { f["format"] = "other"; }, "format"},
      {"no format", [](json& f) { f.erase("format"); }, "format"},
      {"a later version", [](json& f) { f["version"] = 3; }, "version"},
      {"a version as text", [](json& f) { f["version"] = "1"; }, "version"},
      {"an unknown name", [](json& f) { f["extra"] = 1; }, "extra"},
      {"a missing name", [](json& f) { f.erase("points"); }, "points"},
      {"a number for a flag", [](json& f) { f["is_measured"] = 1; }, "is_measured"},
      {"a number for a text", [](json& f) { f["device_name"] = 1; }, "device_name"},
      {"a long text", [](json& f) { f["cpu_name"] = std::string(257, 'x'); }, "cpu_name"},
      {"an escape sequence in a text", [](json& f) { f["device_name"] = "\x1b[2J"; }, "device_name"},
      {"no threads", [](json& f) { f["thread_count"] = 0; }, "thread_count"},
      {"too many threads", [](json& f) { f["thread_count"] = 65; }, "thread_count"},
      {"negative threads", [](json& f) { f["thread_count"] = -1; }, "thread_count"},
      {"half a thread", [](json& f) { f["thread_count"] = 1.5; }, "thread_count"},
      {"points that are an object", [](json& f) { f["points"] = json::object(); }, "points"},
      {"too many points", [](json& f) { f["points"] = std::vector<int>(5000); }, "points"},
      {"a point that is a number", [](json& f) { f["points"][1] = 5; }, "points[1]"},
      {"an unknown direction", [](json& f) { f["points"][1]["direction"] = "up"; }, "points[1].direction"},
      {"a size of zero", [](json& f) { f["points"][0]["bytes"] = 0; }, "points[0].bytes"},
      {"a negative size", [](json& f) { f["points"][0]["bytes"] = -8; }, "points[0].bytes"},
      {"a huge size", [](json& f) { f["points"][2]["bytes"] = std::uint64_t{1} << 41; }, "points[2].bytes"},
      {"points out of order", [](json& f) { std::swap(f["points"][0], f["points"][1]); }, "points[1]"},
      {"a point twice", [](json& f) { f["points"][1] = f["points"][0]; }, "points[1]"},
      {"a negative time", [](json& f) { f["points"][0]["median_us"]["cpu"] = -1; }, "points[0].median_us.cpu"},
      {"a time of zero", [](json& f) { f["points"][0]["median_us"]["cpu"] = 0; }, "points[0].median_us.cpu"},
      {"a huge time", [](json& f) { f["points"][0]["median_us"]["cpu"] = 1e10; }, "points[0].median_us.cpu"},
      {"a time as text", [](json& f) { f["points"][0]["median_us"]["cpu"] = "1"; }, "points[0].median_us.cpu"},
      {"an unknown method", [](json& f) { f["points"][0]["median_us"]["teleport"] = 1; }, "points[0].median_us"},
      {"no time at all", [](json& f) { f["points"][0]["median_us"] = {{"cpu", {}}, {"cpu_parallel", {}}, {"copy_engine", {}}}; },
       "points[0].median_us"},
      {"an unknown kernel", [](json& f) { f["store_kernel"][3] = "mmx"; }, "store_kernel[3]"},
      {"too few kernels", [](json& f) { f["load_kernel"].erase(0); }, "load_kernel"},
      {"a kernel that is a number", [](json& f) { f["load_kernel"][0] = 3; }, "load_kernel[0]"},
      {"an array instead of all", [](json& f) { f = json::array({1, 2}); }, "format"},
      {"null instead of all", [](json& f) { f = nullptr; }, "format"},
  };
  for (const BadFile& bad : kBadFiles) {
    json file = json::parse(example().to_json());
    bad.edit(file);
    write(file.dump());
    const auto refused = Calibration::load(path_);
    ASSERT_FALSE(refused.is_ok()) << bad.name;
    EXPECT_EQ(refused.status(), Status::bad_file) << bad.name;
    EXPECT_TRUE(has(refused.error().record().cause, bad.named)) << bad.name << ": " << refused.error().message();
    EXPECT_EQ(refused.error().record().object, path_);
    EXPECT_FALSE(refused.error().record().remedy.empty());
  }
}

TEST_F(CalibrationFile, RefusesTextThatIsNotACalibration) {
  const std::string valid = example().to_json();
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string content = valid;
    const std::size_t at = content.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return content.replace(at, from.size(), to);
  };
  const std::pair<const char*, std::string> kBadTexts[] = {
      {"empty", ""},
      {"blank", " \n"},
      {"binary", std::string("\x7f"
                             "ELF\0\1\2\3",
                             8)},
      {"not a number", replaced("0.125", "NaN")},
      {"infinity", replaced("0.125", "Infinity")},
      {"a number no double holds", replaced("0.125", "1e999")},
      {"a name twice", replaced("\"thread_count\": 8", "\"thread_count\": 8, \"thread_count\": 4")},
      {"a name twice in a point", replaced("\"bytes\": 8", "\"bytes\": 8, \"bytes\": 16")},
      {"text behind the end", valid + "{}"},
      {"a comment", "// comment\n" + valid},
      {"a byte that is not UTF-8", replaced("a CPU", "a \xff CPU")},
      {"a zero byte", replaced("a CPU", std::string("a \0 CPU", 7))},
      {"deep nesting", std::string(100'000, '[')},
      {"deep nesting that is closed", std::string(100'000, '[') + std::string(100'000, ']')},
      {"deep objects",
       [] {
         std::string deep;
         for (int i = 0; i < 20'000; ++i) deep += "{\"a\":";
         return deep;
       }()},
      {"larger than 1 MiB", valid + std::string(std::size_t{1} << 20, ' ')},
  };
  for (const auto& [name, content] : kBadTexts) {
    write(content);
    const auto refused = Calibration::load(path_);
    ASSERT_FALSE(refused.is_ok()) << name;
    EXPECT_EQ(refused.status(), Status::bad_file) << name;
    EXPECT_FALSE(refused.error().record().cause.empty()) << name;
  }
}

TEST_F(CalibrationFile, RefusesEveryTruncation) {
  const std::string valid = example().to_json();
  const std::size_t end = valid.find_last_of('}');
  for (std::size_t bytes = 0; bytes <= end; ++bytes) {
    write(valid.substr(0, bytes));
    ASSERT_EQ(Calibration::load(path_).status(), Status::bad_file) << bytes << " of " << valid.size() << " bytes";
  }
}

TEST_F(CalibrationFile, RefusesWhatIsNotARegularFile) {
  EXPECT_TRUE(has(Calibration::load(path_).error().message(), "ENOENT"));
  EXPECT_EQ(Calibration::load(folder_).status(), Status::bad_file);
  EXPECT_EQ(Calibration::load("").status(), Status::bad_file);
  EXPECT_EQ(Calibration::load("/dev/zero").status(), Status::bad_file);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Calibration::load(path_).status(), Status::bad_file);  // and does not wait for a writer
}

// Whatever is loaded obeys the limits, so that nothing that reads it needs to check again.
void expect_within_limits(const Calibration& loaded) {
  EXPECT_GE(loaded.thread_count, 1U);
  EXPECT_LE(loaded.thread_count, 64U);
  for (const CalibrationPoint& point : loaded.points) {
    EXPECT_GE(point.bytes, 1U);
    for (const double us : point.median_us) EXPECT_TRUE(us > 0) << us;
  }
  EXPECT_FALSE(loaded.to_text().empty());
}

// A valid file with a few bytes changed, removed, doubled or swapped: refused as bad_file, or valid and loaded again the same.
TEST_F(CalibrationFile, SurvivesMutation) {
  const std::string valid = example().to_json();
  std::mt19937_64 random(20260101);  // the same mutations on every run
  const std::string kTokens[] = {"{",       "}", "[", "]", "\"", ",", ":", "null", "true", "-", "1e308", "18446744073709551616",
                                 "\\u0000", "0"};
  int loaded_count = 0;
  int refused_count = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (int round = 0; round < 3000 && std::chrono::steady_clock::now() < end; ++round) {
    std::string content = valid;
    const std::size_t edit_count = 1 + random() % 3;
    for (std::size_t edit = 0; edit < edit_count; ++edit) {
      const std::size_t at = random() % content.size();
      const std::size_t length = 1 + random() % 8;
      switch (random() % 5) {
        case 0: content[at] = static_cast<char>(random()); break;
        case 1: content.erase(at, length); break;
        case 2: content.insert(at, content.substr(at, length)); break;
        case 3: content.insert(at, kTokens[random() % std::size(kTokens)]); break;
        default: std::swap(content[at], content[random() % content.size()]); break;
      }
    }
    write(content);
    const auto loaded = Calibration::load(path_);
    if (loaded.is_ok()) {
      ++loaded_count;
      expect_within_limits(loaded.value());
    } else {
      ++refused_count;
      ASSERT_EQ(loaded.status(), Status::bad_file) << loaded.error().message();
    }
  }
  EXPECT_GT(refused_count, 100);
  EXPECT_GT(loaded_count, 0);  // a changed letter of a name, say: the mutations are not all the same
}

}  // namespace
}  // namespace gigabar
