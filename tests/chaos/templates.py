"""Finished runs that scenarios copy, so that not each has to train before it can be resumed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from tests.chaos.configurations import Configuration, for_template
from tests.chaos.history import Expected

STEPS = 2600  # 130 updates: several checkpoints, some games
LIMIT_S = 180.0


class Templates:
    """Makes a run of each configuration when it is asked for first. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """Keep them in `folder`."""
        self._folder = folder
        self._made: dict[Configuration, Path] = {}
        self._lock = threading.Lock()

    def get(self, configuration: Configuration, make_stage: Callable[..., object]) -> Path:
        """Return the run folder of a configuration.

        Args:
          configuration: of the run.
          make_stage: called with (folder, configuration) if it must be made; returns a Stage.

        Raises:
          RuntimeError: the run did not end well although nothing was wrong.
        """
        from tests.chaos.stage import Stage

        wanted = for_template(configuration)
        with self._lock:
            if wanted not in self._made:
                parts = (
                    wanted.kind,
                    *(["ours"] if wanted.our_environment else []),
                    *(["numbers"] if wanted.numbers else []),
                )
                name = "-".join(parts)
                shutil.rmtree(self._folder / name, ignore_errors=True)  # of a lane that gave up
                stage = make_stage(self._folder / name, wanted)
                assert isinstance(stage, Stage)
                begun = stage.train(f"--environment_max_steps={STEPS}")
                session = stage.end(begun, Expected(), LIMIT_S)
                if session.status != 0 or stage.run is None:
                    raise RuntimeError(f"a run that nobody hurt failed:\n{session.output[-2000:]}")
                self._made[wanted] = stage.run
            return self._made[wanted]
