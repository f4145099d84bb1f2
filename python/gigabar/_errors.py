# SPDX-License-Identifier: Apache-2.0
"""The exceptions that calls of the library raise."""


class Error(Exception):
    """A call failed. The record says what was observed and what to do.

    status: what must be done before the same call can succeed: 'invalid_argument', 'out_of_range', 'not_supported',
        'unavailable', 'no_permission', 'out_of_memory', 'out_of_descriptors', 'out_of_bar1', 'busy', 'timed_out',
        'verification_failed', 'bad_file', 'device_error', 'peer_lost' or 'foreign_process'.
    operation: the call. object: its argument, or what it acted on. cause: what was observed.
    remedy: one sentence; empty when there is none. check: the check that `gigabar explain` describes; empty when there is none.
    native: the system's or driver's name of the failure ('ENOMEM'); empty when there is none.
    """

    def __init__(
        self,
        status: str,
        operation: str,
        object: str = "",
        cause: str = "",
        remedy: str = "",
        check: str = "",
        native: str = "",
        message: str = "",
    ) -> None:
        super().__init__(status, operation, object, cause, remedy, check, native, message)
        self.status = status
        self.operation = operation
        self.object = object
        self.cause = cause
        self.remedy = remedy
        self.check = check
        self.native = native
        self._message = message

    def __str__(self) -> str:
        return self._message or f"{self.operation}: {self.object}: {self.cause}; {self.remedy}"


class TimedOut(Error, TimeoutError):
    """The time of a wait is over. Nothing is lost, and the same call can be made again."""
