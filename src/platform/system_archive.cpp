// SPDX-License-Identifier: Apache-2.0
// An archive, made and read.
#include "platform/system_archive.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "platform/archive_parts.hpp"
#include "platform/capture.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr const char* kAnswersEntry = "gigabar-answers.json";
constexpr const char* kMachineEntry = "gigabar-machine.json";
constexpr json::Limits kLimits{.whole = "the document",
                               .is_exact = false,
                               .depth = 16,
                               .values = std::size_t{1} << 20,
                               .entries = std::size_t{1} << 20,
                               .text_bytes = kMaxArchiveBytes};

// What gigabar-machine.json has, when it is written.
struct MachineEntry {
  std::string remark, date;
  std::map<std::string, std::string> unreadable;
  std::map<std::string, NodeFacts> devices;
};

Error bad_archive(const std::string& place, std::string cause) {
  return make_error(Status::bad_file, "read archive", "'" + place + "'", std::move(cause),
                    "copy the file whole, or capture the machine again");
}

void visit_document(const json::Value& document, const ArchiveParts& parts) {
  json::FieldReader field(document);
  field.constant("format", "gigabar-machine");
  field.constant("version", 1);
  if (parts.document) parts.document(document);
}

Result<void> visit_tar(std::string_view archive, const ArchiveParts& parts) {
  std::optional<std::string> machine, answers;
  const auto keep = [&](std::optional<std::string>& kept, const char* name, tar::Entry&& entry) {
    if (entry.kind != tar::Kind::file) throw json::Problem{name, "is no file"};
    if (kept) throw json::Problem{name, "is there twice"};
    kept = std::move(entry.text);
  };
  Result<void> read = tar::read(archive, [&](tar::Entry&& entry) {
    // The last one says that nothing was cut.
    if (machine && entry.path != kMachineEntry) throw json::Problem{kMachineEntry, "is not the last entry"};
    if (entry.path == kMachineEntry) {
      keep(machine, kMachineEntry, std::move(entry));
    } else if (entry.path == kAnswersEntry) {
      keep(answers, kAnswersEntry, std::move(entry));
    } else if (parts.entry) {
      parts.entry(std::move(entry));
    }
  });
  if (!read) return read;
  if (!machine) throw json::Problem{kMachineEntry, "is missing: the archive was cut, or holds no captured machine"};
  json::parse(*machine, kLimits, [&](const json::Value& document) { visit_document(document, parts); });
  if (answers && parts.answers) json::parse(*answers, kLimits, parts.answers);
  return {};
}

class ArchiveWriter final : public CaptureVisitor {
 public:
  explicit ArchiveWriter(tar::Writer& to) : to_(to) {}

  void file(const std::string& path, FileText text) override {
    has_content(path);
    if (text.is_present()) {
      add(tar::Kind::file, path, std::move(text.content));
    } else {
      machine.unreadable[path] = std::move(text.reason);
    }
  }
  void link(const std::string& path, std::string target, const std::string& /*real*/) override {
    has_content(path);
    add(tar::Kind::link, path, std::move(target));
  }
  void folder(const std::string& path) override { folders_.insert(path); }
  void device(const std::string& path, const NodeFacts& facts) override {
    has_content(path);
    machine.devices[path] = facts;
  }
  // The folders that nothing else tells of.
  void add_folders() {
    for (const std::string& folder : folders_) has_content(folder);
    for (const std::string& folder : folders_) {
      if (!above_.contains(folder)) add(tar::Kind::folder, folder, {});
    }
  }

  MachineEntry machine;

 private:
  void add(tar::Kind kind, const std::string& path, std::string text) { to_.add({kind, path.substr(1), std::move(text)}); }
  void has_content(const std::string& path) {
    for (std::size_t slash = path.rfind('/'); slash != 0 && slash != std::string::npos; slash = path.rfind('/', slash - 1)) {
      if (!above_.insert(path.substr(0, slash)).second) return;
    }
  }

  tar::Writer& to_;
  std::set<std::string> folders_;
  std::set<std::string> above_;
};

}  // namespace

template <>
struct json::Fields<MachineEntry> {
  static void each(auto& field, auto& machine) {
    field.constant("format", std::string_view("gigabar-machine"));
    field.constant("version", std::uint64_t{1});
    field("remark", machine.remark);
    field("date", machine.date);
    field("unreadable", machine.unreadable);
    field("devices", machine.devices);
  }
};

Result<std::string> write_archive(const SystemFiles& files, const ArchiveHead& head, std::size_t max_bytes) {
  Result<tar::Writer> tar = tar::Writer::open();
  if (!tar) return std::move(tar).error();
  ArchiveWriter writer(*tar);
  visit_captured(files, false, writer);
  writer.add_folders();
  writer.machine.remark = head.remark;
  writer.machine.date = head.date;
  tar->add({tar::Kind::file, kAnswersEntry, to_json(head.answers)});
  tar->add({tar::Kind::file, kMachineEntry, json::to_text(writer.machine, kLimits)});
  Result<std::string> archive = tar->take();
  if (archive && archive->size() > max_bytes) {
    return make_error(Status::not_supported, "write archive", "",
                      text("it would have ", counted(archive->size(), "byte"), ", more than the ", max_bytes, " that can be read"),
                      "report this machine");
  }
  return archive;
}

Result<void> visit_archive(std::string_view archive, const ArchiveParts& parts) {
  try {
    if (tar::is_tar(archive)) return visit_tar(archive, parts);
    if (!archive.substr(std::min(archive.find_first_not_of(" \t\r\n"), archive.size())).starts_with('{')) {
      return make_error(Status::bad_file, "read archive", "", "it is neither a tar file nor JSON",
                        "unpack it where it is compressed; else copy the file whole, or capture the machine again");
    }
    json::parse(archive, kLimits, [&](const json::Value& document) {
      visit_document(document, parts);
      if (const auto answers = document.member("answers"); answers && parts.answers) parts.answers(*answers);
    });
    return {};
  } catch (const json::Problem& problem) {
    return bad_archive(problem.place, problem.cause);
  }
}

Result<ArchiveHead> read_archive_head(std::string_view archive) {
  ArchiveHead head{{}, {}, no_answers()};
  ArchiveParts parts;
  parts.document = [&](const json::Value& document) {
    if (const auto remark = document.member("remark")) json::read(*remark, head.remark);
    if (const auto date = document.member("date")) json::read(*date, head.date);
  };
  parts.answers = [&](const json::Value& answers) { head.answers = read_answers(answers); };
  if (Result<void> visited = visit_archive(archive, parts); !visited) return std::move(visited).error();
  return head;
}

Result<ArchiveCounts> count_archive(std::string_view archive) {
  ArchiveCounts counts;
  ArchiveParts parts;
  parts.document = [&](const json::Value& document) {
    std::map<std::string, std::string> unreadable;
    if (const auto found = document.member("unreadable")) json::read(*found, unreadable);
    counts.denied = static_cast<std::size_t>(
        std::count_if(unreadable.begin(), unreadable.end(), [](const auto& file) { return file.second == "permission denied"; }));
  };
  parts.entry = [&](tar::Entry&& entry) {
    counts.files += entry.kind == tar::Kind::file ? 1 : 0;
    counts.links += entry.kind == tar::Kind::link ? 1 : 0;
  };
  if (Result<void> visited = visit_archive(archive, parts); !visited) return std::move(visited).error();
  return counts;
}

}  // namespace gigabar::inline v0
