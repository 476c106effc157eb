"""Virtual environments for other systems: one each, outside the repository, made once."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from research.peers.catalogue import System
from research.peers.measurement import RunFailed, last_error, started

INSTALL_LIMIT_S = 1800.0


def python_of(system: System, peers_dir: Path) -> Path:
    """Return the interpreter that runs a system, and install what it needs if it is not there.

    pip takes its index from the machine's own settings.

    Args:
      system: which one; ours run in the interpreter that runs this.
      peers_dir: holds one environment for each list of requirements, and the logs.

    Raises:
      RunFailed: if it cannot be installed; the log stays in `peers_dir/logs`.
    """
    if not system.requirements:
        return Path(sys.executable)
    folder = peers_dir / system.driver.removesuffix(".py")
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(system.requirements)
    # Written last: an installation that was interrupted, or is of other versions, is made anew.
    if stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    log = peers_dir / "logs" / f"install_{folder.name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    venv.create(folder, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", *system.requirements]
    with started(command, folder, log) as (process, _):
        try:
            status = process.wait(INSTALL_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise RunFailed(f"pip took longer than {INSTALL_LIMIT_S:g} s; see {log}") from error
    if status != 0:
        raise RunFailed(f"pip: {last_error(log)}")
    stamp.write_text(wanted, "utf-8")
    return python
