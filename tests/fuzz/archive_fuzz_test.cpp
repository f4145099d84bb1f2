// SPDX-License-Identifier: Apache-2.0
// Archives and answers at random: each is a bad file, or a machine that can be read without end or escape.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fuzz/mutator.hpp"
#include "fuzz/small_machine.hpp"
#include "platform/driver_answers.hpp"
#include "platform/system_archive.hpp"
#include "platform/system_files.hpp"

namespace gigabar {
namespace {

using Json = nlohmann::json;
using test::for_a_while;
using test::Mutator;

bool is_real(const std::string& path) {
  return path.starts_with('/') && path.find("//") == std::string::npos && path.find("/../") == std::string::npos &&
         path.find("/./") == std::string::npos && !path.ends_with("/..") && !path.ends_with("/.");
}

// Asks everything of some paths, of which many are there.
void expect_sane_files(const SystemFiles& files, const Json& document, Mutator& mutator) {
  std::vector<std::string> paths{"/", "/sys/bus/pci/devices", mutator.changed("/sys/class/net/eth0/mtu"), mutator.bytes(64)};
  for (const char* section : {"files", "links", "devices", "unreadable"}) {
    if (!document.contains(section) || !document[section].is_object()) continue;
    for (const auto& [path, unused] : document[section].items()) {
      if (mutator.once_in(10)) paths.push_back(path + (mutator.once_in(2) ? "" : "/" + mutator.token()));
    }
  }
  for (const std::string& path : paths) {
    const FileText text = files.read(path);
    EXPECT_TRUE(text.is_present() || text.content.empty()) << path;
    EXPECT_NE(text.state == FileState::missing || text.is_present(), !text.reason.empty() || text.state == FileState::unreadable)
        << path;
    const auto names = files.names(path);
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end())) << path;
    const auto real = files.real_path(path);
    EXPECT_EQ(real.has_value(), files.exists(path)) << path;
    if (!real) continue;
    EXPECT_TRUE(is_real(*real)) << *real;
    EXPECT_FALSE(files.link_target(*real)) << *real;
    EXPECT_EQ(files.real_path(*real), real);
    EXPECT_EQ(files.facts(*real).kind, files.facts(path).kind) << path;
  }
}

void expect_bad_file_or_sane(const std::string& text, const Json& paths, Mutator& mutator) {
  const auto files = SystemFiles::of_archive(text);
  if (!files) {
    EXPECT_EQ(files.status(), Status::bad_file) << files.error().message();
    return;
  }
  expect_sane_files(*files, paths, mutator);
  if (!mutator.once_in(4)) return;
  // What can be opened can be captured anew, and that opens.
  const auto again = write_archive(*files, {});
  ASSERT_TRUE(again.is_ok()) << again.error().message();
  const auto reopened = SystemFiles::of_archive(*again);
  EXPECT_TRUE(reopened.is_ok()) << reopened.error().message();
}

TEST(ArchiveFuzz, BytesOfTheText) {
  const Json document = test::SmallMachine().document();
  const std::string whole = document.dump();
  EXPECT_GT(for_a_while([&](Mutator& mutator) { expect_bad_file_or_sane(mutator.changed(whole), document, mutator); }), 1U);
}

TEST(ArchiveFuzz, BytesOfATarFile) {
  const Json document = test::SmallMachine().document();
  const auto files = SystemFiles::of_archive(document.dump());
  ASSERT_TRUE(files.is_ok());
  const auto whole = write_archive(*files, {});
  ASSERT_TRUE(whole.is_ok()) << whole.error().message();
  std::size_t opened = 0;
  EXPECT_GT(for_a_while([&](Mutator& mutator) {
              // In the content of a file mostly: a changed header has another checksum.
              const std::string changed = mutator.changed(*whole);
              opened += SystemFiles::of_archive(changed).is_ok() ? 1 : 0;
              expect_bad_file_or_sane(changed, document, mutator);
            }),
            1U);
  EXPECT_GT(opened, 0U);
}

TEST(ArchiveFuzz, ValuesOfTheDocument) {
  const Json whole = test::SmallMachine().document();
  EXPECT_GT(for_a_while([&](Mutator& mutator) {
              Json document = whole;
              for (std::size_t left = 1 + mutator.below(4); left > 0; --left) mutator.change(document);
              expect_bad_file_or_sane(document.dump(-1, ' ', false, Json::error_handler_t::replace), document, mutator);
            }),
            1U);
}

TEST(AnswersFuzz, GoodOnesComeBackAsTheyWere) {
  const Json whole = test::SmallMachine().document()["answers"];
  std::size_t good = 0;
  for_a_while([&](Mutator& mutator) {
    Json document = whole;
    for (std::size_t left = mutator.below(4); left > 0; --left) mutator.change(document);
    const auto answers = test::answers_of(document);
    if (!answers) {
      EXPECT_EQ(answers.status(), Status::bad_file) << answers.error().message();
      return;
    }
    ++good;
    const std::string written = to_json(*answers);
    const auto again = driver_answers_of(written);
    if (!again) {
      ADD_FAILURE() << again.error().message() << "\n" << written;
    } else {
      EXPECT_EQ(to_json(*again), written);
    }
  });
  EXPECT_GT(good, 0U);
}

}  // namespace
}  // namespace gigabar
