"""The old address of core/atomic_file.py, for importers that have not moved yet."""

from core.atomic_file import (
    TEMPORARY_SUFFIX,
    atomic_path,
    remove_temporaries,
    write_json,
    write_text,
)

__all__ = ["TEMPORARY_SUFFIX", "atomic_path", "remove_temporaries", "write_json", "write_text"]
