"""What a page of `analysis report` consists of, as a browser would take it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from ritornello.analysis import markup

VOID = {"img", "meta"}
SHELL = {"html", "head", "body", "meta", "title", "style"}


@dataclass
class Page(HTMLParser):
    """Elements, addresses and text of a page; `check` fails for anything that could act."""

    content: str
    tags: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)  # tag, name, value
    text: str = ""
    open_tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.content)
        self.close()

    def __hash__(self) -> int:
        return id(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if self.open_tags[-1:] != ["style"]:
            self.text += data

    def addresses(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]

    def check(self) -> Page:
        """Fail if the page is not whole, could run anything, or asks for anything."""
        assert self.open_tags == []
        assert set(self.tags) <= markup.TAGS | SHELL
        for tag, name, value in self.attributes:
            if tag in ("meta", "html"):
                assert name in ("charset", "http-equiv", "content", "name", "lang"), (tag, name)
                continue
            assert name in markup.ATTRIBUTES, (tag, name, value[:80])
            if name == "href":
                assert value.startswith(("#part", "./")), value
            if name == "src":
                assert value.startswith(
                    ("data:image/png;base64,", "data:image/gif;base64,", "data:video/mp4;base64,")
                ), value[:80]
        policy = [v for tag, name, v in self.attributes if tag == "meta" and "default-src" in v]
        assert len(policy) == 1
        assert policy[0].startswith("default-src 'none'; ")
        assert "script" not in policy[0]
        assert "unsafe" not in policy[0]
        return self
