// SPDX-License-Identifier: Apache-2.0
// A libpmix.so.2 of rank 1 of a job of two, whose server answers as a test says: gigabar_fake_pmix_answer() for a key,
// gigabar_fake_pmix_fail() for a call. A key of which nothing was said is not there. An answer without a type never comes.
#include <pmix.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace {

struct Answer {
  pmix_status_t status = PMIX_ERR_NOT_FOUND;
  int type = PMIX_UINT32;
  std::uint32_t number = 0;
  std::string bytes;
};
std::map<std::string, Answer> answers{{PMIX_JOB_SIZE, {PMIX_SUCCESS, PMIX_UINT32, 2, {}}}};
std::map<std::string, pmix_status_t> failing;
auto& unanswered = *new std::vector<void*>;  // what a server holds on to, to the end

pmix_status_t status_of(const char* call) {
  const auto found = failing.find(call);
  return found == failing.end() ? PMIX_SUCCESS : found->second;
}

}  // namespace

// pmix.h declares its functions without a visibility.
#pragma GCC visibility push(default)
extern "C" {

void gigabar_fake_pmix_answer(const char* key, int status, int type, std::uint32_t number, const char* bytes) {
  answers[key] = {status, type, number, bytes};
}
void gigabar_fake_pmix_fail(const char* call, int status) { failing[call] = status; }

pmix_status_t PMIx_Init(pmix_proc_t* self, pmix_info_t[], std::size_t) {
  std::snprintf(self->nspace, sizeof self->nspace, "a job of the fake");
  self->rank = 1;
  return PMIX_SUCCESS;
}
pmix_status_t PMIx_Finalize(const pmix_info_t[], std::size_t) { return PMIX_SUCCESS; }
pmix_status_t PMIx_Put(pmix_scope_t, const char[], pmix_value_t*) { return status_of("PMIx_Put"); }
pmix_status_t PMIx_Commit() { return status_of("PMIx_Commit"); }
pmix_status_t PMIx_Get_nb(const pmix_proc_t*, const char key[], const pmix_info_t[], std::size_t, pmix_value_cbfunc_t answered,
                          void* holder) {
  if (const pmix_status_t status = status_of("PMIx_Get_nb"); status != PMIX_SUCCESS) return status;
  const auto found = answers.find(key);
  Answer answer = found == answers.end() ? Answer{} : found->second;
  if (answer.type < 0) {
    unanswered.push_back(holder);
    return PMIX_SUCCESS;
  }
  pmix_value_t value{};
  value.type = static_cast<pmix_data_type_t>(answer.type);
  if (answer.type == PMIX_BYTE_OBJECT) {
    value.data.bo = {answer.bytes.data(), answer.bytes.size()};
  } else {
    value.data.uint32 = answer.number;
  }
  answered(answer.status, &value, holder);
  return PMIX_SUCCESS;
}
const char* PMIx_Error_string(pmix_status_t) { return "words of the fake server"; }

}  // extern "C"
#pragma GCC visibility pop
