// SPDX-License-Identifier: Apache-2.0
// messages.txt: what is known about messages of programs and about users' own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gigabar::doctor {

struct Message {
  // What the text says, from what tells most to what tells least.
  enum class Kind : std::uint8_t {
    cause,   // names what is wrong
    effect,  // only says that something failed
    words,   // a user's own words
  };
  Kind kind = Kind::cause;
  std::size_t line = 0;  // of messages.txt, where it begins
  std::string program;   // empty for words
  std::string symptom;   // the line of the list; for words only
  std::vector<std::string> examples, patterns, checks;
  std::string means, remedy;
};

struct MessageFile {
  std::vector<Message> messages;
  std::vector<std::string> mistakes;  // "line 12: ..."; a message with one is left out
};

// The format is described on top of messages.txt.
MessageFile parse_messages(std::string_view text);

// messages.txt as it was when the library was built.
std::string_view messages_text();

}  // namespace gigabar::doctor
