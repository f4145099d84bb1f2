// SPDX-License-Identifier: Apache-2.0
// The reader of messages.txt, and the file itself inside the library.
#include "doctor/messages.hpp"

#include "base/embed_file.hpp"
#include "base/errors.hpp"
#include "doctor/words.hpp"

GIGABAR_EMBED_FILE(gigabar_doctor_messages, GIGABAR_DOCTOR_FOLDER "/messages.txt");

namespace gigabar::doctor {
namespace {

// The parts between separators, each trimmed; empty ones too.
std::vector<std::string> parts_of(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + separator.size());
  }
}

struct Field {
  std::string name, value;
  std::size_t line = 0;
};

class Reader {
 public:
  MessageFile read(std::string_view text) {
    for (std::size_t number = 1; !text.empty(); ++number) take_line(next_line(text), number);
    finish_message();
    return std::move(file_);
  }

 private:
  void take_line(std::string_view line, std::size_t number) {
    if (line.starts_with('#')) return;
    if (trimmed(line).empty()) return finish_message();
    if (line.front() == ' ' || line.front() == '\t') return continue_field(line, number);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return mistake(number, "neither 'field: value' nor the rest of one, which is indented");
    fields_.push_back({std::string(line.substr(0, colon)), std::string(trimmed(line.substr(colon + 1))), number});
  }

  void continue_field(std::string_view line, std::size_t number) {
    if (fields_.empty()) return mistake(number, "an indented line has no field above it");
    fields_.back().value += ' ';
    fields_.back().value += trimmed(line);
  }

  void finish_message() {
    if (fields_.empty()) return;
    Message message;
    message.line = fields_.front().line;
    const std::size_t before = file_.mistakes.size();
    for (const Field& field : fields_) set(message, field);
    check(message);
    if (file_.mistakes.size() == before) file_.messages.push_back(std::move(message));
    fields_.clear();
  }

  void set(Message& message, const Field& field) {
    if (field.value.empty()) return mistake(field.line, text("'", field.name, "' is empty"));
    if (field.name == "pattern") {
      for (std::string& part : parts_of(field.value, " | ")) message.patterns.push_back(std::move(part));
    } else if (field.name == "example") {
      message.examples.push_back(field.value);
    } else if (field.name == "checks") {
      if (field.value != "none") message.checks = parts_of(field.value, ",");
      has_checks_ = true;
    } else if (field.name == "says") {
      if (field.value != "effect") return mistake(field.line, "the only value of 'says' is effect");
      message.kind = Message::Kind::effect;
    } else if (std::string* const one = text_of(message, field.name)) {
      if (!one->empty()) return mistake(field.line, text("'", field.name, "' is there twice"));
      *one = field.value;
    } else {
      mistake(field.line, text("there is no field '", field.name, "'"));
    }
  }

  static std::string* text_of(Message& message, std::string_view name) {
    if (name == "program") return &message.program;
    if (name == "symptom") return &message.symptom;
    if (name == "means") return &message.means;
    if (name == "remedy") return &message.remedy;
    return nullptr;
  }

  void check(Message& message) {
    const std::size_t line = message.line;
    if (!message.symptom.empty()) message.kind = Message::Kind::words;
    if (message.program.empty() == message.symptom.empty()) mistake(line, "either 'program' or 'symptom' is needed");
    if (message.symptom.empty() && message.examples.empty()) mistake(line, "no 'example'");
    if (message.patterns.empty()) mistake(line, "no 'pattern'");
    if (!has_checks_) mistake(line, "no 'checks'; 'none' when no check can see the cause");
    if (message.means.empty()) mistake(line, "no 'means'");
    if (message.remedy.empty()) mistake(line, "no 'remedy'");
    has_checks_ = false;
  }

  void mistake(std::size_t line, std::string_view what) { file_.mistakes.push_back(text("line ", line, ": ", what)); }

  MessageFile file_;
  std::vector<Field> fields_;  // of the message that is read
  bool has_checks_ = false;
};

}  // namespace

MessageFile parse_messages(std::string_view text) { return Reader().read(text); }

std::string_view messages_text() { return reinterpret_cast<const char*>(gigabar_doctor_messages); }

}  // namespace gigabar::doctor
