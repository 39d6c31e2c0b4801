"""The action for GitHub installs only packages with known hashes, and its check answers as the command does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import inside
import msgspec
import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy" / "github"


def steps() -> dict[str, dict[str, Any]]:
    """Return the steps of the action by their names."""
    action = msgspec.yaml.decode((FOLDER / "action.yml").read_bytes())
    return {step["name"]: step for step in action["runs"]["steps"]}


def test_each_package_is_installed_by_its_hash() -> None:
    run = steps()["Install Deedbook"]["run"]
    locks = re.findall(r"--require-hashes .*-r \"\$sources/(\S+)\"", run)
    assert locks == ["locks/build.lock", "locks/demo.lock"]
    assert all((ROOT / lock).is_file() for lock in locks)
    assert run.count("install[@]") == len(locks)
    assert "--no-deps" in run


def test_no_input_is_a_part_of_a_script() -> None:
    assert not any("${{" in step["run"] for step in steps().values())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone with an unsigned handoff file. Its committed state pins the fingerprint of a ledger's root."""
    folder = tmp_path / "clone/docs/handoffs"
    folder.mkdir(parents=True)
    (folder / "ROOT").write_text("ab" * 32 + "\n")
    git = ["git", "-C", str(tmp_path / "clone"), "-c", "user.name=x", "-c", "user.email=x@y"]
    for words in (["init", "-q"], ["add", "docs"], ["commit", "-q", "-m", "x"], ["branch", "base"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    (folder / "forged.md").write_text("# Handoff: x\n\n## Meta\n- Status: verified\n- From: a\n- To: b\n\n## Log\n")
    return tmp_path / "clone"


def run(step: str, checkout: Path, folder: Path = FOLDER, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does, with the action in a folder."""
    places = {"GITHUB_ACTION_PATH": str(folder), "RUNNER_TEMP": str(checkout.parent), "HOME": str(checkout.parent)}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps()[step]["run"]],
        cwd=checkout,
        env={"PATH": os.environ["PATH"]} | places | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def check(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the step that checks handoff files."""
    python = checkout.parent / "deedbook/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    given = {"FOLDER": "docs/handoffs", "BASE": "base", "REQUIRE": "verified", "ROOT": ""} | variables
    return run("Check the files", checkout, **given)


def test_installation_runs_no_program_of_the_pull_request(checkout: Path) -> None:
    """A pull request may have files named like Python's modules. If these were run, they could pass every check."""
    for name in ("venv", "pip", "runpy", "ensurepip", "shutil"):
        (checkout / f"{name}.py").write_text('open("ran", "w")\n')
    action = checkout.parent / "deedbook-sources/deploy/github"
    action.mkdir(parents=True)
    locks = checkout.parent / "deedbook-sources/locks"
    locks.mkdir()
    for lock in ("build.lock", "demo.lock"):
        (locks / lock).touch()
    done = run("Install Deedbook", checkout, action)
    assert done.returncode == 0, done.stderr
    assert not (checkout / "ran").exists()


def test_the_check_refuses_with_file_and_line(checkout: Path) -> None:
    done = check(checkout)
    assert done.returncode == 6, done.stderr
    matcher, stop, *lines, resume = done.stdout.splitlines()
    assert matcher == f"::add-matcher::{FOLDER}/matcher.json"
    assert stop == f"::stop-commands::{resume.strip(':')}"
    (pattern,) = json.loads((FOLDER / "matcher.json").read_text())["problemMatcher"][0]["pattern"]
    (match,) = filter(None, (re.match(pattern["regexp"], line) for line in lines))
    assert match.groups() == ("docs/handoffs/forged.md", "1", "missing: its signed file is missing")
    said = inside.deed("handoff", "check-files", "--base", "base", cwd=checkout)
    assert said.out.splitlines() == lines


def test_hostile_inputs_are_arguments_only(checkout: Path) -> None:
    done = check(checkout, FOLDER="$(touch ran)", BASE="--root=x; touch ran", REQUIRE="verified")
    assert done.returncode == 3, done.stderr
    assert not (checkout / "ran").exists()
