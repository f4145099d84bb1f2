// SPDX-License-Identifier: Apache-2.0
// fmt's functions, for the whole program: its headers declare them, and this file defines them.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// Templates that its headers promise to find elsewhere.
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API void buffer<char>::append(const char*, const char*);
#if FMT_VERSION >= 100000
template FMT_API void vformat_to(buffer<char>&, string_view, vformat_args<char>::type, locale_ref);
#endif

}  // namespace detail
FMT_END_NAMESPACE
