// SPDX-License-Identifier: Apache-2.0
// From what a user pastes to what is known about it: the reader of messages.txt, which is inside the library, and the words of a
// text against its patterns.
#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <ranges>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/embed_file.hpp"
#include "base/errors.hpp"
#include "base/uncancelled.hpp"
#include "doctor/check.hpp"
#include "doctor/messages.hpp"
#include "doctor/words.hpp"

GIGABAR_EMBED_FILE(gigabar_doctor_messages, GIGABAR_DOCTOR_FOLDER "/messages.txt");

namespace gigabar::doctor {
namespace {

// The parts between separators, each trimmed; empty ones too.
std::vector<std::string> parts_of(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (const auto part : std::views::split(text, separator))
    parts.emplace_back(trimmed(std::string_view(part.begin(), part.end())));
  return parts;
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

namespace gigabar::inline v0 {
namespace {

using doctor::Message;
using Kind = Message::Kind;

// ---- the text: its words, in lower case, and its lines

struct Word {
  std::size_t begin = 0, bytes = 0;
  std::size_t line = 0;  // index into Text::lines
};

struct Line {
  std::size_t number = 0;
  bool is_information = false;  // the program itself marks it as INFO, DEBUG or the like
  bool is_complaint = false;    // has a word as "error", "failed"
};

struct Text {
  std::string letters;  // as long as the text: letters and digits in lower case, line ends, and blanks for everything else
  std::vector<Word> words;
  std::vector<Line> lines;  // those with words

  std::string_view word(const Word& word) const { return std::string_view(letters).substr(word.begin, word.bytes); }
  const Line& line_of(std::size_t word) const { return lines[words[word].line]; }
};

char plain(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  if (letter == '\n') return '\n';
  return byte < 0x80 && std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : ' ';
}

// Bytes of the terminal's command at `at` (ECMA-48, "ESC [ 0 ; 31 m"), or of a line end or tabulator that a log in JSON or the text
// of an exception has as '\n'. Zero: none is there. Their letters are no words.
std::size_t escape_at(std::string_view text, std::size_t at) {
  if (text[at] == '\\') return at + 1 < text.size() && std::string_view("nrt").find(text[at + 1]) != std::string_view::npos ? 2 : 0;
  if (text[at] != '\x1b' || at + 1 >= text.size() || text[at + 1] != '[') return 0;
  std::size_t end = at + 2;
  while (end < text.size() && text[end] >= ' ' && text[end] < '@') ++end;
  return (end < text.size() && text[end] >= '@' ? end + 1 : end) - at;
}

std::string letters_of(std::string_view text) {
  std::string letters(text.size(), ' ');
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t escape = escape_at(text, at); escape > 0) {
      if (text[at] == '\\' && text[at + 1] == 'n') letters[at] = letters[at + 1] = '\n';
      at += escape;
    } else {
      letters[at] = plain(text[at]);
      ++at;
    }
  }
  return letters;
}

// "i0513", as glog begins a line of information.
bool is_glog_information(std::string_view word) {
  return word.size() >= 5 && word.front() == 'i' && word.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

// "NCCL_DEBUG=INFO" in a complaint is advice, not the line's level.
bool is_level(std::string_view word, std::string_view before) {
  constexpr std::array<std::string_view, 4> kLevels{"info", "debug", "trace", "verbose"};
  const bool is_setting = before == "debug" || (word == "debug" && (before == "nccl" || before == "nvshmem")) || before == "level";
  return std::ranges::find(kLevels, word) != kLevels.end() && !is_setting;
}

bool is_complaint(std::string_view word) {
  constexpr std::array<std::string_view, 23> kWords{
      "error",  "errors", "err",    "fail",  "failed",  "fails", "failure", "fatal",   "warn",    "warning", "cannot",   "couldn",
      "unable", "denied", "killed", "panic", "timeout", "timed", "refused", "aborted", "invalid", "errno",   "exception"};
  return std::ranges::find(kWords, word) != kWords.end();
}

// Looks for a mark of the line's level, and for a complaint, in the last word of the text so far; `place` is that within its line.
void look_for_level(Text& text, std::size_t place) {
  constexpr std::size_t kHead = 24;  // words in which the level stands, behind host, process and file
  Line& line = text.lines.back();
  const std::string_view word = text.word(text.words.back());
  const std::string_view before = place == 0 ? "" : text.word(text.words[text.words.size() - 2]);
  if (place < kHead && (is_level(word, before) || (place == 0 && is_glog_information(word)))) line.is_information = true;
  if (is_complaint(word)) line.is_complaint = true;
}

// Splits the text into words; a line is the words up to a line end.
Text split(std::string_view original) {
  Text text{letters_of(original), {}, {}};
  const std::string& letters = text.letters;
  std::size_t number = 1, words_of_line = 0;
  bool is_new_line = true;
  for (std::size_t at = 0, end = 0; at < letters.size(); at = end) {
    end = at + 1;
    if (letters[at] == '\n' && original[at] == '\n') ++number;
    if (letters[at] == '\n') is_new_line = true;
    if (letters[at] == '\n' || letters[at] == ' ') continue;
    end = std::min(letters.find_first_of(" \n", at), letters.size());
    if (std::exchange(is_new_line, false)) {
      text.lines.push_back({number, false, false});
      words_of_line = 0;
    }
    text.words.push_back({at, end - at, text.lines.size() - 1});
    look_for_level(text, words_of_line++);
  }
  return text;
}

// ---- the patterns

struct Element {
  std::string text;       // empty: any one word
  bool is_whole = false;  // the word; else every word that begins so

  bool fits(std::string_view word) const { return is_whole ? word == text : word.starts_with(text); }
};
using Elements = std::vector<Element>;  // words next to each other

// A pattern is one segment or several; between two of them other words of the line may stand.
struct Segment {
  Elements elements;
  std::size_t message = 0;
  std::size_t weight = 0;  // of the pattern: longer ones say more, and numbers say most
  bool is_first = false, is_last = false;
};

bool is_number(std::string_view word) { return word.find_first_not_of("0123456789") == std::string_view::npos; }

std::size_t weight_of(std::string_view word) {
  constexpr std::size_t kForNumber = 5;
  return word.size() * (is_number(word) ? kForNumber : 1);
}

// The element of a pattern's text that begins at `at`, which goes behind it. '*' behind a letter: words that begin so; alone: any
// words. '?' alone: any one word.
void add_element(std::vector<Elements>& parts, std::string_view text, std::size_t& at) {
  if (text[at] == '*') parts.emplace_back();
  if (text[at] == '?') parts.back().emplace_back();
  if (plain(text[at]) == ' ') return void(++at);
  Element element;
  while (at < text.size() && plain(text[at]) != ' ') element.text += plain(text[at++]);
  element.is_whole = at == text.size() || text[at] != '*';
  parts.back().push_back(std::move(element));
  if (at < text.size() && (text[at] == '*' || text[at] == '?')) ++at;
}

struct WordHash : std::hash<std::string_view> {
  using is_transparent = void;
};

// All patterns, and where to look for those that can begin with a word.
struct Patterns {
  std::vector<Segment> segments;  // those of a pattern one after another
  std::unordered_map<std::string, std::vector<std::size_t>, WordHash, std::equal_to<>> by_word;  // indexes into `segments`
  std::array<std::vector<std::size_t>, 0x80> by_letter;  // of words that only begin so; [0]: any word

  static std::size_t letter_of(std::string_view word) { return word.empty() ? 0 : static_cast<unsigned char>(word.front()); }

  void add(std::size_t message, std::string_view text) {
    std::vector<Elements> parts(1);
    for (std::size_t at = 0; at < text.size();) add_element(parts, text, at);
    std::erase_if(parts, [](const Elements& part) { return part.empty(); });
    std::size_t weight = 0;
    // Later segments are looked for before earlier ones, so that no word serves two of them.
    for (std::size_t i = parts.size(); i-- > 0;) {
      const Element& first = parts[i].front();
      (first.is_whole ? by_word[first.text] : by_letter[letter_of(first.text)]).push_back(segments.size() + i);
      for (const Element& element : parts[i]) weight += weight_of(element.text);
    }
    for (std::size_t i = 0; i < parts.size(); ++i)
      segments.push_back({std::move(parts[i]), message, weight, i == 0, i + 1 == parts.size()});
  }
};

// ---- what is known

struct Knowledge {
  std::vector<Message> messages;  // users' words first
  std::size_t words_count = 0;
  std::vector<std::vector<std::string_view>> checks;
  std::vector<Symptom> symptoms;  // one for each message
  Patterns patterns;
};

Knowledge read_knowledge() {
  Knowledge known;
  std::vector<Message> all = doctor::parse_messages(doctor::messages_text()).messages;
  const auto is_words = [](const Message& message) { return message.kind == Kind::words; };
  for (const bool is_turn_of_words : {true, false}) {
    for (Message& message : all) {
      if (is_words(message) == is_turn_of_words) known.messages.push_back(std::move(message));
    }
    if (is_turn_of_words) known.words_count = known.messages.size();
  }
  known.checks.reserve(known.messages.size());
  for (const Message& message : known.messages) {
    known.checks.emplace_back(message.checks.begin(), message.checks.end());
    const std::string& line = is_words(message) ? message.symptom : message.examples.front();
    known.symptoms.push_back({message.program, line, known.checks.back(), message.means, message.remedy});
    for (const std::string& pattern : message.patterns) known.patterns.add(known.symptoms.size() - 1, pattern);
  }
  return known;
}

const Knowledge& knowledge() {
  static const auto* const known = new Knowledge(read_knowledge());
  return *known;
}

// ---- the search

struct Found {
  std::size_t message = 0;
  std::size_t weight = 0;
  bool is_information = false;
  std::size_t begin = 0, end = 0;  // words

  // The most telling of a message has the least.
  auto rank() const { return std::tuple(is_information, std::numeric_limits<std::size_t>::max() - weight, begin); }
};

class Scan {
 public:
  Scan(const Knowledge& known, const Text& text)
      : known_(known), text_(text), progress_(known.patterns.segments.size()), is_seen_(known.patterns.segments.size()) {}

  // The best of each message, in no order.
  std::vector<Found> run() {
    for (std::size_t at = 0; at < text_.words.size(); ++at) {
      const std::string_view word = text_.word(text_.words[at]);
      const auto starts = known_.patterns.by_word.find(word);
      if (starts != known_.patterns.by_word.end()) look_for_each(starts->second, at);
      look_for_each(known_.patterns.by_letter[Patterns::letter_of(word)], at);
      look_for_each(known_.patterns.by_letter[0], at);
    }
    std::vector<Found> all;
    for (auto& [message, found] : best_) all.push_back(found);
    return all;
  }

 private:
  // The latest place where a pattern was found up to the end of a segment; an end of 0: it was not.
  struct Progress {
    std::size_t begin = 0, end = 0;
  };

  bool fits(const Elements& elements, std::size_t at) const {
    if (elements.size() > text_.words.size() - at) return false;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (!elements[i].fits(text_.word(text_.words[at + i]))) return false;
    }
    return true;
  }

  void look_for_each(const std::vector<std::size_t>& indexes, std::size_t at) {
    for (const std::size_t index : indexes) look(index, at);
  }

  void look(std::size_t index, std::size_t at) {
    const Segment& segment = known_.patterns.segments[index];
    if (!fits(segment.elements, at)) return;
    Progress here{at, at + segment.elements.size()};
    if (!segment.is_first) {
      constexpr std::size_t kMaxGapWords = 40;
      const Progress& before = progress_[index - 1];
      if (before.end == 0 || before.end > at || at - before.end > kMaxGapWords) return;
      if (text_.words[before.end - 1].line != text_.words[at].line) return;
      here.begin = before.begin;
    }
    progress_[index] = here;
    if (segment.is_last) report(index, here);
  }

  void report(std::size_t index, const Progress& where) {
    const Segment& last = known_.patterns.segments[index];
    const Line& line = text_.line_of(where.begin);
    const Found found{last.message, last.weight, line.is_information, where.begin, where.end};
    if (known_.messages[last.message].kind == Kind::words) return add_words(index, found, line);
    const auto [place, is_new] = best_.try_emplace(last.message, found);
    if (!is_new && found.rank() < place->second.rank()) place->second = found;
  }

  // Users' words are counted once each. In a log only complaints are taken for a user's words.
  void add_words(std::size_t index, const Found& found, const Line& line) {
    constexpr std::size_t kMaxLinesOfSentence = 20;
    if (text_.lines.size() > kMaxLinesOfSentence && (line.is_information || !line.is_complaint)) return;
    if (is_seen_[index]) return;
    is_seen_[index] = true;
    const auto [place, is_new] = best_.try_emplace(found.message, found);
    if (!is_new) place->second.weight += found.weight;
  }

  const Knowledge& known_;
  const Text& text_;
  std::vector<Progress> progress_;
  std::vector<bool> is_seen_;  // patterns of words, by their last segments
  std::unordered_map<std::size_t, Found> best_;
};

// Whether two finds are of one message: they share words, or stand next to each other in a line.
bool are_one_message(const Text& text, const Found& a, const Found& b) {
  constexpr std::size_t kNearWords = 20;
  const Found& first = a.begin < b.begin ? a : b;
  const Found& second = a.begin < b.begin ? b : a;
  if (second.begin < first.end) return true;
  return text.words[first.end - 1].line == text.words[second.begin].line && second.begin - first.end < kNearWords;
}

// The best of each message of the text; users' words only where nothing else is known, and then the best alone.
std::vector<Found> choose(const Knowledge& known, const Text& text, const std::vector<Found>& all) {
  constexpr std::size_t kMaxChosen = 4;
  std::vector<Found> chosen;
  for (const Found& found : all) {
    if (chosen.size() == kMaxChosen) break;
    if (known.messages[found.message].kind == Kind::words && !chosen.empty()) break;
    const auto has_better = [&](const Found& other) { return are_one_message(text, found, other); };
    if (std::ranges::none_of(chosen, has_better)) chosen.push_back(found);
  }
  return chosen;
}

// The line, or what stands around the words that were recognised.
std::string quoted(std::string_view original, const Text& text, const Found& found) {
  constexpr std::size_t kMaxBytes = 197, kBefore = 60;  // and "..."
  const std::size_t at = text.words[found.begin].begin;
  const std::size_t last_end = at == 0 ? std::string::npos : text.letters.rfind('\n', at - 1);
  std::size_t begin = last_end == std::string::npos ? 0 : last_end + 1;
  const std::size_t end = std::min(text.letters.find('\n', at), original.size());
  const bool is_cut = end - begin > kMaxBytes && at - begin > kBefore;
  if (is_cut) begin = at - kBefore;
  const std::string line = doctor::printable(original.substr(begin, end - begin), is_cut ? kMaxBytes - 3 : kMaxBytes);
  return is_cut ? "..." + line : line;
}

}  // namespace

std::span<const Symptom> symptoms() try { return std::span(knowledge().symptoms).first(knowledge().words_count); } catch (...) {
  return {};
}

std::span<const Symptom> known_messages() try {
  return std::span(knowledge().symptoms).subspan(knowledge().words_count);
} catch (...) {
  return {};
}

Diagnosis diagnose(std::string_view text) try {
  const Uncancelled uncancelled;
  const Knowledge& known = knowledge();
  const Text words = split(text);
  std::vector<Found> all = Scan(known, words).run();
  // The most telling first.
  std::ranges::sort(all, {}, [&known](const Found& found) {
    return std::tuple(known.messages[found.message].kind, found.rank(), found.message);
  });
  Diagnosis diagnosis;
  for (const Found& found : choose(known, words, all)) {
    const Symptom& symptom = known.symptoms[found.message];
    diagnosis.lines.push_back({&symptom, words.line_of(found.begin).number, quoted(text, words, found)});
    for (const std::string_view check : symptom.checks) {
      if (std::ranges::find(diagnosis.checks, check) == diagnosis.checks.end()) diagnosis.checks.push_back(check);
    }
  }
  return diagnosis;
} catch (...) {
  return {};
}

}  // namespace gigabar::inline v0
