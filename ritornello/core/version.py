"""The version of this program: the one place where it is written.

`main.py --version` and run.json say it; pyproject.toml reads it from here, CHANGELOG.md begins with
it and CITATION.cff repeats it (compared by a test). research/releasing.md tells when it changes.
"""

VERSION = "1.0.0"
