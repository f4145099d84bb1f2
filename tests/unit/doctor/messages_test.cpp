// SPDX-License-Identifier: Apache-2.0
// messages.txt and what finds its messages in a text.
#include "doctor/messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>

#include "gigabar/doctor.hpp"

namespace gigabar {
namespace {

using doctor::Message;
using doctor::MessageFile;
using doctor::parse_messages;

const MessageFile& messages() {
  static const auto* const file = new MessageFile(parse_messages(doctor::messages_text()));
  return *file;
}

std::string to_text(const Diagnosis& diagnosis) {
  std::string text;
  for (const TellingLine& line : diagnosis.lines) {
    text += "line " + std::to_string(line.number) + ": " + line.text + "\n  taken for: " + std::string(line.symptom->text) + "\n";
  }
  for (const std::string_view check : diagnosis.checks) text += " " + std::string(check);
  return text;
}

bool is_among_the_first_three(const Diagnosis& diagnosis, std::string_view check) {
  const auto end = diagnosis.checks.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, diagnosis.checks.size()));
  return std::find(diagnosis.checks.begin(), end, check) != end;
}

// ---- the file

TEST(Messages, HaveNoMistakes) {
  for (const std::string& mistake : messages().mistakes) ADD_FAILURE() << "src/doctor/messages.txt, " << mistake;
  std::size_t pattern_count = 0;
  for (const Message& message : messages().messages) pattern_count += message.patterns.size();
  EXPECT_GE(messages().messages.size(), 150u);
  EXPECT_GE(pattern_count, 500u);
  EXPECT_EQ(known_messages().size() + symptoms().size(), messages().messages.size());
}

TEST(Messages, SendToChecksThatExist) {
  for (const Message& message : messages().messages) {
    std::set<std::string> ids;
    for (const std::string& id : message.checks) {
      EXPECT_NE(find_check(id), nullptr) << "src/doctor/messages.txt, line " << message.line << ": there is no check '" << id
                                         << "'";
      EXPECT_TRUE(ids.insert(id).second) << "line " << message.line << ": " << id << " twice";
    }
  }
}

TEST(Messages, AreSentences) {
  for (const Message& message : messages().messages) {
    SCOPED_TRACE("src/doctor/messages.txt, line " + std::to_string(message.line));
    for (const std::string& text : {message.means, message.remedy}) {
      EXPECT_TRUE(text.ends_with('.') || text.ends_with(")")) << text;
      EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char letter) { return letter >= ' ' && letter < 0x7f; })) << text;
    }
  }
}

// A short pattern would be found in lines of other programs.
TEST(Messages, HavePatternsOfSomeLength) {
  for (const Message& message : messages().messages) {
    if (message.kind == Message::Kind::words) continue;
    for (const std::string& pattern : message.patterns) {
      const auto letters =
          std::count_if(pattern.begin(), pattern.end(), [](unsigned char letter) { return std::isalnum(letter) != 0; });
      EXPECT_GE(letters, 6) << "src/doctor/messages.txt, line " << message.line << ": '" << pattern << "'";
    }
  }
}

TEST(Messages, AreRecognisedByTheirExamples) {
  for (const Message& message : messages().messages) {
    for (const std::string& example : message.examples) {
      SCOPED_TRACE("src/doctor/messages.txt, line " + std::to_string(message.line) + ": " + example);
      const Diagnosis diagnosis = diagnose(example);
      ASSERT_FALSE(diagnosis.lines.empty());
      EXPECT_EQ(diagnosis.lines.front().symptom->text, message.examples.front()) << to_text(diagnosis);
      const std::size_t count = std::min<std::size_t>(3, message.checks.size());
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_TRUE(is_among_the_first_three(diagnosis, message.checks[i])) << to_text(diagnosis);
    }
  }
}

// Lines as users paste them, most of them of other versions, machines and programs than the examples: how general the patterns are.
TEST(Messages, ExplainPastedLines) {
  std::ifstream file(GIGABAR_PASTED_LINES);
  ASSERT_TRUE(file.is_open()) << GIGABAR_PASTED_LINES;
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::size_t tab = line.rfind('\t');
    ASSERT_NE(tab, std::string::npos) << line;
    ++count;
    const Diagnosis diagnosis = diagnose(line.substr(0, tab));
    bool is_right = false;
    std::istringstream wanted(line.substr(tab + 1));
    for (std::string check; std::getline(wanted, check, ',');) {
      is_right = is_right || is_among_the_first_three(diagnosis, check) || (check == "none" && diagnosis.checks.empty());
    }
    EXPECT_FALSE(diagnosis.lines.empty()) << line;
    EXPECT_TRUE(is_right) << line << "\n" << to_text(diagnosis);
  }
  EXPECT_GE(count, 80u);
}

// ---- its format

TEST(MessageFile, IsReadAsDescribed) {
  const MessageFile file = parse_messages(
      "# a comment\n"
      "program: One, Two\r\n"
      "example: it failed: 12\n"
      "example: it failed: \n"
      "  13 times\n"
      "pattern: it failed | it has\n"
      "  failed\n"
      "pattern: failed it\n"
      "checks: huge, libs\n"
      "# in between\n"
      "means: This.\n"
      "remedy: That.\n"
      "\n\n"
      "symptom: slow\n"
      "pattern: slow\n"
      "checks: none\n"
      "means: This.\n"
      "remedy: That.");
  EXPECT_EQ(file.mistakes, std::vector<std::string>());
  ASSERT_EQ(file.messages.size(), 2u);
  const Message& message = file.messages[0];
  EXPECT_EQ(message.kind, Message::Kind::cause);
  EXPECT_EQ(message.line, 2u);
  EXPECT_EQ(message.program, "One, Two");
  EXPECT_EQ(message.examples, (std::vector<std::string>{"it failed: 12", "it failed: 13 times"}));
  EXPECT_EQ(message.patterns, (std::vector<std::string>{"it failed", "it has failed", "failed it"}));
  EXPECT_EQ(message.checks, (std::vector<std::string>{"huge", "libs"}));
  EXPECT_EQ(message.means, "This.");
  EXPECT_EQ(message.remedy, "That.");
  EXPECT_EQ(file.messages[1].kind, Message::Kind::words);
  EXPECT_EQ(file.messages[1].symptom, "slow");
  EXPECT_TRUE(file.messages[1].checks.empty());
}

TEST(MessageFile, NamesTheLineOfAMistake) {
  const std::string whole = "program: P\nexample: E\npattern: E\nchecks: none\nmeans: M\nremedy: R\n";
  EXPECT_TRUE(parse_messages(whole).mistakes.empty());
  const std::vector<std::pair<std::string, std::string>> wrong{
      {"no colon\n", "line 1: neither"},
      {"  indented\n", "line 1: an indented line"},
      {whole + "chekcs: huge\n", "line 7: there is no field 'chekcs'"},
      {whole + "means: again\n", "line 7: 'means' is there twice"},
      {whole + "says: nothing\n", "line 7: the only value"},
      {whole + "remark:\n", "line 7: 'remark' is empty"},
      {whole + "symptom: S\n", "line 1: either 'program' or 'symptom'"},
      {"\n" + whole.substr(11), "line 2: either 'program' or 'symptom'"},
      {"program: P\npattern: E\nchecks: none\nmeans: M\nremedy: R\n", "line 1: no 'example'"},
      {"program: P\nexample: E\nchecks: none\nmeans: M\nremedy: R\n", "line 1: no 'pattern'"},
      {"program: P\nexample: E\npattern: E\nmeans: M\nremedy: R\n", "line 1: no 'checks'"},
      {"program: P\nexample: E\npattern: E\nchecks: none\nremedy: R\n", "line 1: no 'means'"},
      {"program: P\nexample: E\npattern: E\nchecks: none\nmeans: M\n", "line 1: no 'remedy'"},
  };
  for (const auto& [text, mistake] : wrong) {
    const MessageFile file = parse_messages(text);
    ASSERT_FALSE(file.mistakes.empty()) << text;
    EXPECT_TRUE(file.mistakes.front().starts_with(mistake)) << file.mistakes.front();
    EXPECT_TRUE(file.messages.empty()) << text;
  }
}

// ---- texts

constexpr std::string_view kBadAddress = "UCX  ERROR ibv_reg_mr(address=0x7f72, length=4096, access=0xf) failed: Bad address";

TEST(Diagnose, NothingIsKnownOfEmptyAndForeignText) {
  using namespace std::string_view_literals;
  for (const std::string_view text :
       {""sv, " \n\t"sv, "\n\n\n"sv, "\0\0"sv, "hello"sv, "\xff\xfe\xfd"sv, "errno"sv, "*"sv, "\\"sv, "\x1b["sv, "\x1b"sv}) {
    const Diagnosis diagnosis = diagnose(text);
    EXPECT_TRUE(diagnosis.lines.empty()) << to_text(diagnosis);
    EXPECT_TRUE(diagnosis.checks.empty());
  }
}

TEST(Diagnose, PunctuationCaseAndColoursDoNotMatter) {
  for (const std::string_view text :
       {kBadAddress, std::string_view("ucx error IBV_REG_MR address 0x7f72 FAILED -- bad   address"),
        std::string_view("\x1b[1;31mUCX  ERROR\x1b[0m ibv_reg_mr(address=\x1b[32m0x1\x1b[0m) failed: Bad address\r"),
        std::string_view("{\"log\": \"first\\nUCX ERROR ibv_reg_mr(address=0x7) failed: Bad address\\n\"}")}) {
    const Diagnosis diagnosis = diagnose(text);
    ASSERT_FALSE(diagnosis.lines.empty()) << text;
    EXPECT_EQ(diagnosis.checks.front(), "mod.peermem") << text << "\n" << to_text(diagnosis);
  }
}

TEST(Diagnose, AGapStaysWithinALineAndIsBounded) {
  const std::string near = "ibv_reg_mr(" + std::string(60, ' ') + ") failed: Bad address";
  EXPECT_EQ(diagnose(near).checks.front(), "mod.peermem");
  std::string words;
  for (int i = 0; i < 60; ++i) words += " word" + std::to_string(i);
  const Diagnosis far = diagnose("ibv_modify_qp(" + words + ") failed");
  EXPECT_TRUE(far.lines.empty() || far.lines.front().symptom->program.empty()) << to_text(far);
  const Diagnosis split = diagnose("ibv_modify_qp(mlx5_0,\nRTR) failed");
  EXPECT_TRUE(split.lines.empty() || split.lines.front().symptom->program.empty()) << to_text(split);
}

TEST(Diagnose, ANumberOfTheBusIsNoXid) {
  const Diagnosis diagnosis = diagnose("NVRM: Xid (PCI:0000:79:00): 31, pid=79, name=python");
  ASSERT_FALSE(diagnosis.lines.empty());
  EXPECT_EQ(diagnosis.checks.front(), "gpu.ecc") << to_text(diagnosis);
}

TEST(Diagnose, TheLongerPatternAndTheCauseComeFirst) {
  // The words of errno behind a completion's status say nothing.
  EXPECT_EQ(diagnose("a work item failed: status 12 (Ib failure: Cannot allocate memory)").checks.front(), "rdma.gid");
  // What only says that something failed comes behind its cause, wherever it stands.
  const std::string effect =
      "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n";
  const std::string cause =
      "node [0] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory\n";
  for (const std::string& text : {effect + cause, cause + effect}) {
    const Diagnosis diagnosis = diagnose(text);
    ASSERT_EQ(diagnosis.lines.size(), 2u) << to_text(diagnosis);
    EXPECT_EQ(diagnosis.checks.front(), "lim.memlock");
    EXPECT_EQ(diagnosis.lines.front().number, text.starts_with(effect) ? 2u : 1u);
  }
  // One message is told once.
  EXPECT_EQ(diagnose("NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.").lines.size(), 1u);
  // A line that its program marks as information comes behind one that it does not.
  const Diagnosis both =
      diagnose("node:1:1 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module), and so on\n" +
               std::string("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."));
  ASSERT_EQ(both.lines.size(), 2u) << to_text(both);
  EXPECT_EQ(both.checks.front(), "drv.gpus");
}

TEST(Diagnose, WordsOfUsersAreAskedOnlyWithoutAMessage) {
  EXPECT_TRUE(diagnose("everything is slow").lines.front().symptom->program.empty());
  const Diagnosis message = diagnose("everything is slow and it prints\n" + std::string(kBadAddress));
  ASSERT_EQ(message.lines.size(), 1u) << to_text(message);
  EXPECT_EQ(message.lines.front().number, 2u);
  // In a log, words that merely occur are no symptom.
  std::string log;
  for (int i = 0; i < 100; ++i) log += "step " + std::to_string(i) + ": nothing is slow here, latency is fine\n";
  EXPECT_TRUE(diagnose(log).lines.empty());
  EXPECT_FALSE(diagnose(log + "error: everything is slow\n").lines.empty());
}

std::string filler(std::size_t bytes) {
  std::string text;
  for (unsigned i = 0; text.size() < bytes; ++i) {
    text += "host-" + std::to_string(i % 97) + ":88:157 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via P2P/IPC comm 0x" +
            std::to_string(i) + " nRanks 08\n";
  }
  return text;
}

TEST(Diagnose, AnErrorAtTheEndOfAMebibyteIsFound) {
  const std::string before = filler(1U << 20U);
  const std::string log = before + std::string(kBadAddress) + "\r\n";
  const std::clock_t begin = std::clock();
  const Diagnosis diagnosis = diagnose(log);
  EXPECT_LT(std::clock() - begin, 10 * CLOCKS_PER_SEC);  // of this process's own time; a hundredth of it without a sanitizer
  ASSERT_EQ(diagnosis.lines.size(), 1u) << to_text(diagnosis);
  EXPECT_EQ(diagnosis.lines.front().number, static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1);
  EXPECT_EQ(diagnosis.lines.front().text, kBadAddress);
  EXPECT_EQ(diagnosis.checks.front(), "mod.peermem");
}

TEST(Diagnose, QuotesAreShortAndPrintable) {
  const std::string line = std::string(5000, 'x') + " \x1b[31m\x01 " + std::string(kBadAddress) + "\x80 " + std::string(5000, 'y');
  const Diagnosis diagnosis = diagnose(std::string("first\n") + line + "\nlast\n");
  ASSERT_FALSE(diagnosis.lines.empty());
  const std::string& quote = diagnosis.lines.front().text;
  EXPECT_LE(quote.size(), 200u);
  EXPECT_NE(quote.find("ibv_reg_mr"), std::string::npos) << quote;
  EXPECT_TRUE(std::all_of(quote.begin(), quote.end(), [](char letter) { return letter >= ' ' && letter < 0x7f; })) << quote;
  EXPECT_EQ(diagnosis.lines.front().number, 2u);
}

TEST(Diagnose, ManyMessagesGiveTheMostTelling) {
  std::string all;
  for (const Message& message : messages().messages) {
    for (const std::string& example : message.examples) all += example + "\n";
  }
  const Diagnosis diagnosis = diagnose(all);
  EXPECT_EQ(diagnosis.lines.size(), 4u) << to_text(diagnosis);
  std::set<const Symptom*> different;
  for (const TellingLine& line : diagnosis.lines) EXPECT_TRUE(different.insert(line.symptom).second);
  std::set<std::string_view> checks;
  for (const std::string_view check : diagnosis.checks) EXPECT_TRUE(checks.insert(check).second) << check << " twice";
}

TEST(Diagnose, BytesOfAnyKindAreRead) {
  std::string bytes;
  for (unsigned i = 0; i < 1U << 18U; ++i) bytes += static_cast<char>((i * 2654435761U) >> 13U);
  for (const std::string& before :
       {bytes, std::string(1U << 18U, '\0'), std::string(1U << 18U, '\n'), std::string(1U << 18U, 'a')}) {
    const Diagnosis diagnosis = diagnose(before + "\n" + std::string(kBadAddress) + "\n" + before);
    ASSERT_FALSE(diagnosis.lines.empty());
    EXPECT_EQ(diagnosis.lines.front().text, kBadAddress) << to_text(diagnosis);
  }
  // A line that begins every pattern again and again, and ends none.
  std::string beginnings;
  while (beginnings.size() < 1U << 18U) beginnings += "failed ibv_reg_mr nccl warn call to ibv_modify_qp ucx error xid pci ";
  const std::clock_t begin = std::clock();
  diagnose(beginnings);
  EXPECT_LT(std::clock() - begin, 10 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace gigabar
