"""Films in a report: part of the page while there is room, else a link to the file beside it."""

from __future__ import annotations

import os
from pathlib import Path

from ritornello.analysis.markup import Markup, beside, data, el, join
from ritornello.analysis.report import Maker
from ritornello.analysis.report_files import children, read_bytes
from ritornello.core.errors import ConfigError

FOLDERS = ("films", "analysis", ".")  # of evaluation, of the analyses, of test mode
SUFFIXES = (".mp4", ".gif")
MAX_FILMS = 30
# What a file must begin with to be given to a browser as what its name says.
GIFS = (b"GIF87a", b"GIF89a")


def films(place: Path, maker: Maker) -> Markup:
    """Return the films of a run, the newest first.

    The first ones are embedded, as long as all embedded films of the page fit into what the user
    allows; the room that they take is taken from `maker`.
    """
    found = _found(place)
    shown = []
    for path, facts in found[:MAX_FILMS]:
        name = os.path.relpath(path, place)
        title = f"{name} ({facts.st_size / 1e6:.1f} MB)"
        try:
            shown.append(_film(path, facts.st_size, name, title, maker))
        except (ConfigError, OSError) as error:
            maker.problems.append(f"{name}: {error}")
            shown.append(el("p", f"{name} cannot be shown: {error}", class_="soft"))
    if not shown:
        return el("p", "There are no films.")
    left = len(found) - MAX_FILMS
    note = el("p", f"{left} older films are left out.", class_="soft") if left > 0 else None
    return join([*shown, note])


def has_films(place: Path) -> bool:
    """Whether a run has any film."""
    return bool(_found(place))


def _found(place: Path) -> list[tuple[Path, os.stat_result]]:
    found = [item for folder in FOLDERS for item in children(place, folder, SUFFIXES)]
    return sorted(found, key=lambda item: -item[1].st_mtime)


def _film(path: Path, size: int, name: str, title: str, maker: Maker) -> Markup:
    if size > maker.film_bytes:
        there = Path(os.path.relpath(str(path), str(maker.output.parent))).as_posix()
        return el("p", el("a", title, href=beside(there)), " (a file beside this page)")
    content = read_bytes(path, maker.film_bytes)
    maker.film_bytes -= len(content)
    if content.startswith(GIFS):
        shown = el("img", src=data(content, "image/gif"), alt=f"Film {name}")
    elif content[4:8] == b"ftyp":
        film = data(content, "video/mp4")
        shown = el("video", src=film, controls="", preload="metadata", aria_label=f"Film {name}")
    else:
        raise ConfigError("its content is no film")
    return el("figure", shown, el("figcaption", title))
