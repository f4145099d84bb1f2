# SPDX-License-Identifier: Apache-2.0
"""The small server with ACS switched on below its PCIe switch: what GPU and adapter send each other goes up to the root."""

from blocks.config_space import (ACS_COMPLETION_REDIRECT, ACS_REQUEST_REDIRECT, ACS_SOURCE_VALIDATION, ACS_UPSTREAM_FORWARDING)

from .small_server import SmallServer


def build(name="acs_redirect", story="A server with ACS redirection below its PCIe switch.", **options):
    server = SmallServer(name, story, **options)
    server.above_gpu.acs = (ACS_SOURCE_VALIDATION | ACS_REQUEST_REDIRECT | ACS_COMPLETION_REDIRECT | ACS_UPSTREAM_FORWARDING)
    return server.machine.finish()
