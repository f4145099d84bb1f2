# SPDX-License-Identifier: Apache-2.0
"""The machine acs_redirect, captured by an ordinary user: the first 64 bytes of each configuration space, no kernel log."""

from . import acs_redirect


def build():
    machine = acs_redirect.build("unprivileged", "The server acs_redirect as an ordinary user sees it.", can_lock_memory=False,
                                 memlock_bytes=8 << 20)
    machine.hide("/boot/config-6.8.0-79-generic")
    return machine.without_privileges()
