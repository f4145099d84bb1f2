// SPDX-License-Identifier: Apache-2.0
// An archive's text, made and read.
#include "platform/system_archive.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.hpp"
#include "platform/capture.hpp"
#include "platform/system_sources.hpp"

namespace gigabar {
namespace {

// Whether the bytes are text of JSON: UTF-8 without overlong forms, surrogates and NUL (RFC 3629).
bool is_text(std::string_view bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const auto byte = [&](std::size_t i) { return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U; };
    const unsigned first = byte(0);
    const std::size_t length = first < 0x80 ? 1 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first == 0 || (first >= 0x80 && first < 0xc2) || first > 0xf4) return false;
    for (std::size_t i = 1; i < length; ++i) {
      if ((byte(i) & 0xc0) != 0x80) return false;
    }
    if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f)) return false;
    if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f)) return false;
    at += length;
  }
  return true;
}

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string encoded;
  encoded.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      encoded.push_back(at + i <= bytes.size() ? kDigits[group >> (18 - 6 * i) & 63] : '=');
    }
  }
  return encoded;
}

class ArchiveWriter final : public CaptureVisitor {
 public:
  void file(const std::string& path, FileText text) override {
    has_content(path);
    if (!text.is_present()) {
      unreadable_[path] = std::move(text.reason);
    } else if (is_text(text.content)) {
      files_[path] = std::move(text.content);
    } else {
      files_[path] = {{"base64", to_base64(text.content)}};
    }
  }
  void link(const std::string& path, std::string target, const std::string& /*real*/) override {
    if (!is_text(path) || !is_text(target)) return;
    has_content(path);
    links_[path] = std::move(target);
  }
  void folder(const std::string& path) override {
    if (is_text(path)) folders_.insert(path);
  }
  void device(const std::string& path, const NodeFacts& facts) override {
    has_content(path);
    nlohmann::json device = {{"mode", facts.mode},
                             {"major", facts.device_major},
                             {"minor", facts.device_minor},
                             {"can_read", facts.can_read},
                             {"can_write", facts.can_write}};
    if (facts.open_errno) device["open_errno"] = *facts.open_errno;
    devices_[path] = std::move(device);
  }

  nlohmann::json take() {
    for (const std::string& folder : folders_) has_content(folder);
    for (const std::string& above : above_) folders_.erase(above);
    nlohmann::json document = {{"format", "gigabar-machine"}, {"version", 1}};
    document["files"] = std::move(files_);
    document["unreadable"] = std::move(unreadable_);
    document["links"] = std::move(links_);
    document["devices"] = std::move(devices_);
    document["folders"] = folders_;
    return document;
  }

 private:
  // The folders above something need not be named.
  void has_content(const std::string& path) {
    for (std::size_t slash = path.rfind('/'); slash != 0 && slash != std::string::npos; slash = path.rfind('/', slash - 1)) {
      if (!above_.insert(path.substr(0, slash)).second) return;
    }
  }

  nlohmann::json files_ = nlohmann::json::object();
  nlohmann::json unreadable_ = nlohmann::json::object();
  nlohmann::json links_ = nlohmann::json::object();
  nlohmann::json devices_ = nlohmann::json::object();
  std::set<std::string> folders_;
  std::set<std::string> above_;
};

Result<std::string> text_of(const nlohmann::json& document, const char* key) {
  const auto found = document.find(key);
  if (found == document.end()) return std::string();
  if (!found->is_string()) return bad_archive(key, "is not a text");
  return found->get<std::string>();
}

}  // namespace

std::string write_archive(const SystemFiles& files, const ArchiveHead& head) {
  ArchiveWriter writer;
  visit_captured(files, false, writer);
  nlohmann::json document = writer.take();
  document["remark"] = head.remark;
  document["date"] = head.date;
  document["answers"] = to_json(head.answers);
  // A name of a file may be any bytes, and so may what a driver says.
  return document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

DriverAnswers no_answers() {
  DriverAnswers answers;
  answers.cuda = answers.nvml = answers.verbs = not_asked();
  return answers;
}

Result<ArchiveHead> read_archive_head(std::string_view json) {
  const Result<nlohmann::json> document = parse_archive(json);
  if (!document) return document.error();
  Result<std::string> remark = text_of(*document, "remark");
  if (!remark) return std::move(remark).error();
  Result<std::string> date = text_of(*document, "date");
  if (!date) return std::move(date).error();
  const auto told = document->find("answers");
  Result<DriverAnswers> answers = told == document->end() ? no_answers() : driver_answers_of(*told);
  if (!answers) return std::move(answers).error();
  return ArchiveHead{std::move(*remark), std::move(*date), std::move(*answers)};
}

}  // namespace gigabar
