"""The sizes raced on a GPU, where the tool that starts the races finds them without torch."""

from __future__ import annotations

BY_OP = {
    "cell": ("16x32x128",),
    "sequence": (
        "64x16x32x128",
        "128x64x512x512",
        "512x64x1024x1024",
        "128x1x512x512",
        "100x256x256x256",
    ),
}
"""B, F, S of a cell; T, B, F, S of a sequence."""
