"""HTML for a page that is one file: everything that comes from outside is escaped by default.

What a run's files hold may be written by a stranger, and whoever opens the page trusts it. So text
becomes HTML in one place (`text`), elements are made of known names only (`el`), an address is
either inside of the page or a file beside it, and the page itself tells the browser to run no
script and to load nothing (its content policy).
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from ritornello.core.plain_data import shown_text

MAX_TEXT = 5000  # characters of a cell or a line
MAX_ROWS = 400  # of a table
# Whatever is not listed cannot be made, by no mistake and by no file.
TAGS = frozenset(
    {
        *("a", "caption", "code", "details", "div", "figcaption", "figure", "footer", "h1", "h2"),
        *("h3", "header", "img", "li", "main", "nav", "p", "pre", "section", "summary", "table"),
        *("tbody", "td", "th", "thead", "tr", "ul", "video"),
    }
)
ATTRIBUTES = frozenset(
    {
        *("alt", "aria-label", "class", "controls", "href", "id", "preload", "role", "scope"),
        *("src", "tabindex"),
    }
)
VOID = frozenset({"img"})

STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #5a5a5a; --line: #d8d8d8; --ground: #fff;
  --card: #f6f7f8; --link: #0059a0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #b0b0b0; --line: #3d4145;
  --ground: #16181a; --card: #202326; --link: #7fc0f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
header, main, footer { max-width: 62rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 1.6rem 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; overflow-wrap: anywhere; }
a { color: var(--link); }
nav ul { list-style: none; padding: 0; margin: .4rem 0; display: flex; flex-wrap: wrap;
  gap: .2rem 1.1rem; }
footer { overflow-wrap: anywhere; }
p.soft, figcaption, footer { color: var(--soft); font-size: .9rem; }
div.scroll { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .88rem; }
th, td { text-align: left; vertical-align: top; padding: .25rem .9rem .25rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word; max-width: 34rem; }
th { font-weight: 600; }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden;
  clip-path: inset(50%); white-space: nowrap; }
pre { background: var(--card); padding: .7rem .9rem; border-radius: .4rem; overflow-x: auto;
  font-size: .82rem; white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: .8rem 0; }
figure img, figure video { display: block; max-width: 100%; height: auto; background: #fff;
  border-radius: .4rem; }
details { margin: .6rem 0; }
summary { cursor: pointer; }
@media print { nav { display: none; } a { color: inherit; } }
"""


class Markup(str):
    """Text that is HTML already, made by this module."""

    __slots__ = ()


Child = str | Markup | None


def text(value: object, limit: int = MAX_TEXT) -> Markup:
    """Return anything as escaped text on one line, in which nothing is hidden.

    What cannot be printed, such as a sign that turns the direction of writing, is shown by its
    number (`core.plain_data.shown_text`).
    """
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(shown_text(str(value), limit)))


def el(tag: str, *children: Child, **attributes: object) -> Markup:
    """Return an element; children that are no `Markup` are escaped, None is left out.

    Args:
      tag: its name, one of `TAGS`.
      children: what is in it.
      attributes: by name, one of `ATTRIBUTES`, with `_` for `-` (and `class_`); None: left out.
    """
    if tag not in TAGS:
        raise ValueError(f"<{tag}> is not made here.")
    facts = ""
    for name, value in attributes.items():
        plain = name.rstrip("_").replace("_", "-")
        if plain not in ATTRIBUTES:
            raise ValueError(f"the attribute {plain} is not made here.")
        if plain in ("href", "src") and not isinstance(value, Address):
            raise ValueError(f"{plain} must be an address made here, got {value!r}.")
        if value is not None:
            written = value if isinstance(value, Address) else shown_text(str(value), MAX_TEXT)
            facts += f' {plain}="{html.escape(written)}"'
    inner = "".join(text(child) for child in children if child is not None)
    return Markup(f"<{tag}{facts}>" if tag in VOID else f"<{tag}{facts}>{inner}</{tag}>")


class Address(str):
    """Where something is: inside of the page, or beside it. Never elsewhere."""

    __slots__ = ()


def within(identity: str) -> Address:
    """Return the address of a place on the page."""
    return Address(f"#{quote(identity)}")


def beside(path: str) -> Address:
    """Return the address of a file by its path from the page's folder, such as films/a.mp4."""
    # A colon in it is quoted: it cannot name a scheme. Names need not be text in Unicode.
    return Address("./" + quote(path, errors="surrogateescape"))


def data(content: bytes, kind: str) -> Address:
    """Return an address that holds the content itself."""
    return Address(f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}")


def join(parts: Iterable[Child]) -> Markup:
    """Return parts one after the other, escaped where they are no `Markup`."""
    return Markup("".join(text(part) for part in parts if part is not None))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], about: str) -> Markup:
    """Return a table, at most `MAX_ROWS` of its rows; a sentence if there are none.

    Args:
      headings: one per column.
      rows: cells.
      about: what it is, for those who hear the page.
    """
    all_rows = list(rows)
    if not all_rows:
        return el("p", "There is nothing to show.", class_="soft")
    body = [el("tr", *(el("td", text(cell)) for cell in row)) for row in all_rows[:MAX_ROWS]]
    head = el("tr", *(el("th", heading, scope="col") for heading in headings))
    found = el("table", _caption(about), el("thead", head), el("tbody", *body))
    more = len(all_rows) - MAX_ROWS
    note = el("p", f"{more:,} more rows are left out.", class_="soft") if more > 0 else None
    return join([_scrolled(found, about), note])


def facts(pairs: Iterable[tuple[str, object]], about: str) -> Markup:
    """Return a table of names and values; those that are None or empty are left out."""
    rows = [pair for pair in pairs if pair[1] is not None and pair[1] != ""]
    body = [el("tr", el("th", name, scope="row"), el("td", text(value))) for name, value in rows]
    if not body:
        return el("p", "There is nothing to show.", class_="soft")
    found = el("table", _caption(about), el("tbody", *body))
    return _scrolled(found, about)


def _caption(about: str) -> Markup:
    """Return what a table is, for those who hear the page; a heading says it to the others."""
    return el("caption", about, class_="hidden")


def _scrolled(found: Markup, about: str) -> Markup:
    """Return something that is moved to the side where the window is narrow, also by keyboard."""
    return el("div", found, class_="scroll", tabindex=0, role="region", aria_label=about)


def code(lines: Iterable[str]) -> Markup:
    """Return lines as they are, one below the other."""
    return el("pre", Markup("\n".join(text(line) for line in lines)), tabindex=0)


def folded(title: str, *children: Child) -> Markup:
    """Return something that is shown when its title is pressed."""
    return el("details", el("summary", title), *children)


def picture(png: bytes, about: str) -> Markup:
    """Return a picture that is part of the page."""
    return el("figure", el("img", src=data(png, "image/png"), alt=about))


def page(title: str, lead: Child, parts: Sequence[tuple[str, Markup]], end: str) -> str:
    """Return the whole page.

    Args:
      title: its heading.
      lead: what comes before the parts.
      parts: (heading, content) of each.
      end: its last line.
    """
    names = [f"part{number}" for number in range(1, len(parts) + 1)]
    links = [
        el("li", el("a", heading, href=within(name)))
        for name, (heading, _) in zip(names, parts, strict=True)
    ]
    sections = [
        el("section", el("h2", heading, id=name), content)
        for name, (heading, content) in zip(names, parts, strict=True)
    ]
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode("ascii")
    policy = (
        "default-src 'none'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src 'sha256-{digest}'"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(title, 200)}</title>",
            f"<style>{STYLE}</style></head><body>",
            el("header", el("h1", title), el("nav", el("ul", *links), aria_label="Parts"), lead),
            el("main", *sections),
            el("footer", el("p", end)),
            "</body></html>\n",
        ]
    )
