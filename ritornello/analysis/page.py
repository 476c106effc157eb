"""A page of HTML in one file, written as Markdown: everything from outside is text, no script runs.

Each part becomes HTML by markdown-it, of which only blocks are switched on: whatever a stranger's
file holds is text there, never a link, a picture or HTML. The page tells the browser to run no
script and to load nothing (its content policy).
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Iterable, Mapping, Sequence

from markdown_it import MarkdownIt

from ritornello.core import markdown
from ritornello.core.plain_data import shown, shown_text

MAX_ROWS = 400  # of a table
STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 62rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #888; }
table { border-collapse: collapse; font-size: .88rem; display: block; overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0;
  border-bottom: 1px solid #8886; max-width: 34rem; }
pre { background: #8882; padding: .7rem .9rem; font-size: .82rem; white-space: pre-wrap; }
img, video { display: block; max-width: 100%; height: auto; background: #fff; }
"""


class Markup(str):
    """Text that is HTML already, made by this module; any other text is Markdown."""

    __slots__ = ()


class Page:
    """A page that grows part by part; a part that cannot be shown says so."""

    def __init__(self, title: str) -> None:
        """Begin with the title."""
        self.title = shown_text(title)
        self.parts: list[str] = []  # HTML
        self.problems: list[str] = []  # for the user, beside the page
        self._markdown = MarkdownIt("zero").enable(
            ["table", "heading", "fence", "list", "backticks"]
        )

    def add(self, name: str, make: Callable[[], Iterable[str]]) -> None:
        """Add a part made of the pieces that `make` yields, Markdown or Markup, as far as it comes.

        Whatever a damaged or a stranger's file does to one part, the others are shown.
        """
        pieces = [f"## {name}"]
        try:
            pieces.extend(make())
        except Exception as error:
            reason = shown_text(str(error) or type(error).__name__, 500)
            self.problems.append(f"{name}: {reason}")
            pieces.append(f"This cannot be shown: {reason}")
        self.parts += map(self._html, pieces)

    def _html(self, piece: str) -> str:
        return piece if isinstance(piece, Markup) else self._markdown.render(piece)

    def html(self, end: str) -> str:
        """Return the whole page, `end` being its last line."""
        digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode("ascii")
        policy = (
            "default-src 'none'; img-src data:; media-src data:; base-uri 'none'; "
            f"form-action 'none'; style-src 'sha256-{digest}'"
        )
        title = html.escape(self.title)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
            f"{''.join(self.parts)}\n<p>{html.escape(shown_text(end))}</p></body></html>\n"
        )


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "There is nothing."
) -> str:
    """Return a Markdown table of the first MAX_ROWS rows; `empty` if there are none."""
    cells = [list(map(_value, row)) for row in rows]
    return "\n".join(markdown.table(headings, cells[:MAX_ROWS])) if cells else empty


def objects(found: Sequence[Mapping[str, object]], names: Sequence[str], empty: str) -> str:
    """Return a table of JSON objects, with a column per name, by default those of the first."""
    names = names or list(found[0] if found else ())
    return table(names, [[each.get(name) for name in names] for each in found], empty)


def facts(values: Mapping[str, object]) -> str:
    """Return a table of names and values; those that are None or empty are left out."""
    return table(("", "value"), [pair for pair in values.items() if pair[1] not in (None, "")])


def _value(value: object) -> str:
    """Return a JSON value as it is typed, of bounded length."""
    if isinstance(value, float):
        return f"{value:,.10g}"
    return "–" if value is None else value if isinstance(value, str) else shown(value, 1000)


def code(lines: Iterable[str]) -> Markup:
    """Return lines as they are, one below the other."""
    # No Markdown, of which a line could end the block.
    text = "\n".join(shown_text(line, 5000) for line in lines)
    return Markup(f"<pre><code>{html.escape(text)}\n</code></pre>")


def picture(content: bytes, about: str, kind: str = "image/png") -> Markup:
    """Return a picture or a film (kind video/...) that is part of the page."""
    source = f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    if kind.startswith("video"):
        return Markup(f'<video src="{source}" controls preload="metadata"></video>')
    return Markup(f'<img src="{source}" alt="{html.escape(shown_text(about))}">')
