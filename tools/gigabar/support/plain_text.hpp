// SPDX-License-Identifier: Apache-2.0
// Text that comes from a machine or from a file, made fit for a terminal, for JSON and for other forms; and paragraphs broken into
// lines.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace gigabar::tool {

// The text as one line of valid UTF-8: line ends and tabulators become spaces, other control characters, direction marks and what
// is no UTF-8 become '?', so that a name can neither move the cursor nor turn the line around. At most `most_bytes`; a longer one
// ends in "...".
std::string plain(std::string_view text, std::size_t most_bytes = 4096);

// The text with other words in the place of these letters.
std::string replaced(std::string_view text, std::initializer_list<std::pair<char, std::string_view>> words);
// As a field of CSV (RFC 4180).
std::string csv_quoted(std::string_view text);

// Lines of at most `width` columns, each after `indent` spaces and ended by a newline. Line ends in the text stay; a line that is
// itself indented (a command) keeps its indentation, and what follows from it too. A word longer than a line is not broken.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent);

}  // namespace gigabar::tool
