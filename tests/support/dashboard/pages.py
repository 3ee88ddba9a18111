"""What tests look for in pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser

from sqlalchemy import Engine, event


class Page(HTMLParser):
    """Its tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def check_no_markup_of_users(self) -> None:
        """Of names like those of ``networks.HOSTILE`` everything must be text."""
        assert not {"b", "i", "u", "s", "img"} & set(self.tags)
        assert not [name for name, _ in self.attributes if name.startswith("on") or name == "style"]
        scripts = [value for name, value in self.attributes if name == "src"]
        assert len(scripts) == self.tags.count("script")
        assert all(value.startswith("/static/") for value in scripts)


@contextmanager
def counted_queries() -> Iterator[list[str]]:
    """The statements that any database is sent."""
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)
