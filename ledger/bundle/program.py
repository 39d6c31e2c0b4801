"""The members of a bundle for verification without Deedbook: ``verify.py`` and ``schemas.json``.

The program is written in parts of a few hundred lines (``standalone``) and joined into one file. The join merges the
imports and sets one constant, the hash of ``schemas.json``; it changes nothing else. The parts import only each other,
and Deedbook's own verifiers do not use them, with one exception: ``page``, which makes ``index.html`` and decides
nothing.

``schemas.json`` has three tables: the fields of each kind, generated from the types that the gate decodes with, the
fields that name blobs, and the rules of ``proto/rules``. Its hash is in the program, which the reader has to trust
anyway.
"""

from __future__ import annotations

import ast
import json
import sys
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, Final

import msgspec
from msgspec import inspect

from deedbook.ledger.events import CORE_KINDS
from deedbook.ledger.events.blob import ARTIFACT_FIELDS, SEALABLE_FIELDS
from deedbook.ledger.events.body import Body
from deedbook.ledger.events.imported import MAPPED, mapped_types
from deedbook.ledger.events.remnant import is_kind_erasable, text_fields, types_in
from deedbook.ledger.families import CORE_NAMES
from deedbook.ledger.format.codec import encode_canonical
from deedbook.ledger.lifecycle.rules import FAMILIES, read_rules

PARTS: Final = ("proofs", "declared", "form", "authority", "rules", "page", "members", "receipt", "audit")
_FOR_READERS: Final = frozenset({"title", "description"})
_INSTALL: Final = 'sys.exit(f"{error}: this program needs two packages: python -m pip install blake3 pynacl")'


@cache
def schemas() -> bytes:
    """Return the tables as canonical JSON: the fields of each kind, in a subset of JSON Schema, and the rules.

    ``blobs`` has the path of the field that names a blob, for each kind that is incomplete without it, and
    ``artifacts`` the path of the texts that may name a kept artifact. ``sealable`` has the paths of the texts that may
    be sealed references. ``texts`` has, for each type, the fields that are erased with a body, and how. ``erasable``
    are the kinds whose bodies may be erased, and ``reserved`` the names that no family of a package may have.
    """
    kinds = CORE_KINDS  # the program is the same in every installation, also if families are installed
    ids = {kind.stream: kind.id_type for kind in kinds.values() if kind.id_type is not str}
    mapped = {kind: mapped_types(kind) for kind in MAPPED}
    types: list[Any] = [*dict.fromkeys([Body, *(kind.data for kind in kinds.values()), *sum(mapped.values(), ())])]
    _, definitions = msgspec.json.schema_components(types, ref_template="{name}")
    for struct in types:  # msgspec's schemas leave out the range of integer keys
        for field in inspect.type_info(struct).fields:  # type: ignore[attr-defined]
            keys = getattr(getattr(field.type, "key_type", None), "type", None)
            if isinstance(keys, inspect.IntType):
                limits = {"type": "integer", "minimum": keys.ge, "maximum": keys.le}
                definitions[struct.__name__]["properties"][field.encode_name]["propertyNames"] = limits
    parts = {part for kind in types if kind is not Body for part in types_in(kind)}
    table = {
        "types": definitions,
        "kinds": {name: [kind.stream, kind.data.__name__] for name, kind in kinds.items()},
        "blobs": {name: kind.data.blob_path for name, kind in kinds.items() if kind.data.blob_path},
        "artifacts": {name: ARTIFACT_FIELDS[kind.data] for name, kind in kinds.items() if kind.data in ARTIFACT_FIELDS},
        "sealable": {name: SEALABLE_FIELDS[kind.data] for name, kind in kinds.items() if kind.data in SEALABLE_FIELDS},
        "erasable": [name for name, kind in kinds.items() if is_kind_erasable(kind.data)],
        "mapped": {kind: [data.__name__ for data in pair] for kind, pair in mapped.items()},
        "reserved": sorted(CORE_NAMES),
        "ids": {family: None if form is None else msgspec.json.schema(form) for family, form in ids.items()},
    }
    bare: dict[str, Any] = json.loads(json.dumps(table), object_hook=_bare)
    rules = {family: json.loads(read_rules(family)) for family in FAMILIES}
    texts = {part.__name__: fields for part in parts if (fields := text_fields(part))}
    return encode_canonical(bare | {"rules": rules, "texts": texts}) + b"\n"


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its titles and descriptions. A field that is called title or description stays."""
    return {
        name: part for name, part in schema.items() if name not in _FOR_READERS or (isinstance(part, dict) and part)
    }


@cache
def verify_program() -> bytes:
    """Return ``verify.py``: the parts of ``standalone``, joined."""
    folder = resources.files("deedbook.ledger.bundle.standalone")
    imports: set[str] = set()
    names: dict[str, set[str]] = {}
    bodies: list[str] = []
    for part in PARTS:
        text = folder.joinpath(f"{part}.py").read_text("utf-8")
        tree, end = ast.parse(text), 0
        for node in tree.body:
            if isinstance(node, ast.Import):
                imports |= {f"import {name.name}" for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.setdefault(node.module or "", set()).update(name.name for name in node.names)
            if isinstance(node, ast.Import | ast.ImportFrom):
                end = node.end_lineno or 0
        comment = [f"# {line}".rstrip() for line in (ast.get_docstring(tree) or "").splitlines()]
        bodies.append("\n".join([f"# {part.upper()}", "#", *comment, "", *text.splitlines()[end:]]).rstrip())
    external = sorted(module for module in names if module != "__future__" and not module.startswith("deedbook."))
    lines = {module: f"from {module} import {', '.join(sorted(names[module]))}" for module in external}
    froms = [line for module, line in lines.items() if module.split(".")[0] in sys.stdlib_module_names]
    packages = "\n".join(f"    {line}" for line in lines.values() if line not in froms)
    froms.append(f"\ntry:\n{packages}\nexcept ImportError as error:\n    {_INSTALL}")
    docstring = folder.joinpath("__init__.py").read_text("utf-8")
    head = "\n".join([docstring, "from __future__ import annotations\n", *sorted(imports), *froms])
    program = "\n\n\n".join([head, *bodies]) + "\n"
    return program.replace('KINDS_SHA256 = ""', f'KINDS_SHA256 = "{sha256(schemas()).hexdigest()}"').encode()
