"""Operations of Azure's resource providers: writes that are accepted, take time, and end or fail.

Owns when an operation ends and in which order. What an operation changes is its provider's. Knows nothing of HTTP.
"""

import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dialect import SYNC, Dialect


class Refused(Exception):
    """An error in ARM's words. source of codes and texts: bodies quoted in public issues of the Go drivers."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        target: str | None = None,
        leaves: str = "nothing",
        details: list[dict] | None = None,
    ):
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code, self.message, self.target = status, code, message, target
        self.details = details
        # What an operation that fails with this has done all the same: "nothing", "all" of it, or a detach that
        # is "stuck" (recorded: "the last detach operation failed").
        self.leaves = leaves


@dataclass
class Operation:
    """A write that was accepted. `finish` changes the state; `failure` is what comes instead."""

    id: str
    resource: str
    started: float
    due: float
    finish: Callable[[], None]
    result: Callable[[], dict | None]
    # The resource as it will be. Documented: RPC, "properties should reflect the update that is in progress".
    preview: dict | None = None
    deletion: bool = False
    # Whether it came from attachDetachDataDisks, whose result is the storage profile (documented: the swagger).
    action: bool = False
    failure: Refused | None = None
    done: bool = False
    # Another one took its place before its end.
    canceled: bool = False
    provider: str = "Microsoft.Compute"
    # The part of a resource that was written: its list and name.
    part: tuple[str, str] | None = None
    polls: list[float] = field(default_factory=list)


class Provider:
    """The operations of one resource provider. All methods are called with the cloud's lock held."""

    namespace: str

    def __init__(self, dialect: Dialect):
        self.dialect = dialect
        self.operations: dict[str, Operation] = {}
        # Errors for the next operations on a resource type ("disks", "virtualMachines") that are accepted.
        self.late_failures: dict[str, deque[Refused]] = defaultdict(deque)

    def settle(self) -> None:
        """Ends the operations whose time has come, in that order."""
        now = time.monotonic()
        for operation in sorted(self.operations.values(), key=lambda each: each.due):
            if operation.done or operation.due > now:
                continue
            operation.done = True
            if operation.failure is None or operation.failure.leaves == "all":
                operation.finish()
            else:
                self._abandon(operation)
            self._ended(operation)

    def running(self, resource: str) -> Operation | None:
        """The operation on a resource that has not ended."""
        return next((o for o in self.operations.values() if o.resource == resource and not o.done), None)

    def _accept(
        self, kind: str, resource: str, announced: str, finish, result, preview=None, deletion=False
    ) -> Operation:
        now = time.monotonic()
        takes = 0.0 if announced == SYNC else self.dialect.duration
        failures = self.late_failures[kind]
        operation = Operation(
            str(uuid.uuid4()),
            resource,
            now,
            now + takes,
            finish,
            result,
            preview=preview,
            deletion=deletion,
            failure=failures.popleft() if failures else None,
            provider=self.namespace,
        )
        self.operations[operation.id] = operation
        self._accepted(operation)
        self.settle()
        return operation

    def _accepted(self, operation: Operation) -> None:
        """Follows the acceptance of a write."""

    def _abandon(self, operation: Operation) -> None:
        """Takes an operation back that has failed."""
        raise NotImplementedError

    def _ended(self, operation: Operation) -> None:
        """Follows the end of an operation."""
        raise NotImplementedError
