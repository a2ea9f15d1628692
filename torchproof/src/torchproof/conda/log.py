"""What rattler-build says goes to a file; its errors are terse without it."""

from pathlib import Path

from rattler_build.progress import (
    BuildStepEvent,
    DownloadCompleteEvent,
    DownloadProgressEvent,
    DownloadStartEvent,
    LogEvent,
    ProgressCallback,
)


class Log(ProgressCallback):
    """Appends every message to a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path

    def _write(self, text: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    def on_download_start(self, event: DownloadStartEvent) -> None:
        """A download begins."""
        self._write(f"download {event.url}")

    def on_download_progress(self, event: DownloadProgressEvent) -> None:
        """Nothing is fetched but from this disk."""

    def on_download_complete(self, event: DownloadCompleteEvent) -> None:
        """Nothing is fetched but from this disk."""

    def on_build_step(self, event: BuildStepEvent) -> None:
        """A step begins."""
        self._write(f"{event.step_name}: {event.message}")

    def on_log(self, event: LogEvent) -> None:
        """A message."""
        self._write(f"{event.level}: {event.message}")
