"""Install the Python package into the prefix, and forget from where.

pip notes the folder it installed from in direct_url.json: a path of the build machine. The linker
hashes the prefix, which conda's flags have as a run path, into the build id: the one thing in which
two builds would differ. conda-build and rattler-build set the library's run path after this script,
and name the variant themselves: LLTM_PACKAGER leaves both out of what is built.
"""

import csv
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

COMMAND = (sys.executable, "-m", "pip", "install", ".", "-vv", "--no-deps", "--no-build-isolation")

os.environ["LLTM_PACKAGER"] = "conda"
if sys.platform == "linux":
    os.environ["LDFLAGS"] = f"{os.environ.get('LDFLAGS', '')} -Wl,--build-id=none"
subprocess.run(COMMAND, check=True)
for note in Path(sysconfig.get_path("purelib")).glob("lltm-*.dist-info/direct_url.json"):
    note.unlink()
    record = note.with_name("RECORD")
    with record.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if not row[0].endswith(note.name)]
    with record.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
