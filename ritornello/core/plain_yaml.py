"""YAML from outside: plain data only, bounded like what `plain_data` reads as JSON.

No tag makes an object, an alias that stands for a whole branch is counted each time, and `<<` may
not unfold to more than fits into memory. A key that is given twice is refused.
"""

from __future__ import annotations

from typing import Any

import yaml

from ritornello.core.errors import ConfigError
from ritornello.core.plain_data import check_plain, shown, shown_text

MAX_MERGED = 10_000
MERGE = "tag:yaml.org,2002:merge"  # of the key <<


class _PlainLoader(yaml.SafeLoader):
    """Makes plain types only.

    It refuses `<<` that would unfold to more than fits into memory, and a key that is given twice,
    of which YAML would silently take the last.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # As it is written: later what `<<` takes over stands beside the keys that override it.
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            name, colon, rest = key.value.partition(":")
            if colon and isinstance(value, yaml.ScalarNode) and not value.value and not key.style:
                raise yaml.composer.ComposerError(
                    None,
                    None,
                    f"{shown(key.value)} has no blank after the colon, expected "
                    f"{shown_text(name)}: {shown_text(rest)}",
                    key.start_mark,
                )
            if key.value in seen:
                raise yaml.composer.ComposerError(
                    None,
                    None,
                    f"the key {shown(key.value)} is given twice, expected once; delete one of the "
                    "two. The second stands",
                    key.start_mark,
                )
            seen.add(key.value)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        count = 0
        for key, value in node.value:
            if key.tag == MERGE:
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                count += sum(len(each.value) for each in merged)
        if count > MAX_MERGED:
            raise yaml.constructor.ConstructorError(
                None, None, f"<< takes over more than {MAX_MERGED:,} keys", node.start_mark
            )
        super().flatten_mapping(node)


def parse_yaml(text: str, where: str) -> Any:
    """Return the data in a YAML text; only plain data, see `plain_data.check_plain`.

    `where` is the name of the file, for messages. PyYAML reads about 200 kB in a second.

    Raises:
      ConfigError: if the text is no YAML, is too long, or repeats a key.
    """
    data = load_yaml(text, where)
    check_plain(data, where)
    return data


def load_yaml(text: str, where: str) -> Any:
    """Return the data in a YAML text, for a caller that checks the values and their places.

    The data may include dates and sets, keys that are no text, and more than fits into memory.
    `where` is the name of the file, for messages.

    Raises:
      ConfigError: if the text is no YAML, or repeats a key.
    """
    try:
        return yaml.load(text, _PlainLoader)
    except yaml.YAMLError as error:
        # PyYAML knows no name of a text, and says `in "<unicode string>", line 2, column 6`.
        reason = " ".join(str(error).split()).replace('in "<unicode string>", line', "at line")
        raise ConfigError(f"{where} is not valid YAML: {shown_text(reason, 400)}") from error
    except Exception as error:  # its constructors of dates and numbers raise many kinds
        raise ConfigError(
            f"{where} is not valid YAML: {type(error).__name__} {shown(str(error))}."
        ) from error
