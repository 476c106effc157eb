"""The card of a published agent: README.md of a model folder, as model hubs show it.

It says what was measured and how, and leaves out what was not. Everything in it comes from files of
a run, which may be a stranger's: texts are shown so that they stay texts.
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ritornello.agent.testing.score_table import MAX_BYTES
from ritornello.core.errors import ConfigError
from ritornello.core.markdown import plain, table
from ritornello.core.plain_data import parse_json, read_text, shown_text
from ritornello.core.spec import game_name

CARD, FILM = "README.md", "replay.mp4"  # the names under which hubs look for them
RESAMPLES = 10_000
CONFIDENCE = 0.95
MAX_FLAGS = 20_000  # characters


@dataclass(frozen=True)
class Score:
    """What whole games of one env gave."""

    env: str
    policy: str
    returns: tuple[float, ...]  # raw, one per game
    distinct_games: int
    human_normalised: float | None = None
    rules: str = ""  # by which the games were played, in words; "" if that is not known

    @property
    def mean(self) -> float:
        """Mean raw return."""
        return float(np.mean(self.returns))

    def interval(self) -> tuple[float, float]:
        """Return the percentile bootstrap interval of the mean, the same each time."""
        values = np.array(self.returns)
        draws = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
        tails = 50 * (1 - CONFIDENCE)
        low, high = np.percentile(values[draws].mean(axis=1), [tails, 100 - tails])
        return float(low), float(high)


@dataclass(frozen=True)
class Tested:
    """A test of a checkpoint."""

    file: Path  # of the report
    report: dict[str, Any]
    scores: list[Score]  # of each of its games


def read_test(file: Path) -> Tested | None:
    """Return a test from its JSON and the CSV beside it; None if there is none that is sound."""
    try:
        report = parse_json(read_text(file, "the report"), str(file))
        text = read_text(file.with_suffix(".csv"), "the games", MAX_BYTES)
        rows = [(row["env"], float(row["return_raw"])) for row in csv.DictReader(io.StringIO(text))]
        scores = [_score(each, rows) for each in report.get("games", [report])]
        float(report.get("mean") or 0), int(report["episodes"])  # as they are shown
    except (
        *(ConfigError, csv.Error, ArithmeticError),
        *(ValueError, LookupError, TypeError, AttributeError),
    ):
        return None
    return Tested(file, report, scores)


def _score(report: Mapping[str, Any], rows: Sequence[tuple[str, float]]) -> Score:
    """Return the score of one game; raise ValueError or so if the report is not ours."""
    env, policy = str(report["env"]), report["policy"]
    human = report.get("human_normalised")
    returns = tuple(value for game, value in rows if game == env)
    if not returns or not np.isfinite([*returns, human or 0.0]).all():
        raise ValueError("expected finite returns of a game")
    if policy not in ("sampled", "greedy"):
        raise ValueError("expected sampled or greedy actions")
    return Score(
        env,
        policy,
        returns,
        int(report["distinct_games"]),
        None if human is None else float(human),
        str(report.get("rules", "")),
    )


def model_card(
    name: str,
    facts: Mapping[str, Any],
    flags: Mapping[str, Any],
    *,
    scores: Sequence[Score] = (),
    command: Sequence[str] = (),
    film_of: str = "",
    repository: str = "",
) -> str:
    """Return the card as Markdown with the header that hubs read.

    Args:
      name: of the model.
      facts: of agent/export.py, `training_facts`.
      flags: of the run.
      scores: of tests of these very weights.
      command: arguments of main.py by which it was trained; none: they are not known.
      film_of: what FILM, beside the card, shows; "": there is none.
      repository: `<owner>/<name>` on the hub, if it is to be there.
    """
    games = str(facts["env_spec"]["env_id"]).split(",")
    title = shown_text(name, 100)
    url = f"hf:{repository}" if repository else "<this folder>"
    lines = [
        *_header(title, [_algorithm(flags), *games], scores),
        f"# {plain(title)}",
        "",
        f"An actor-critic agent ({plain(_algorithm(flags))}) of {plain(_listed(games))}, trained "
        f"for {facts['agent_steps']:,} agent steps ({facts['updates']:,} updates).",
        "",
        "## Score",
        "",
        *_score_lines(scores, facts),
        "",
    ]
    if film_of:
        lines += ["## Film", "", f"[{plain(film_of)}]({FILM})", ""]
    lines += [
        "## Use",
        "",
        "```",
        f"python main.py --op_mode=test --load_model_url={url}",
        "```",
        "",
        "## Training",
        "",
    ]
    if command:
        lines += ["```", shown_text(shlex.join(["python", "main.py", *command]), 4000), "```", ""]
    text = json.dumps(dict(flags), indent=1)
    if len(text) <= MAX_FLAGS:
        lines += [
            "<details><summary>All flags</summary>", "", "```json", _inert(text), "```", "",
            "</details>", "",
        ]  # fmt: skip
    known = [
        ("games played in training", facts.get("games")),
        ("seconds of training", facts.get("training_s")),
        ("commit of the program", facts.get("commit")),
        *(
            (f"version of {package}", version)
            for package, version in (facts.get("versions") or {}).items()
        ),
    ]
    rows = [(plain(key), plain(str(value))) for key, value in known if value is not None]
    return "\n".join([*lines, *table(["", ""], rows), ""])


def _algorithm(flags: Mapping[str, Any]) -> str:
    """Return the name of the algorithm; runs of before there were two have no such flag."""
    return shown_text(str(flags.get("algorithm", "impala")), 100)


def _header(title: str, more_tags: Sequence[str], scores: Sequence[Score]) -> list[str]:
    """Return the header; JSON is YAML as well, and no text can break out of it."""
    results = [
        {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"name": score.env, "type": score.env},
            "metrics": [
                {
                    "type": "mean_reward",
                    "name": f"mean_reward ({score.policy})",
                    "value": f"{score.mean:.2f} +/- {np.std(score.returns):.2f}",
                    "verified": False,
                }
            ],
        }
        for score in scores
    ]
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "v-trace", *more_tags]
    header = {
        "library_name": "ritornello",
        "tags": tags,
        "model-index": [{"name": title, "results": results}],
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in header.items()]
    return ["---", *lines, "---", ""]


def _score_lines(scores: Sequence[Score], facts: Mapping[str, Any]) -> list[str]:
    if not scores:
        mean = facts.get("mean_return")
        if mean is None:
            return ["It was not measured."]
        return [
            f"It was not tested. The last {facts['mean_return_games']} games of its training had a "
            f"mean return of {mean:.2f}; many versions of the weights played them, by the rules of "
            "training."
        ]
    rows = []
    for score in scores:
        low, high = score.interval()
        human = score.human_normalised
        rows.append(
            (
                plain(score.env),
                plain(score.policy),
                str(len(score.returns)),
                str(score.distinct_games),
                f"{score.mean:.2f}",
                f"{low:.2f} to {high:.2f}",
                "" if human is None else f"{100 * human:.1f} %",
            )
        )
    headings = ["game", "actions", "games", "distinct", "mean return", "95 % interval", "of human"]
    rules = dict.fromkeys(plain(shown_text(score.rules, 1000)) for score in scores if score.rules)
    return [
        *table(headings, rows),
        "",
        "Whole games with frozen weights: lost lives end nothing, and returns are not clipped. "
        "Actions are drawn from the policy (sampled), or the most probable ones (greedy). The "
        "interval is a percentile bootstrap of the mean over the games; it says nothing about "
        "other seeds of the training.",
        *(f"\n* {each}" for each in rules),
    ]


def _listed(games: Sequence[str]) -> str:
    return ", ".join(shown_text(game_name(game), 100) for game in games)


def _inert(text: str) -> str:
    """Return text in which nothing ends the block that it stands in."""
    return text.replace("`", "\\u0060").replace("<", "\\u003c")
