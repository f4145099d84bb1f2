// SPDX-License-Identifier: Apache-2.0
// Text of a machine made fit for a terminal, and paragraphs broken into lines.
#include "support/plain_text.hpp"

#include <gtest/gtest.h>

namespace gigabar::tool {
namespace {

TEST(PlainText, LeavesOrdinaryTextAlone) {
  EXPECT_EQ(plain(""), "");
  EXPECT_EQ(plain("NVIDIA H200 <&\"'\\>"), "NVIDIA H200 <&\"'\\>");
  EXPECT_EQ(plain("\u00b5s \u20ac \U0001F600"), "\u00b5s \u20ac \U0001F600");
}

TEST(PlainText, ReplacesWhatMovesTheCursor) {
  EXPECT_EQ(plain("a\x1b[2Jb"), "a?[2Jb");
  EXPECT_EQ(plain(std::string_view("a\0b\x7f", 4)), "a?b?");
  EXPECT_EQ(plain("one\ntwo\tthree\r"), "one two three?");
  EXPECT_EQ(plain("\u009b2J"), "?2J") << "C1: the one-byte form of ESC [";
  EXPECT_EQ(plain("\u202eabc\u2066"), "?abc?") << "marks that turn a line around";
  EXPECT_EQ(plain("a\u2028b\ufeff"), "a?b?");
}

TEST(PlainText, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(plain("a\xff\xfe"), "a??");
  EXPECT_EQ(plain("\xc3"), "?") << "cut off";
  EXPECT_EQ(plain("\xe2\x82"), "??");
  EXPECT_EQ(plain("\xc0\xaf"), "??") << "overlong";
  EXPECT_EQ(plain("\xe0\x80\xaf"), "???");
  EXPECT_EQ(plain("\xed\xa0\x80"), "???") << "a surrogate";
  EXPECT_EQ(plain("\xf4\x90\x80\x80"), "????") << "above 10FFFF";
  EXPECT_EQ(plain("\xc3(ok"), "?(ok") << "the byte behind is not swallowed";
}

TEST(PlainText, IsBounded) {
  EXPECT_EQ(plain("abcdef", 6), "abcdef");
  EXPECT_EQ(plain("abcdefg", 6), "abcdef...");
  EXPECT_EQ(plain("ab\u20ac", 4), "ab...") << "no half of a character";
}

TEST(WrappedText, BreaksBetweenWords) {
  EXPECT_EQ(wrapped("", 10, 0), "");
  EXPECT_EQ(wrapped("one two three", 7, 0), "one two\nthree\n");
  EXPECT_EQ(wrapped("one two three", 8, 2), "  one\n  two\n  three\n");
  EXPECT_EQ(wrapped("averylongword b", 5, 0), "averylongword\nb\n");
}

TEST(WrappedText, KeepsLinesAndIndentation) {
  EXPECT_EQ(wrapped("one\n\ntwo", 20, 2), "  one\n\n  two\n");
  EXPECT_EQ(wrapped("run:\n  setpci -s 0000:3b:00.0 CAP", 20, 0), "run:\n  setpci -s\n  0000:3b:00.0 CAP\n");
}

}  // namespace
}  // namespace gigabar::tool
