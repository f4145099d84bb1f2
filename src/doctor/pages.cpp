// SPDX-License-Identifier: Apache-2.0
// The reader of the pages, and the files themselves inside the library.
#include "doctor/pages.hpp"

#include <algorithm>

#include "base/embed_file.hpp"
#include "base/errors.hpp"
#include "doctor/words.hpp"

GIGABAR_EMBED_FILE(gigabar_doctor_pages_driver, GIGABAR_DOCTOR_FOLDER "/pages/driver.md");
GIGABAR_EMBED_FILE(gigabar_doctor_pages_gpu, GIGABAR_DOCTOR_FOLDER "/pages/gpu.md");
GIGABAR_EMBED_FILE(gigabar_doctor_pages_pci, GIGABAR_DOCTOR_FOLDER "/pages/pci.md");
GIGABAR_EMBED_FILE(gigabar_doctor_pages_rdma, GIGABAR_DOCTOR_FOLDER "/pages/rdma.md");
GIGABAR_EMBED_FILE(gigabar_doctor_pages_host, GIGABAR_DOCTOR_FOLDER "/pages/host.md");
GIGABAR_EMBED_FILE(gigabar_doctor_pages_probes, GIGABAR_DOCTOR_FOLDER "/pages/probes.md");

namespace gigabar::doctor {
namespace {

class Reader {
 public:
  PageFile read(std::string_view markdown) {
    for (; !markdown.empty(); ++number_) take_line(next_line(markdown));
    --number_;  // of the last line
    finish_page();
    return std::move(file_);
  }

 private:
  void take_line(std::string_view line) {
    if (line.starts_with("## ")) return begin_page(line.substr(3));
    if (file_.pages.empty()) return;
    if (line.starts_with("### ")) return begin_section(line.substr(4));
    if (line.empty()) {
      is_behind_gap_ = true;
    } else if (text_ != nullptr) {
      add(line);
    }
  }

  void begin_page(std::string_view heading) {
    finish_page();
    const std::size_t colon = heading.find(": ");
    if (colon == std::string_view::npos) mistake("a page begins with '## id: title'");
    Page& page = file_.pages.emplace_back();
    page.id = heading.substr(0, colon);
    if (colon != std::string_view::npos) page.title = heading.substr(colon + 2);
    begin_text(&page.why);
  }

  void begin_section(std::string_view heading) {
    Page& page = file_.pages.back();
    const auto known = std::ranges::find(kSections, heading, &Section::heading);
    begin_text(known == kSections.end() ? nullptr : &(page.*known->text));
    if (text_ == nullptr) return mistake(text(page.id, " has a section '", heading, "', which no page has"));
    if (text_->empty()) return;
    mistake(text(page.id, " has its section '", heading, "' twice"));
    text_ = nullptr;
  }

  void begin_text(std::string* text) {
    text_ = text;
    is_behind_gap_ = false;
  }

  // A line goes on with the paragraph or the item above it. Only an item begins a new one: a page has no second paragraphs.
  void add(std::string_view line) {
    const bool is_item = line.starts_with("- ");
    if (is_behind_gap_ && !is_item && !text_->empty()) mistake("a section is one paragraph or one list");
    is_behind_gap_ = false;
    line.remove_prefix(is_item ? 2 : std::min(line.find_first_not_of(' '), line.size()));
    if (!text_->empty()) *text_ += is_item ? '\n' : ' ';
    std::ranges::copy_if(line, std::back_inserter(*text_), [](char letter) { return letter != '`'; });
  }

  void finish_page() {
    if (file_.pages.empty()) return;
    const Page& page = file_.pages.back();
    if (page.why.empty()) mistake(text(page.id, " does not say why it matters, below its title"));
    for (const Section& section : kSections) {
      if ((page.*section.text).empty()) mistake(text(page.id, " has no section '", section.heading, "'"));
    }
  }

  void mistake(std::string_view what) { file_.mistakes.push_back(text("line ", number_, ": ", what)); }

  PageFile file_;
  std::size_t number_ = 1;
  std::string* text_ = nullptr;  // what the next line is part of
  bool is_behind_gap_ = false;
};

std::string_view text_of(const unsigned char* embedded) { return reinterpret_cast<const char*>(embedded); }

}  // namespace

PageFile parse_pages(std::string_view markdown) { return Reader().read(markdown); }

std::vector<PageText> page_texts() {
  return {{"pages/driver.md", text_of(gigabar_doctor_pages_driver)}, {"pages/gpu.md", text_of(gigabar_doctor_pages_gpu)},
          {"pages/pci.md", text_of(gigabar_doctor_pages_pci)},       {"pages/rdma.md", text_of(gigabar_doctor_pages_rdma)},
          {"pages/host.md", text_of(gigabar_doctor_pages_host)},     {"pages/probes.md", text_of(gigabar_doctor_pages_probes)}};
}

CheckInfo info_of(std::string_view id) {
  static const auto* const pages = [] {
    std::vector<Page> all;
    for (const PageText& file : page_texts()) {
      for (Page& page : parse_pages(file.markdown).pages) all.push_back(std::move(page));
    }
    return new std::vector<Page>(std::move(all));
  }();
  static const Page none;
  const auto found = std::ranges::find(*pages, id, &Page::id);
  const Page& page = found == pages->end() ? none : *found;
  return {id, page.title, page.why, id.starts_with("probe."), page.what, page.impact, page.confirm, page.remedy, page.source};
}

}  // namespace gigabar::doctor
