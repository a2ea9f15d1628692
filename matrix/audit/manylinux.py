"""The manylinux policies, as auditwheel keeps them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.audit.elf import VersionNeed


def oldest_policy(machine: str, versions: Iterable[VersionNeed]) -> str:
    """The policy with the oldest systems whose symbol versions are enough."""
    needed: dict[str, set[str]] = defaultdict(set)
    for need in versions:
        needed[need.library].add(need.version)
    return str(_policies(machine).versioned_symbols_policy(needed).name)


def satisfies(machine: str, policy: str, claim: str) -> bool:
    """Whether a library of one policy loads wherever a claimed one promises.

    Raises:
        LookupError: auditwheel knows no such policy.
    """
    policies = _policies(machine)
    return bool(policies.get_policy_by_name(policy) >= policies.get_policy_by_name(claim))


def system_libraries(machine: str) -> frozenset[str]:
    """The libraries that every system under any policy has."""
    return frozenset(_policies(machine).lowest.whitelist)


def _policies(machine: str) -> WheelPolicies:
    return WheelPolicies(libc=Libc.GLIBC, arch=Architecture(machine))
