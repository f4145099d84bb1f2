/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface of Gigabar: C11, for C programs and for other languages' bindings. Link with libgigabar.so (pkg-config gigabar).
 *
 * What is declared here keeps its meaning as long as the library is called libgigabar.so.1 (docs/compatibility.md): symbols have
 * the version GIGABAR_1, numbers are never given away, structures grow at their end. */
#ifndef GIGABAR_H
#define GIGABAR_H

#include <gigabar/fabric.h>
#include <gigabar/machine.h>
#include <gigabar/mapping.h>
#include <gigabar/status.h>

#endif
