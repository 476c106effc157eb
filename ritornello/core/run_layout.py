"""Names in the folder of a run. agent/stored/run_folder.py says what each file holds."""

from __future__ import annotations

RECORDS = "metrics.jsonl"
GAMES = "Scores.txt"
FINDINGS = "findings.jsonl"
EVALUATIONS = "evaluations.csv"
SCORES, SCORES_PER_LIFE = "scores.csv", "scores_per_life.csv"
FILMS = "films"  # of evaluations
REPORT = "test_"  # of a test; what was tested, and how, follows
FLAGS = "flags.json"
SESSIONS = "run.json"
STATUS = "status.json"
SUMMARY = "summary.json"
LOG = "train.log"
LOCK = "lock"
CHECKPOINTS = "checkpoints"
MODEL_WEIGHTS = "model.safetensors"  # of a model folder, which is of no run
SEQUENCE = "sequence.json"  # of the folder of a sequence, above its runs
