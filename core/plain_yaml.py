"""YAML from outside: plain data only, bounded like what `plain_data` reads as JSON.

No tag makes an object, an alias that stands for a whole branch is counted each time, and `<<` may
not unfold to more than fits into memory.
"""

from __future__ import annotations

from typing import Any

import yaml

from core.errors import ConfigError
from core.plain_data import check_plain, shown, shown_text

MAX_MERGED = 10_000


class _PlainLoader(yaml.SafeLoader):
    """Makes plain types only, and refuses `<<` that would unfold to more than fits into memory."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        count = 0
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                count += sum(len(each.value) for each in merged)
        if count > MAX_MERGED:
            raise yaml.constructor.ConstructorError(
                None, None, f"<< takes over more than {MAX_MERGED:,} keys", node.start_mark
            )
        super().flatten_mapping(node)


def parse_yaml(text: str, where: str) -> Any:
    """Return what a text in YAML says; only plain data, see `plain_data.check_plain`.

    Args:
      text: the content of a file. PyYAML reads about 200 kB in a second.
      where: name of the file, for messages.

    Raises:
      ConfigError: if it is no YAML, or too much of it.
    """
    try:
        data = yaml.load(text, _PlainLoader)
    except yaml.YAMLError as error:
        # PyYAML knows no name of a text, and says `in "<unicode string>", line 2, column 6`.
        reason = " ".join(str(error).split()).replace('in "<unicode string>", line', "at line")
        raise ConfigError(f"{where} is not valid YAML: {shown_text(reason, 400)}") from error
    except Exception as error:  # its constructors of dates and numbers raise many kinds
        raise ConfigError(
            f"{where} is not valid YAML: {type(error).__name__} {shown(str(error))}."
        ) from error
    check_plain(data, where)
    return data
