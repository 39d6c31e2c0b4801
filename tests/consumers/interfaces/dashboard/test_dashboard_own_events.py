"""The dashboard shows events of declared kinds in the words of their schemas, and their hostile texts as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deedbook.ledger.client.author import Draft
from deedbook.ledger.events.declared import KindDeclared

if TYPE_CHECKING:
    from looking import Viewer

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "service": {"type": "string", "title": "Service <b>name</b>", "maxLength": 200},
        "is_forced": {"type": "boolean"},
        "by": {
            "type": "object",
            "title": "Started by",
            "properties": {"name": {"type": "string", "maxLength": 20}},
            "additionalProperties": False,
        },
    },
    "required": ["service"],
    "additionalProperties": False,
}


def publish(viewer: Viewer) -> int:
    """Declare a kind with hostile texts, and publish an event of it; return its index."""
    kind = "x.deploy.finished"
    data = KindDeclared(name=kind, stream="x.deploy", roles=["agent"], schema=SCHEMA, title="deploy <i>finished</i>")
    viewer.ledger.emit("root", f"kind/{kind}", data)
    fields = {"service": "<script>alert(1)</script>\u202e api", "is_forced": True, "by": {"name": "kim"}}
    draft = Draft(kind=kind, stream="x.deploy/42", data=fields)
    return viewer.ledger.submit(viewer.ledger.sign("bob", draft))[0].index


def test_pages_show_own_events_by_the_titles_of_their_schema(viewer: Viewer) -> None:
    index = publish(viewer)
    page = viewer.client.get(f"/e/{index}").text
    assert "deploy &lt;i&gt;finished" in page
    assert "<dt>Service &lt;b&gt;name&lt;/b&gt;</dt>" in page
    assert "Started by, name" in page
    for path in (f"/e/{index}", "/events?stream=x.deploy/42", "/timeline", "/search?text=alert", "/events"):
        answer = viewer.client.get(path)
        assert answer.status_code == 200, path
        assert "<script>alert" not in answer.text, path
        assert "\u202e" not in answer.text, path
        assert "deploy &lt;i&gt;finished" in answer.text or path.startswith("/search"), path


def test_page_of_an_own_event_says_that_it_counts_by_its_declaration(viewer: Viewer) -> None:
    index = publish(viewer)
    signed = viewer.data(f"/e/{index}")["signed"]
    assert (signed["counts"], signed["problem"]) == (True, None)
    assert "does not count" not in viewer.page(f"/e/{index}")
