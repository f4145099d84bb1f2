// SPDX-License-Identifier: Apache-2.0
// Which checks there are, with their pages, which are files inside the library, and how they are run.
#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <exception>
#include <new>

#include "base/clock.hpp"
#include "base/embed_file.hpp"
#include "base/errors.hpp"
#include "base/old_check_ids.hpp"
#include "base/uncancelled.hpp"
#include "doctor/check.hpp"
#include "doctor/pages.hpp"
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

std::string_view group_of(std::string_view id) { return id.substr(0, id.find('.')); }

bool is_chosen(const CheckInfo& check, const std::vector<std::string>& only) {
  return only.empty() || std::ranges::any_of(only, [&](const std::string& wanted) {
           return check.id == wanted || group_of(check.id) == wanted || check.id.starts_with(wanted + ".");
         });
}

// Ids that share the first part with `wanted`, else all groups.
std::string near_ids(std::string_view wanted) {
  std::string ids, groups;
  for (const Check& check : all_checks()) {
    const std::string_view group = group_of(check.info.id);
    if (group == group_of(wanted)) ids += text(ids.empty() ? "" : ", ", check.info.id);
    if (groups.find(group) == std::string::npos) groups += text(groups.empty() ? "" : ", ", group);
  }
  return ids.empty() ? "the groups are " + groups : "near ones are " + ids;
}

void run(const Check& check, const Patient& patient, const ExamineOptions& options, Findings& findings) {
  if (options.on_begin) options.on_begin(check.info);
  try {
    check.run(patient, findings);
  } catch (const std::bad_alloc&) {
    throw;  // the examination's, not the check's
  } catch (const std::exception& failure) {
    findings.say({}, unknown(text("the check itself failed: ", failure.what()), "report this, with the machine's capture"));
  }
}

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

std::span<const Check> all_checks() {
  static const auto* const all = new std::vector<Check>{
#define GIGABAR_CHECK(id, function) {info_of(id), function},
#include "doctor/checks.def"
#undef GIGABAR_CHECK
  };
  return *all;
}

Result<void> require_checks(const std::vector<std::string>& chosen) {
  for (const std::string& wanted : chosen) {
    if (std::ranges::any_of(all_checks(), [&](const Check& check) { return is_chosen(check.info, {wanted}); })) continue;
    return make_error(Status::invalid_argument, "examine", text("check '", printable(wanted), "'"), "there is no such check",
                      near_ids(wanted));
  }
  return {};
}

}  // namespace gigabar::doctor

namespace gigabar::inline v0 {

std::string_view name_of(Verdict verdict) noexcept {
  constexpr std::array<std::string_view, 5> kNames{"PASS", "WARN", "FAIL", "UNKNOWN", "SKIP"};
  const auto index = static_cast<std::size_t>(verdict);
  return index < kNames.size() ? kNames[index] : "?";
}

std::span<const CheckInfo> checks() try {
  static const auto* const infos = [] {
    std::vector<CheckInfo> list;
    for (const doctor::Check& check : doctor::all_checks()) list.push_back(check.info);
    return new std::vector<CheckInfo>(std::move(list));
  }();
  return *infos;
} catch (...) {
  return {};
}

const CheckInfo* find_check(std::string_view id) try {
  const auto all = checks();
  const std::string wanted = current_check_id(id);
  const auto found = std::find_if(all.begin(), all.end(), [&](const CheckInfo& check) { return check.id == wanted; });
  return found == all.end() ? nullptr : &*found;
} catch (...) {
  return nullptr;
}

std::size_t Examination::count(Verdict verdict) const noexcept {
  return static_cast<std::size_t>(std::ranges::count(findings, verdict, &Finding::verdict));
}

Result<Examination> examine(const Machine& machine, const ExamineOptions& options) try {
  const Uncancelled uncancelled;
  std::vector<std::string> only;
  for (const std::string& wanted : options.only) only.push_back(current_check_id(wanted));
  if (Result<void> known = doctor::require_checks(only); !known) return std::move(known).error();
  // A day is as good as no deadline, and stays far from the end of what counts nanoseconds.
  const auto patience = std::min<std::chrono::milliseconds>(options.deadline, std::chrono::hours(24));
  const std::int64_t end_ns = now_ns() + std::chrono::nanoseconds(std::max(patience, std::chrono::milliseconds(0))).count();
  Result<Topology> topology = discover_topology(machine);
  Examination examination;
  if (topology) {
    examination.topology = std::move(*topology);
  } else if (topology.status() == Status::out_of_memory) {
    return std::move(topology).error();
  } else {
    // Checks that need no topology can still say something.
    examination.has_topology = false;
    examination.topology.notes.push_back(topology.error().message());
  }
  const doctor::Patient patient{machine.files(), machine.answers(), examination.topology, machine.is_live(), end_ns};
  for (const doctor::Check& check : doctor::all_checks()) {
    const bool is_left_out = check.info.is_probe && !options.with_probes;
    if (!doctor::is_chosen(check.info, only) || (is_left_out && only.empty())) continue;
    doctor::Findings findings(check.info.id);
    if (is_left_out) {
      findings.say({}, doctor::skip("probes were not asked for"));  // who named the check is told why it says nothing
    } else if (now_ns() >= end_ns) {
      findings.say({}, doctor::unknown(std::string(doctor::kNotBegun), "give it more time, or choose checks with --only"));
    } else {
      doctor::run(check, patient, options, findings);
    }
    std::ranges::move(findings.take(), std::back_inserter(examination.findings));
  }
  return examination;
} catch (const abi::__forced_unwind&) {
  throw;  // the callback has ended this thread
} catch (...) {
  return error_of_exception("examine");
}

}  // namespace gigabar::inline v0
