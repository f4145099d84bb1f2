// SPDX-License-Identifier: Apache-2.0
#include "support/memory_file.hpp"

#include <spawn.h>

namespace gigabar::tool {

int start_program(std::vector<std::string> words, const MemoryFile* input, const MemoryFile& output, const MemoryFile& messages,
                  ChildProcess& child) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (input != nullptr) posix_spawn_file_actions_adddup2(&actions, input->number(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, messages.number(), STDERR_FILENO);
  pid_t process = -1;
  const int code = posix_spawnp(&process, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code == 0) child = ChildProcess(process);
  return code;
}

}  // namespace gigabar::tool
