// SPDX-License-Identifier: Apache-2.0
#include "driver/pmix/pmix.hpp"

#if GIGABAR_HAS_PMIX
#include <pmix.h>
#define GIGABAR_SYMBOLS "driver/pmix/symbols.def"
#endif
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "base/clock.hpp"
#include "base/errors.hpp"
#include "base/in_place.hpp"
#include "driver/loader.hpp"

namespace gigabar::pmix {
namespace detail {

// Shared with the library, whose own thread answers it.
struct Question : InPlace {
  ~Question() { ::explicit_bzero(bytes.data(), bytes.capacity()); }  // they may be the job's key

  std::string name;  // "gigabar.address.1 of rank 3"
  mutable std::mutex mutex;
  mutable std::condition_variable is_answered;
  bool has_answer = false;
  int status = 0;
  bool has_known_type = true;
  std::string bytes;
  std::uint64_t number = 0;
};

}  // namespace detail

namespace {

#include "driver/functions.inc"

const LibraryOf<Functions>& library() {
  static const auto instance = load_functions<Functions>(
      "libpmix.so.2", "GIGABAR_PMIX_LIBRARY", "install the launcher's PMIx library (package libpmix2 or pmix)",
      "install PMIx 3 or newer", "PMIx", "configure with pmix.h (package libpmix-dev or pmix-devel)");
  return instance;
}

#if GIGABAR_HAS_PMIX

std::string words_of(pmix_status_t status) {
  const char* words = library().PMIx_Error_string != nullptr ? library().PMIx_Error_string(status) : nullptr;
  return words != nullptr ? words : "the library gives no words for it";
}

Status status_of(pmix_status_t status) {
  switch (status) {
    case PMIX_ERR_UNREACH:
    case PMIX_ERR_LOST_CONNECTION: return Status::peer_lost;
    case PMIX_ERR_TIMEOUT: return Status::timed_out;
    case PMIX_ERR_NO_PERMISSIONS: return Status::no_permission;
    case PMIX_ERR_NOMEM: return Status::out_of_memory;
    default: return Status::device_error;
  }
}

Error failed(const char* call, const std::string& object, pmix_status_t status, std::string remedy = {}) {
  return make_error(status_of(status), call, object, text(call, " failed: ", words_of(status)), std::move(remedy),
                    {NativeDomain::none, status, text("PMIx status ", status)});
}

// The server of this process. Left when the process exits: a launcher takes a process that joined and did not leave for a crashed
// one.
class Server : InPlace {
 public:
  ~Server() {
    // A forked child has its parent's connection in its memory and must not close it.
    if (process_ == ::getpid()) library().PMIx_Finalize(nullptr, 0);
  }

  Result<void> join() {
    if (process_ == ::getpid()) return {};
    if (process_ != 0)
      return make_error(Status::foreign_process, "join", "the PMIx server", "the parent of this forked process joined it");
    const pmix_status_t status = library().PMIx_Init(&self_, nullptr, 0);
    if (status != PMIX_SUCCESS) {
      Error error = failed("PMIx_Init", "the launcher's server", status,
                           "start the program with mpirun or srun --mpi=pmix, or unset PMIX_RANK");
      if (error.status() == Status::peer_lost || error.status() == Status::device_error) edit(error).status = Status::unavailable;
      return error;
    }
    process_ = ::getpid();
    return {};
  }

  bool is_joined() const { return process_ == ::getpid(); }
  const pmix_proc_t& self() const { return self_; }

 private:
  pmix_proc_t self_{};
  pid_t process_ = 0;
};

Server& server() {
  static Server instance;
  return instance;
}

void keep_value(detail::Question& question, const pmix_value_t& value) {
  switch (value.type) {
    case PMIX_BYTE_OBJECT:
      if (value.data.bo.bytes != nullptr) question.bytes.assign(value.data.bo.bytes, value.data.bo.size);
      return;
    case PMIX_UINT32: question.number = value.data.uint32; return;
    case PMIX_UINT16: question.number = value.data.uint16; return;
    default: question.has_known_type = false; return;
  }
}

// In a thread of the library, or inside PMIx_Get_nb. `holder` is the share that was given to the library.
void on_answer(pmix_status_t status, pmix_value_t* value, void* holder) {
  const std::unique_ptr<std::shared_ptr<detail::Question>> held(static_cast<std::shared_ptr<detail::Question>*>(holder));
  detail::Question& question = **held;
  const std::lock_guard lock(question.mutex);
  question.has_answer = true;
  question.status = status == PMIX_SUCCESS && value == nullptr ? PMIX_ERR_NOT_FOUND : status;
  if (question.status == PMIX_SUCCESS) keep_value(question, *value);
  question.is_answered.notify_all();
}

Result<std::shared_ptr<detail::Question>> ask(pmix_rank_t rank, const std::string& key, const std::string& name) {
  auto question = std::make_shared<detail::Question>();
  question->name = name;
  pmix_proc_t whom = server().self();
  whom.rank = rank;
  auto holder = std::make_unique<std::shared_ptr<detail::Question>>(question);
  const pmix_status_t status = library().PMIx_Get_nb(&whom, key.c_str(), nullptr, 0, on_answer, holder.get());
  if (status == PMIX_SUCCESS) {
    holder.release();  // NOLINT(bugprone-unused-return-value): on_answer owns it
  } else if (status == PMIX_ERR_NOT_FOUND) {
    question->has_answer = true;
    question->status = status;
  } else {
    return failed("PMIx_Get_nb", name, status);
  }
  return question;
}

bool wait_for(const detail::Question& question, std::int64_t deadline_ns) {
  std::unique_lock lock(question.mutex);
  const auto left = std::chrono::nanoseconds(std::max<std::int64_t>(deadline_ns - now_ns(), 0));
  return question.is_answered.wait_for(lock, left, [&question] { return question.has_answer; });
}

// What the server knows of the job itself: it never depends on another rank.
Result<std::optional<std::uint32_t>> job_number(pmix_rank_t rank, const char* key, std::int64_t deadline_ns) {
  const auto question = ask(rank, key, key);
  if (!question) return question.error();
  if (!wait_for(**question, deadline_ns))
    return make_error(Status::timed_out, "PMIx_Get_nb", key, "the launcher's server did not answer before the deadline");
  const std::lock_guard lock((*question)->mutex);
  if ((*question)->status == PMIX_ERR_NOT_FOUND) return std::optional<std::uint32_t>();
  if ((*question)->status != PMIX_SUCCESS) return failed("PMIx_Get_nb", key, (*question)->status);
  if (!(*question)->has_known_type || (*question)->number > UINT32_MAX) return std::optional<std::uint32_t>();
  return std::optional<std::uint32_t>(static_cast<std::uint32_t>((*question)->number));
}

Result<void> require_joined(const char* operation, const std::string& object) {
  if (availability().is_ok() && server().is_joined()) return {};
  return make_error(Status::unavailable, operation, object, "this process has not joined a PMIx server");
}

#endif

}  // namespace

const Availability& availability() { return library().availability; }

#if GIGABAR_HAS_PMIX

Result<Membership> join(std::int64_t deadline_ns) {
  if (!availability().is_ok()) return make_error("join", "the PMIx server", availability());
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  if (Result<void> joined = server().join(); !joined) return std::move(joined).error();
  Membership found;
  found.name_space.assign(server().self().nspace, ::strnlen(server().self().nspace, sizeof(pmix_nspace_t)));
  found.rank = server().self().rank;
  const auto count = job_number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, deadline_ns);
  if (!count) return count.error();
  if (!*count || **count == 0 || found.rank >= **count)
    return make_error(Status::device_error, "join", text("rank ", found.rank, " of PMIx job ", found.name_space),
                      "the launcher's server gives no job size above that rank");
  found.rank_count = **count;
  const auto local_rank = job_number(found.rank, PMIX_LOCAL_RANK, deadline_ns);
  if (local_rank) found.local_rank = *local_rank;
  const auto local_count = job_number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, deadline_ns);
  if (local_count) found.local_count = *local_count;
  return found;
}

Result<void> put(const std::string& key, const std::string& bytes) {
  if (Result<void> joined = require_joined("put", key); !joined) return joined;
  pmix_value_t value{};
  value.type = PMIX_BYTE_OBJECT;
  value.data.bo.bytes = const_cast<char*>(bytes.data());  // only read
  value.data.bo.size = bytes.size();
  if (const pmix_status_t status = library().PMIx_Put(PMIX_GLOBAL, key.c_str(), &value); status != PMIX_SUCCESS)
    return failed("PMIx_Put", key, status);
  const pmix_status_t status = library().PMIx_Commit();
  if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) return failed("PMIx_Commit", key, status);
  return {};
}

Result<Fetch> fetch(std::uint32_t rank, const std::string& key) {
  if (Result<void> joined = require_joined("fetch", key); !joined) return std::move(joined).error();
  auto question = ask(rank, key, text(key, " of rank ", rank));
  if (!question) return question.error();
  return Fetch(std::move(*question));
}

bool Fetch::has_answer() const {
  const std::lock_guard lock(question_->mutex);
  return question_->has_answer;
}

bool Fetch::wait(std::int64_t deadline_ns) const { return wait_for(*question_, deadline_ns); }

Result<std::optional<std::string>> Fetch::answer() const {
  const std::lock_guard lock(question_->mutex);
  // A server that gave up waiting for the rank's value has not seen it either.
  if (question_->status == PMIX_ERR_NOT_FOUND || question_->status == PMIX_ERR_TIMEOUT) return std::optional<std::string>();
  if (question_->status != PMIX_SUCCESS) return failed("PMIx_Get_nb", question_->name, question_->status);
  if (!question_->has_known_type || question_->number != 0)
    return make_error(Status::bad_file, "fetch", question_->name, "the value in the PMIx store is no byte object");
  return std::optional<std::string>(question_->bytes);
}

#else

Result<Membership> join(std::int64_t) { return make_error("join", "the PMIx server", availability()); }
Result<void> put(const std::string& key, const std::string&) { return make_error("put", key, availability()); }
Result<Fetch> fetch(std::uint32_t, const std::string& key) { return make_error("fetch", key, availability()); }

// No object of this class is ever made in such a build.
bool Fetch::has_answer() const { return true; }
bool Fetch::wait(std::int64_t) const { return true; }
Result<std::optional<std::string>> Fetch::answer() const { return make_error("fetch", question_->name, availability()); }

#endif

}  // namespace gigabar::pmix
