"""Whether the packages that are imported are ours: their names are generic, and others may bear them, too.

Nothing but the standard library is imported here: this runs also where what is imported as ``ledger`` is not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "deedbook"
PACKAGES: Final = ("ledger", "projections", "consumers", "deedbook")
_HOUSE: Final = Path(__file__).parents[3]
"""Where this program lies, whatever an import would find."""


def folder_of(package: str) -> Path | None:
    """Return the folder that a package is imported from."""
    spec = find_spec(package)
    return Path(spec.origin).parent.parent if spec is not None and spec.origin is not None else None


def problem_of(package: str) -> str | None:
    """Return what is imported in the place of one of our packages and what to do about it; None where it is ours."""
    # An editable installation lists no packages: there it counts where they lie.
    others = ", ".join(sorted({*_installed_by().get(package, [])} - {DISTRIBUTION}))
    if others:
        return f"{others} also installs {package}: use an environment of its own for {DISTRIBUTION}"
    place = folder_of(package)
    if place in (_HOUSE, _HOUSE / "consumers" / "doors" / "python"):
        return None
    if place is None:
        return f"{package} is not there: install {DISTRIBUTION} again"
    return (
        f"{place / package} is imported in the place of ours in {_HOUSE}: rename that folder, start elsewhere, or take "
        f"{place} out of PYTHONPATH"
    )


@cache
def _installed_by() -> Mapping[str, list[str]]:
    """Return which distributions install each package: read from all of them, which takes a quarter of a second."""
    from importlib.metadata import packages_distributions  # noqa: PLC0415 - slow, and seldom needed

    return packages_distributions()
