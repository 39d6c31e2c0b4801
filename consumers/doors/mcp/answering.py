"""The base of what tools answer: pydantic models whose schemas are published, told without what was not set.

What a view tells beyond the fields of a model is passed on: a new mark on a report must reach who reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_serializer

if TYPE_CHECKING:
    from pydantic import SerializerFunctionWrapHandler


class Answer(BaseModel):
    """An answer, or a part of one; an optional field that was not set is absent, never null."""

    model_config = ConfigDict(extra="allow")

    @model_serializer(mode="wrap")
    def _told(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        names = {name: field.alias or name for name, field in type(self).model_fields.items()}
        absent = {names[name] for name in names if name not in self.model_fields_set}
        return {name: value for name, value in handler(self).items() if name not in absent}
