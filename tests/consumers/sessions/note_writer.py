"""A program that stores versions of reports: ``note_writer.py FOLDER SESSION FIRST LAST``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from repositories import a_report

from deedbook.consumers.sessions.copies import store_report
from deedbook.consumers.sessions.settings import Project

folder, session, first, last = sys.argv[1:]
project = Project(git=Path(folder), files=Path(folder) / "files")
print("ready", flush=True)
sys.stdin.readline()
for version in range(int(first), int(last)):
    stored = store_report(a_report(session.format(version), version), project)
    print(json.dumps([one._asdict() for one in stored]), flush=True)
