"""Whether pytest tested the installed wheel, and not the sources beside the tests."""

import shutil
from dataclasses import dataclass
from pathlib import Path

PLUGIN = Path(__file__).with_name("imported_plugin.py")


@dataclass(frozen=True)
class ImportCheck:
    """Notes where a session of pytest imports the package from.

    Attributes:
        installed: where the wheel has put it.
        folder: of the plugin and its note.
    """

    installed: Path
    folder: Path

    def prepare(self) -> dict[str, str]:
        """Put the plugin into an empty folder; the variable that it reads."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        shutil.copy(PLUGIN, self.folder)
        return {"TORCHPROOF_INSTALLED": str(self.installed)}

    def failure(self) -> str:
        """Why the session tested something else than the wheel; empty where it did not."""
        note = self.folder / "place.txt"
        if not note.is_file():
            return ""
        return (
            f"{self.installed.name} was imported from {note.read_text(encoding='utf-8')}, not from "
            f"the installed wheel in {self.installed}: add --import-mode=importlib to `arguments` "
            "of the suite, or move the package's folder below src; where pytest's `pythonpath` "
            "names it, add --override-ini=pythonpath= to them, too"
        )
