"""The manylinux policies, as auditwheel keeps them."""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies

from torchproof.audit.elf import Elf

MACHINES = frozenset(row.value for row in Architecture)
HOME = Architecture.x86_64.value  # the libraries of a machine without a policy go by the same names


def oldest_policy(libraries: Sequence[Elf]) -> str:
    """The policy with the oldest systems that serve all of some libraries; "linux_..." is none.

    Every one is of systems with glibc.
    """
    machine = libraries[0].machine
    if machine not in MACHINES or any(each.c_library == "musl" for each in libraries):
        return f"linux_{machine}"
    needed: dict[str, set[str]] = defaultdict(set)
    for need in (need for each in libraries for need in each.versions):
        needed[need.library].add(need.version)
    return str(_policies(machine).versioned_symbols_policy(needed).name)


def glibc_of(policy: str) -> str | None:
    """The C library of a policy's systems: "2.34" of manylinux_2_34_x86_64, None of linux."""
    match = re.match(r"manylinux_(\d+)_(\d+)_", policy)
    return f"{match[1]}.{match[2]}" if match else None


def satisfies(machine: str, policy: str, claim: str) -> bool:
    """Whether a library of one policy loads wherever a claimed one promises."""
    policies = _policies(machine)
    found, claimed = policies.get_policy_by_name(policy), policies.get_policy_by_name(claim)
    return int(found.priority) >= int(claimed.priority)  # the oldest systems come first


def known(machine: str, policy: str) -> bool:
    """Whether auditwheel has a policy of that name."""
    if machine not in MACHINES:
        return False
    return any(policy in (row.name, *row.aliases) for row in _policies(machine))


def system_libraries(machine: str) -> frozenset[str]:
    """The libraries that every system under any policy has."""
    return frozenset(_policies(machine if machine in MACHINES else HOME).lowest.whitelist)


@cache
def _policies(machine: str) -> WheelPolicies:
    return WheelPolicies(libc=Libc.GLIBC, arch=Architecture(machine))
