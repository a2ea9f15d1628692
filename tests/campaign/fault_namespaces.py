"""A disk or no network for one fault: in a namespace, which a user without rights may make, too."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

# One of this user's own, where the kernel lets users make them; else one that only root may make.
BEGINNINGS = {
    ("unshare", "--user", "--map-root-user"): ("--user", "--preserve-credentials"),
    ("unshare",): (),
}
MOUNT = 'mount -t tmpfs -o "size=$1" none "$0" && echo mounted && exec cat'
REFUSED = "neither as this user nor as root may a namespace be made here"


def without_network() -> tuple[str, ...] | None:
    """What a command begins with to have no network; None where that may not be done."""
    for begin in BEGINNINGS:
        command = (*begin, "--net")
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return None


@dataclass(frozen=True)
class Disk:
    """A tmpfs that a process which enters its namespace sees; it goes with its holder.

    Attributes:
        folder: it is mounted there.
        enter: what a command begins with to see it.
    """

    folder: Path
    enter: tuple[str, ...]
    holder: subprocess.Popen[str]

    @property
    def seen(self) -> Path:
        """The folder, as it is seen from outside."""
        return Path(f"/proc/{self.holder.pid}/root{self.folder.resolve()}")

    def remount(self, options: str) -> None:
        """Change what it may hold, or whether it may be written."""
        # With a source, mount(8) leaves out the options of now: a uid that this namespace lacks.
        command = [*self.enter, "mount", "-o", f"remount,{options}", "none", str(self.folder)]
        subprocess.run(command, check=True)

    def close(self) -> None:
        """Let go of it."""
        self.holder.communicate()


def mount(folder: Path, size: str) -> Disk | None:
    """Mount a tmpfs on a folder; None where that may not be done."""
    for begin, options in BEGINNINGS.items():
        holder = subprocess.Popen(
            [*begin, "--mount", "sh", "-c", MOUNT, str(folder), size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert holder.stdout is not None
        if holder.stdout.readline() == "mounted\n":
            enter = ("nsenter", f"--target={holder.pid}", "--mount", *options)
            return Disk(folder, enter, holder)
        holder.communicate()
    return None
