// SPDX-License-Identifier: Apache-2.0
#include "softhca/words.hpp"

#include <array>

namespace gigabar::tool::softhca {
namespace {

constexpr std::array kOps = {Op::write, Op::inline_write, Op::read, Op::fetch_add, Op::compare_swap};

constexpr std::array kSyndromes = {Syndrome::local_length,
                                   Syndrome::local_operation,
                                   Syndrome::local_protection,
                                   Syndrome::flushed,
                                   Syndrome::bad_response,
                                   Syndrome::local_access,
                                   Syndrome::remote_request,
                                   Syndrome::remote_access,
                                   Syndrome::remote_operation,
                                   Syndrome::retries_exceeded,
                                   Syndrome::not_ready_retries_exceeded,
                                   Syndrome::remote_aborted};

}  // namespace

std::span<const Op> all_ops() noexcept { return kOps; }
std::span<const Syndrome> all_syndromes() noexcept { return kSyndromes; }

std::string_view name_of(Op op) noexcept {
  switch (op) {
    case Op::write: return "write";
    case Op::inline_write: return "inline-write";
    case Op::read: return "read";
    case Op::fetch_add: return "fetch-add";
    case Op::compare_swap: return "compare-swap";
  }
  return "unknown";
}

std::string_view name_of(ScopeKind scope) noexcept { return scope == ScopeKind::thread ? "thread" : "block"; }

std::string_view name_of(Sharing sharing) noexcept {
  switch (sharing) {
    case Sharing::exclusive: return "exclusive";
    case Sharing::block: return "block";
    case Sharing::device: return "device";
  }
  return "unknown";
}

std::string_view name_of(Syndrome syndrome) noexcept {
  switch (syndrome) {
    case Syndrome::none: return "none";
    case Syndrome::local_length: return "local_length";
    case Syndrome::local_operation: return "local_operation";
    case Syndrome::local_protection: return "local_protection";
    case Syndrome::flushed: return "flushed";
    case Syndrome::bad_response: return "bad_response";
    case Syndrome::local_access: return "local_access";
    case Syndrome::remote_request: return "remote_request";
    case Syndrome::remote_access: return "remote_access";
    case Syndrome::remote_operation: return "remote_operation";
    case Syndrome::retries_exceeded: return "retries_exceeded";
    case Syndrome::not_ready_retries_exceeded: return "not_ready_retries_exceeded";
    case Syndrome::remote_aborted: return "remote_aborted";
  }
  return "unknown";
}

}  // namespace gigabar::tool::softhca
