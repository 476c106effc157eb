"""The card of a published agent: README.md of a model folder, as model hubs show it.

It says what was measured and how, and leaves out what was not. Everything in it comes from files of
a run, which may be a stranger's: texts are shown so that they stay texts.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from ritornello.agent.testing.score_table import Report
from ritornello.core.errors import ConfigError
from ritornello.core.markdown import plain, table
from ritornello.core.plain_data import parse_json, read_text, shown_text
from ritornello.core.project import PLAIN_MAIN
from ritornello.core.spec import game_name
from ritornello.metrics.text import same_decimals

CARD, FILM = "README.md", "replay.mp4"  # the names under which hubs look for them
BEGINNING = '---\nlibrary_name: "ritornello"\n'  # of every card, by which it is known
RESAMPLES = 10_000
CONFIDENCE = 0.95
TEMPLATE = """{header}

# {title}

An agent ({algorithm}) of {games}, trained for {agent_steps:,} agent steps ({updates:,} updates).

## Score

{score}

{film}## Use

```
{program} --test={url}
```

## Training

{command}{facts}
"""
_REPORTS = TypeAdapter(list[Report])


def check_is_free(folder: Path) -> None:
    """Raise ConfigError if a folder has a page or a film that a card would replace, and no card."""
    card = folder / CARD
    is_ours = card.exists() and read_text(card, "the card").startswith(BEGINNING)
    if not is_ours and (card.exists() or (folder / FILM).exists()):
        raise ConfigError(
            f"{folder} has a {CARD} or a {FILM} that is not of an exported agent, and that a card "
            "would replace: give another folder."
        )


def read_test(file: Path) -> list[Report]:
    """Return the reports of a test, one for each game; [] if there is none that is sound."""
    try:
        data = parse_json(read_text(file, "the report"), str(file))
        reports = _REPORTS.validate_python(data.get("games", [data]))
    except (ConfigError, ValidationError, AttributeError):
        return []
    return reports if all(map(_is_sound, reports)) else []


def _is_sound(report: Report) -> bool:
    numbers = [*report.returns, report.mean, report.human_normalised or 0.0]
    is_finite = bool(np.isfinite(numbers).all())
    return bool(report.returns) and is_finite and report.policy in ("sampled", "greedy")


def interval(returns: Sequence[float]) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the mean, the same each time."""
    values, count, rng = np.array(returns), len(returns), np.random.default_rng(0)
    # One by one: of 10,000 games all draws together would be gigabytes.
    means = [values[rng.integers(0, count, count)].mean() for _ in range(RESAMPLES)]
    tails = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(means, [tails, 100 - tails])
    return float(low), float(high)


def model_card(
    name: str,
    facts: Mapping[str, Any],
    flags: Mapping[str, Any],
    *,
    tested: Sequence[Report] = (),
    command: Sequence[str] = (),
    film_of: str = "",
    repository: str = "",
) -> str:
    """Return the card as Markdown, with the header that model hubs read.

    Args:
      name: name of the model.
      facts: result of `training_facts` in agent/export.py.
      flags: flags of the run.
      tested: reports of tests of exactly these weights.
      command: arguments of main.py that trained the model; empty if they are not known.
      film_of: what FILM, beside the card, shows; "" without a film.
      repository: `<owner>/<name>[@<revision>]` on the hub, if the model is to be there.
    """
    games = str(facts["env_spec"]["env_id"]).split(",")
    title, algorithm = shown_text(name, 100), _algorithm(flags)
    film = f"## Film\n\n[{plain(film_of)}]({FILM})\n\n" if film_of else ""
    url = f"hf:{repository}" if repository else "<this folder>"
    line = shown_text(f"{PLAIN_MAIN} {shlex.join(command)}", 4000)
    known = {
        "games played in training": facts.get("games"),
        "seconds of training": facts.get("training_s"),
        "commit of the program": facts.get("commit"),
        **{f"version of {name}": each for name, each in (facts.get("versions") or {}).items()},
    }
    rows = [(plain(key), plain(str(value))) for key, value in known.items() if value is not None]
    return TEMPLATE.format(
        header="\n".join(_header(title, [algorithm, *games], tested)),
        title=plain(title),
        algorithm=plain(algorithm),
        games=plain(_listed(games)),
        agent_steps=facts["agent_steps"],
        updates=facts["updates"],
        score="\n".join(_score_lines(tested, facts)),
        film=film,
        program=PLAIN_MAIN,
        url=url,
        command=f"```\n{line}\n```\n\n" if command else "",
        facts="\n".join(table(["", ""], rows)),
    )


def _algorithm(flags: Mapping[str, Any]) -> str:
    """Return the name of the algorithm; runs of the oldest versions have no such flag."""
    return shown_text(str(flags.get("algorithm", "impala")), 100)


def _header(title: str, more_tags: Sequence[str], tested: Sequence[Report]) -> list[str]:
    """Return the header; JSON is YAML as well, and no text can break out of it."""
    results = [
        {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"name": report.env, "type": report.env},
            "metrics": [
                {
                    "type": "mean_reward",
                    "name": f"mean_reward ({report.policy})",
                    "value": " +/- ".join(same_decimals([report.mean, report.std], 2)).replace(
                        ",", ""
                    ),
                    "verified": False,
                }
            ],
        }
        for report in tested
        for numbers in [same_decimals([report.mean, report.std], 2)]
    ]
    tags = ["reinforcement-learning", "deep-reinforcement-learning", *more_tags]
    header = {
        "library_name": "ritornello",
        "tags": tags,
        "model-index": [{"name": title, "results": results}],
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in header.items()]
    return ["---", *lines, "---"]


def _score_lines(tested: Sequence[Report], facts: Mapping[str, Any]) -> list[str]:
    if not tested:
        mean = facts.get("mean_return")
        if mean is None:
            return ["No test of all its games was found."]
        return [
            f"It was not tested. The last {facts['mean_return_games']} games of its training had a "
            f"mean return of {same_decimals([mean], 2)[0]}; many versions of the weights played "
            "them, by the rules of training."
        ]
    headings = ["game", "actions", "games", "distinct", "mean return", "95 % interval", "of human"]
    rules = dict.fromkeys(plain(shown_text(each.rules, 1000)) for each in tested if each.rules)
    return [
        *table(headings, map(_row, tested)),
        "",
        "Whole games with frozen weights: lost lives end nothing, and returns are not clipped. "
        "Actions are drawn from the policy (sampled), or the most probable ones (greedy). The "
        "interval is a percentile bootstrap of the mean over the games; it says nothing about "
        "other seeds of the training.",
        *(f"\n* {each}" for each in rules),
    ]


def _row(report: Report) -> Sequence[str]:
    mean, low, high = same_decimals([report.mean, *interval(report.returns)], 2)
    human = report.human_normalised
    return (
        plain(report.env),
        plain(report.policy),
        str(report.episodes),
        str(report.distinct_games),
        mean,
        f"{low} to {high}",
        "" if human is None else f"{100 * human:.1f} %",
    )


def _listed(games: Sequence[str]) -> str:
    return ", ".join(shown_text(game_name(game), 100) for game in games)
