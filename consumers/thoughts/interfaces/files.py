"""The command `/tot` of harnesses."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SLASH_COMMAND: Final = Path(__file__).with_name("slash_command.md")
