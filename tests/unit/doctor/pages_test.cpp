// SPDX-License-Identifier: Apache-2.0
// The Markdown files of src/doctor/pages: that every check has a whole page, and what the reader makes of Markdown.
#include "doctor/pages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace gigabar {
namespace {

using doctor::Page;
using doctor::PageFile;
using doctor::parse_pages;

// ---- the files

TEST(Pages, HaveNoMistakes) {
  for (const doctor::PageText& file : doctor::page_texts()) {
    for (const std::string& mistake : parse_pages(file.markdown).mistakes)
      ADD_FAILURE() << "src/doctor/" << file.name << ", " << mistake;
  }
}

TEST(Pages, AreOfTheChecksOneEach) {
  std::set<std::string> ids;
  for (const doctor::PageText& file : doctor::page_texts()) {
    for (const Page& page : parse_pages(file.markdown).pages) {
      EXPECT_NE(find_check(page.id), nullptr) << "src/doctor/" << file.name << ": there is no check '" << page.id << "'";
      EXPECT_TRUE(ids.insert(page.id).second) << "src/doctor/" << file.name << ": a second page of " << page.id;
    }
  }
  for (const CheckInfo& check : checks()) EXPECT_TRUE(ids.contains(std::string(check.id))) << check.id << " has no page";
}

// What a program that shows the Markdown would take for emphasis stands in backquotes, which are closed where they are opened.
TEST(Pages, AreMarkdownThatShowsWhatItSays) {
  for (const doctor::PageText& file : doctor::page_texts()) {
    SCOPED_TRACE("src/doctor/" + std::string(file.name));
    bool is_code = false;
    std::string_view rest = file.markdown;
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      EXPECT_FALSE(is_code && line.empty()) << "line " << number << ": a backquote is not closed";
      for (const char letter : line) {
        if (letter == '`') is_code = !is_code;
        EXPECT_FALSE(!is_code && (letter == '*' || letter == '<' || letter == '|')) << "line " << number << ": '" << letter << "'";
      }
    }
    EXPECT_FALSE(is_code);
  }
}

// ---- the reader

constexpr const char* kPage = R"(# A group

What stands here is of no page.

## a.check: Its title, with: a colon

Why it matters,
in two lines.

### What it is

One `paragraph` that goes
over two lines.

### Impact

Slow.

### How to confirm

- `first command`
- the second item
  goes on

### Remedy

Mend it.

### Source

A document; another one,
#1205.
)";

TEST(PageReader, TakesTheTextsOfAPage) {
  const PageFile file = parse_pages(kPage);
  EXPECT_TRUE(file.mistakes.empty()) << file.mistakes.front();
  ASSERT_EQ(file.pages.size(), 1u);
  const Page& page = file.pages[0];
  EXPECT_EQ(page.id, "a.check");
  EXPECT_EQ(page.title, "Its title, with: a colon");
  EXPECT_EQ(page.why, "Why it matters, in two lines.");
  EXPECT_EQ(page.what, "One paragraph that goes over two lines.");
  EXPECT_EQ(page.impact, "Slow.");
  EXPECT_EQ(page.confirm, "first command\nthe second item goes on");
  EXPECT_EQ(page.remedy, "Mend it.");
  EXPECT_EQ(page.source, "A document; another one, #1205.");
}

TEST(PageReader, TakesPageAfterPage) {
  const std::string page = kPage;
  const PageFile file = parse_pages(page + "\n" + page.substr(page.find("## ")));
  EXPECT_TRUE(file.mistakes.empty()) << file.mistakes.front();
  EXPECT_EQ(file.pages.size(), 2u);
}

std::string without(std::string page, const std::string& part, const std::string& instead = {}) {
  const std::size_t at = page.find(part);
  return at == std::string::npos ? page : page.replace(at, part.size(), instead);
}

// The one mistake of the page.
std::string mistake_of(const std::string& markdown) {
  const PageFile file = parse_pages(markdown);
  return file.mistakes.size() == 1 ? file.mistakes[0] : std::to_string(file.mistakes.size()) + " mistakes";
}

TEST(PageReader, NamesEachMistake) {
  EXPECT_EQ(mistake_of(without(kPage, "### Impact\n\nSlow.\n")), "line 29: a.check has no section 'Impact'");
  EXPECT_EQ(mistake_of(without(kPage, "Slow.\n")), "line 31: a.check has no section 'Impact'") << "an empty one is none";
  EXPECT_EQ(mistake_of(without(kPage, "Why it matters,\nin two lines.\n")),
            "line 30: a.check does not say why it matters, below its title");
  EXPECT_EQ(mistake_of(without(kPage, "a.check: Its title, with: a colon", "a.check")),
            "line 5: a page begins with '## id: title'");
  EXPECT_EQ(mistake_of(kPage + std::string("\n### How it smells\n\nBad.\n")),
            "line 34: a.check has a section 'How it smells', which no page has");
  EXPECT_EQ(mistake_of(kPage + std::string("\n### Source\n\nAnother.\n")), "line 34: a.check has its section 'Source' twice");
  EXPECT_EQ(mistake_of(kPage + std::string("\nMore.\n")), "line 34: a section is one paragraph or one list");
}

TEST(PageReader, SurvivesAnyText) {
  for (const char* const text : {"", "\n", "## ", "### What it is\n\nx", "## a: b", "- x", "## a: b\n- ", "## a: b\n`"}) {
    const PageFile file = parse_pages(text);
    EXPECT_EQ(file.mistakes.empty(), file.pages.empty()) << text;
  }
}

}  // namespace
}  // namespace gigabar
