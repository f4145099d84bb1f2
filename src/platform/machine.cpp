// SPDX-License-Identifier: Apache-2.0
#include "gigabar/machine.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "base/errors.hpp"
#include "base/output_file.hpp"
#include "base/uncancelled.hpp"
#include "platform/driver_answers.hpp"
#include "platform/stored_json.hpp"
#include "platform/system_archive.hpp"
#include "platform/system_files.hpp"
#include "platform/system_sources.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr const char* kOpen = "open machine";
constexpr const char* kCapture = "capture machine";
constexpr const char* kAnswersFile = "/gigabar-answers.json";

Error named(Error error, const std::string& path) {
  edit(error).operation = kOpen;
  edit(error).object = error.record().object.empty() ? path : path + ": " + error.record().object;
  return error;
}

Result<DriverAnswers> answers_of_folder(const SystemFiles& files) {
  FileText text = files.read(kAnswersFile, kMaxArchiveBytes);
  if (text.state == FileState::missing) return no_answers();
  if (!text.is_present()) {
    return make_error(text.state == FileState::unreadable ? Status::no_permission : Status::bad_file, kOpen, kAnswersFile,
                      text.reason, "make it a readable file, or remove it");
  }
  return driver_answers_of(text.content);
}

}  // namespace

struct Machine::State {
  explicit State(SystemFiles its_files) : files(std::move(its_files)) {}

  SystemFiles files;
  std::string remark;
  std::once_flag asked;
  DriverAnswers answers;
};

Machine::Machine(std::shared_ptr<State> state, bool is_live, std::string origin)
    : state_(std::move(state)), is_live_(is_live), origin_(std::move(origin)) {}

Machine Machine::here() { return {std::make_shared<State>(SystemFiles::live()), true, "this machine"}; }

Result<Machine> Machine::open(const std::string& path) try {
  const Uncancelled uncancelled;
  struct stat found{};
  if (::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) {
    Result<SystemFiles> files = SystemFiles::of_folder(path);
    if (!files) return std::move(files).error();
    Result<DriverAnswers> answers = answers_of_folder(*files);
    if (!answers) return named(std::move(answers).error(), path);
    auto state = std::make_shared<State>(std::move(*files));
    state->answers = std::move(*answers);
    return Machine(std::move(state), false, path);
  }
  const FileText text = read_regular(AT_FDCWD, path, 0, kMaxArchiveBytes);
  if (text.state == FileState::missing) {
    return make_error(Status::invalid_argument, kOpen, path, "there is no such file or folder",
                      "name an archive or a folder that holds sys/ and proc/ of a machine", errno_code(ENOENT));
  }
  if (!text.is_present()) {
    return make_error(text.state == FileState::unreadable ? Status::no_permission : Status::bad_file, kOpen, path, text.reason,
                      "name an archive of a machine that you may read");
  }
  Result<Archive> archive = read_archive(text.content);
  if (!archive) return named(std::move(archive).error(), path);
  auto state = std::make_shared<State>(std::move(archive->files));
  state->remark = std::move(archive->head.remark);
  state->answers = std::move(archive->head.answers);
  return Machine(std::move(state), false, path);
} catch (...) {
  return error_of_exception("open");
}

const std::string& Machine::remark() const noexcept { return state_->remark; }

const SystemFiles& Machine::files() const noexcept { return state_->files; }

const DriverAnswers& Machine::answers() const {
  if (is_live_) std::call_once(state_->asked, [this] { state_->answers = ask_drivers(); });
  return state_->answers;
}

Result<std::string> Machine::archive() const try {
  const Uncancelled uncancelled;
  if (!is_live_) {
    return make_error(Status::not_supported, kCapture, origin_, "it is a capture itself",
                      "copy it instead, or capture a live machine");
  }
  return write_archive(files(), {{}, stored::date_now(), answers()});
} catch (...) {
  return error_of_exception("archive");
}

Result<void> Machine::capture(const std::string& archive_path) const try {
  const Uncancelled uncancelled;
  auto text = archive();
  if (!text) return std::move(text).error();
  if (const auto fault = write_output(archive_path, *text)) {
    // A full disk or a broken one is no wrong argument, but there is nothing else to change for the caller than the place.
    return make_error(Status::invalid_argument, kCapture, archive_path, "the file " + fault->cause,
                      "name a file in a folder that you may write to and that has room", errno_code(fault->code));
  }
  return {};
} catch (...) {
  return error_of_exception("capture");
}

}  // namespace gigabar::inline v0
