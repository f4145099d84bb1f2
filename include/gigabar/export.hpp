// SPDX-License-Identifier: Apache-2.0
// Which symbols leave libgigabar.so: everything is hidden unless it is marked here. The C++ interface lives in the inline namespace
// v0, and programs are built again with each version (docs/compatibility.md).
#pragma once

#define GIGABAR_API __attribute__((visibility("default")))
