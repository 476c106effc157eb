"""A page of HTML in one file: everything that comes from outside is escaped, and no script runs.

What a run's files hold may be written by a stranger, and whoever opens the page trusts it. So text
becomes HTML in `escaped` alone, and the page tells the browser to run no script and to load nothing
(its content policy).
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ritornello.core.plain_data import shown_text

MAX_TEXT = 5000  # characters of a cell or a line
MAX_ROWS = 400  # of a table

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; }
header, main, footer { max-width: 62rem; margin: 0 auto; padding: 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #888; }
nav ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; }
p.soft, figcaption, footer { opacity: .8; font-size: .9rem; }
div.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .88rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0;
  border-bottom: 1px solid #8886; max-width: 34rem; }
pre { background: #8882; padding: .7rem .9rem; font-size: .82rem; white-space: pre-wrap; }
figure { margin: .8rem 0; }
figure img, figure video { display: block; max-width: 100%; height: auto; background: #fff; }
"""


class Markup(str):
    """Text that is HTML already, made by this module."""

    __slots__ = ()


def escaped(value: object, limit: int = MAX_TEXT) -> Markup:
    """Return anything as text on one line, in which nothing is hidden; `Markup` as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(shown_text(str(value), limit)))


def paragraph(text: str) -> Markup:
    """Return a sentence about what is shown."""
    return Markup(f'<p class="soft">{escaped(text)}</p>')


def heading(text: str) -> Markup:
    """Return a heading within a part."""
    return Markup(f"<h3>{escaped(text)}</h3>")


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "There is nothing."
) -> Markup:
    """Return a table, at most `MAX_ROWS` of its rows; the sentence `empty` if there are none."""
    all_rows = list(rows)
    if not all_rows:
        return paragraph(empty)
    names = "".join(f'<th scope="col">{escaped(each)}</th>' for each in headings)
    head = f"<thead><tr>{names}</tr></thead>" if headings else ""
    cells = (map(escaped, row) for row in all_rows[:MAX_ROWS])
    body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
    more = len(all_rows) - MAX_ROWS
    note = paragraph(f"{more:,} more rows are left out.") if more > 0 else ""
    return Markup(
        f'<div class="scroll" tabindex="0"><table>{head}<tbody>{body}</tbody></table></div>{note}'
    )


def facts(values: Mapping[str, object]) -> Markup:
    """Return a table of names and values; those that are None or empty are left out."""
    return table((), [pair for pair in values.items() if pair[1] is not None and pair[1] != ""])


def code(lines: Iterable[str]) -> Markup:
    """Return lines as they are, one below the other."""
    return Markup(f'<pre tabindex="0">{chr(10).join(map(escaped, lines))}</pre>')


def folded(title: str, content: Markup) -> Markup:
    """Return something that is shown when its title is pressed."""
    return Markup(f"<details><summary>{escaped(title)}</summary>{content}</details>")


def picture(content: bytes, about: str, kind: str = "image/png") -> Markup:
    """Return a picture or a film (kind video/...) that is part of the page."""
    source = f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    if kind.startswith("video"):
        shown = f'<video src="{source}" controls preload="metadata"></video>'
    else:
        shown = f'<img src="{source}" alt="{escaped(about)}">'
    return Markup(f"<figure>{shown}<figcaption>{escaped(about)}</figcaption></figure>")


@dataclass
class Page:
    """A page that grows part by part; what cannot be shown says so in its place."""

    title: str
    parts: list[tuple[str, Markup]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # for the user, beside the page

    def add(self, name: str, make: Callable[[], Iterator[Markup]]) -> None:
        """Add a part of the sections that `make` yields, as far as it comes.

        Whatever a damaged or a stranger's file makes of one part, the others are shown.
        """
        shown: list[Markup] = []
        try:
            shown.extend(make())
        except Exception as error:
            reason = shown_text(str(error) or type(error).__name__, 500)
            self.problems.append(f"{name}: {reason}")
            shown.append(paragraph(f"This cannot be shown: {reason}"))
        self.parts.append((name, Markup("".join(shown))))

    def html(self, end: str) -> str:
        """Return the whole page, `end` being its last line."""
        links = "".join(
            f'<li><a href="#part{number}">{escaped(name)}</a></li>'
            for number, (name, _) in enumerate(self.parts)
        )
        sections = "".join(
            f'<section><h2 id="part{number}">{escaped(name)}</h2>{content}</section>\n'
            for number, (name, content) in enumerate(self.parts)
        )
        digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode("ascii")
        policy = (
            "default-src 'none'; img-src data:; media-src data:; base-uri 'none'; "
            f"form-action 'none'; style-src 'sha256-{digest}'"
        )
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="referrer" content="no-referrer">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escaped(self.title)}</title>\n<style>{STYLE}</style></head><body>\n"
            f"<header><h1>{escaped(self.title)}</h1><nav><ul>{links}</ul></nav></header>\n"
            f"<main>{sections}</main>\n<footer><p>{escaped(end)}</p></footer></body></html>\n"
        )
