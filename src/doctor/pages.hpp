// SPDX-License-Identifier: Apache-2.0
// The pages of the checks, as `gigabar explain` prints them: Markdown files in pages/, which are part of the library.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/doctor.hpp"

namespace gigabar::doctor {

struct Page {
  std::string id, title;
  std::string why, what, impact, confirm, remedy, source;  // as of CheckInfo
};

struct PageFile {
  std::vector<Page> pages;
  std::vector<std::string> mistakes;  // "line 12: ..."; of a page with one, what could be read is there
};

// A page begins with "## id: title" and has a paragraph that says why the check matters, and the five sections of kSections, in any
// order. A paragraph may go over several lines; an item of a list ("- ") begins a line of its own on the terminal. Backquotes are
// for readers of the Markdown and go. What stands before the first page is not part of one.
PageFile parse_pages(std::string_view markdown);

struct Section {
  std::string_view heading;
  std::string Page::* text;
};
inline constexpr std::array<Section, 5> kSections{{{"What it is", &Page::what},
                                                   {"Impact", &Page::impact},
                                                   {"How to confirm", &Page::confirm},
                                                   {"Remedy", &Page::remedy},
                                                   {"Source", &Page::source}}};

// The files as they were when the library was built.
struct PageText {
  std::string_view name;  // "pages/driver.md"
  std::string_view markdown;
};
std::vector<PageText> page_texts();

// The description of a check from its page, which lives as long as the process; without a page only the id.
CheckInfo info_of(std::string_view id);

}  // namespace gigabar::doctor
