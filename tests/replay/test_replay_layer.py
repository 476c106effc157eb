import subprocess
import sys
from pathlib import Path

from tests.deadlines import HANGS_S

ROOT = Path(__file__).parents[2]


def test_replay_does_not_load_torch():
    program = (
        "import pkgutil, importlib, sys, replay\n"
        "for module in pkgutil.iter_modules(replay.__path__):\n"
        "    importlib.import_module('replay.' + module.name)\n"
        "loaded = {name.split('.')[0] for name in sys.modules}\n"
        "assert 'replay' in loaded and 'numpy' in loaded\n"
        "unwanted = loaded & {'torch', 'agent', 'transport', 'wrappers', 'metrics'}\n"
        "sys.exit(', '.join(unwanted) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S
    )
    assert (done.returncode, done.stderr) == (0, "")
