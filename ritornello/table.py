"""`read_run`: what a run has recorded, as columns. Reads a run that still trains as well."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ritornello.agent.stored.run_folder import RunFolder
from ritornello.command import path_text
from ritornello.core.errors import ConfigError
from ritornello.core.nearest_names import did_you_mean
from ritornello.core.plain_data import parse_json, read_text
from ritornello.metrics.run_files import (
    Evaluated,
    Floats,
    Games,
    read_evaluations,
    read_games,
    read_records,
)

COUNTERS = ("agent_steps", "frames", "updates", "episodes", "wall_s")


@dataclass(frozen=True)
class RunTable(Mapping[str, Floats]):
    """The metrics of a run: name -> column `[records]` float64, NaN where there is no value.

    The first columns are the counters agent_steps, frames, updates, episodes and wall_s (seconds);
    docs/metrics.md says what each other column means, and its unit. `dict(table)` is a plain
    dictionary.
    """

    folder: Path
    columns: dict[str, Floats] = field(repr=False)

    def __getitem__(self, name: str) -> Floats:
        if name not in self.columns:
            hint = did_you_mean(str(name), self.columns)
            raise KeyError(f"{name} is not recorded. {hint}".strip())
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def rows(self) -> list[dict[str, float]]:
        """Return one mapping per record, oldest first, with the values that it has."""
        names, count = list(self.columns), len(self.columns["agent_steps"])
        rows = [{name: float(self.columns[name][i]) for name in names} for i in range(count)]
        return [{n: value for n, value in row.items() if not np.isnan(value)} for row in rows]

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with these columns.

        Raises:
          ConfigError: if pandas is not installed; nothing else here needs it.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise ConfigError(
                "a DataFrame was asked for, but pandas is not installed: pip install pandas, or "
                "use the columns as they are, dict(table), or the rows, table.rows()."
            ) from error
        return pandas.DataFrame(self.columns)

    @property
    def games(self) -> Games:
        """Every finished game: returns (raw), agent_steps and wall_s, each `[games]` float64."""
        return read_games(self.folder)

    @property
    def evaluations(self) -> list[Evaluated]:
        """Evaluations beside the training (--evaluate_every_steps), oldest first."""
        return read_evaluations(self.folder)

    @property
    def flags(self) -> dict[str, Any]:
        """The flags of the run, with their resolved values.

        Raises:
          ConfigError: if flags.json is missing or damaged.
        """
        try:
            return RunFolder(self.folder).read_flags()
        except ValueError as error:
            raise ConfigError(str(error)) from error

    @property
    def summary(self) -> dict[str, Any] | None:
        """How the run ended; None while it trains, or if it did not end by itself."""
        path = RunFolder(self.folder).summary_file
        if not path.is_file():
            return None
        data = parse_json(read_text(str(path), path.name), str(path))
        return data if isinstance(data, dict) else None


def read_run(path: Path | str) -> RunTable:
    """Return the metrics of the run in the folder `path`.

    Raises:
      ConfigError: if there is no run.
    """
    folder = Path(path_text(path))
    if not os.path.isfile(RunFolder(folder).metrics_file):  # also of a name that is too long
        raise ConfigError(
            f"{folder} has no metrics.jsonl: expected a run folder, such as "
            "results/<env>_<time>. A run has one from its first record on."
        )
    records = read_records(folder)
    columns = {
        name: np.array([getattr(record, name) for record in records], np.float64)
        for name in COUNTERS
    }
    for name in dict.fromkeys(name for record in records for name in record.values):
        columns[name] = np.array(
            [record.values.get(name, np.nan) for record in records], np.float64
        )
    return RunTable(folder, columns)
