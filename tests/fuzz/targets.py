"""The doors of the program, and how each is given input: 10,000 cases altogether."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import yaml

from ritornello.analysis.compare_sequence import rich_tables, write_report
from ritornello.flags.help import _leaves
from ritornello.flags.options import Flags
from ritornello.flags.parsing import check_values, parse
from ritornello.flags.presets import PRESETS
from ritornello.replay.parameters import make_buffers, normal_form, parse_replay_parameters
from ritornello.replay.registry import all_keys
from ritornello.sequences.folder import STATE_FILE, SequenceFolder
from ritornello.sequences.foreign import check_plan, check_saved, check_typed
from ritornello.sequences.plan import SHIPPED, check_flags, load_plan
from ritornello.sequences.runner import command
from tests.fuzz import stored
from tests.fuzz.harness import Target
from tests.fuzz.mutations import mutated_text, mutated_tree, nasty, writable

Action = Callable[[], object]

BUFFERS = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
    {"type": "standard", "capacity": 100, "sample_ratio": 0.2, "reservoir": True},
    {"type": "elite", "capacity": 50, "sample_ratio": 0.2, "dist_function": "ln_norm", "p": 2},
    {"type": "custom", "capacity": 9, "sample_ratio": 0.1, "sample_strategy": "attentive_sampling"},
]
SAVED = {
    "format_version": 1,
    "name": "fuzz",
    "arguments": ["--debug=True"],
    "runs": [
        {
            "name": f"{n:03d}_{group}_seed{seed}",
            "group": group,
            "seed": seed,
            "flags": {"env": "CartPole-v1", "lr": 0.001, "seed": seed, **more},
            "status": status,
            "exit_code": code,
            "seconds": 1.5,
        }
        for n, (group, seed, status, code, more) in enumerate(
            [
                ("a", 1, "done", 0, {}),
                ("b", 1, "waiting", None, {"load_model_url": {"run": "a"}}),
                ("test-b", 1, "running", None, {"op_mode": "test", "load_model_url": {"run": "b"}}),
                ("a", 2, "failed", 1, {"replay_parameters": BUFFERS}),
            ],
            start=1,
        )
    ],
}
PLAN = {
    "name": "fuzz",
    "about": "a plan",
    "base": {"env": "CartPole-v1", "replay_parameters": BUFFERS},
    "seeds": [1, 2],
    "runs": [{"name": "a"}, {"name": "b", "flags": {"lr": 0.1, "load_model_url": {"run": "a"}}}],
    "grid": {"gamma": [0.9, 0.99]},
    "test": {"test_episode_count": 3},
}


def _value(rng: Random, name: str) -> str:
    """Return a value for a flag: most often one that its type would take."""
    draw = rng.random()
    if draw < 0.05:
        return str(rng.choice(("True", "1e999", "nan", "-1", "9" * 40)))
    if draw < 0.12:
        return _text(rng)
    field = Flags.model_fields[name]
    if name == "replay_parameters":
        return json.dumps(BUFFERS if rng.random() < 0.5 else mutated_tree(rng, BUFFERS))
    if name == "preset":
        return ",".join(rng.choices([*PRESETS, "nothing"], k=rng.randint(1, 3)))
    if name == "env":
        return rng.choice(("CartPole-v1", "six", "three,A", "A,B", "a:b", "PongNoFrameskip-v4"))
    kinds = _leaves(field.annotation)
    choices: list[Any] = [kind for kind in kinds if isinstance(kind, str)]
    if bool in kinds:
        choices += ["True", "False", "yes"]
    if int in kinds:
        choices += [rng.randint(0, 50), rng.choice((10**6, -3, 10**18))]
    if float in kinds:
        choices += [rng.random(), rng.choice((1e-9, 5.0, 1e30, -0.5))]
    if tuple in kinds:
        choices += ["84,84", "1,2,3", "[1, 2]", "1,", "x"]
    if rng.random() < 0.05:
        return mutated_text(rng, str(field.default))
    return str(rng.choice(choices or ["text"]))


def _text(rng: Random) -> str:
    value = nasty(rng)
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except ValueError:  # a number of more than 4300 digits
        return "9" * 5000


def command_line(rng: Random) -> list[str]:
    """Return the arguments of a main.py, right ones for the most part."""
    argv = []
    for _ in range(rng.choice((0, 1, 2, 4, 8))):
        name = rng.choice(list(Flags.model_fields))
        value = _value(rng, name)
        if rng.random() < 0.08:
            name = mutated_text(rng, name, 1)
        form = rng.random()
        if form < 0.7:
            argv.append(f"--{name}={value}")
        elif form < 0.9:
            argv += [f"--{name.replace('_', rng.choice('-_'))}", value]
        else:
            argv.append(rng.choice((f"--{name}", name, value, f"-{name}={value}", "--")))
    if argv and rng.random() < 0.1:
        argv.append(rng.choice(argv))
    return argv


def parsed_commands(rng: Random, place: Path) -> Action:
    """Command lines -> flags, at times with flags of a checkpoint or an overrides file below."""
    argv = command_line(rng)
    stored_flags: Any = {"lr": 0.1, "batch_size": 4, "env": "CartPole-v1", "seed": 3}
    if rng.random() < 0.3:
        stored_flags = mutated_tree(rng, stored_flags)
    if rng.random() < 0.3:
        overrides = place / "overrides.json"
        values = mutated_tree(rng, {"lr": 0.1, "env": "A", "replay_parameters": BUFFERS})
        text = _text(rng) if rng.random() < 0.3 else json.dumps(writable(values))
        overrides.write_text(text, encoding="utf-8", errors="replace")
        argv.append(f"--multi_train_overrides={overrides}")
    family = rng.choice(("atari", "vector", "several-games"))

    def act() -> object:
        flags = parse(argv, lambda url: stored_flags, lambda env, _: family)
        return Flags(**json.loads(json.dumps(flags.to_json())))

    return act


def replay_parameters(rng: Random, place: Path) -> Action:
    """Lists of buffers, as text and as values."""
    value: Any = BUFFERS
    if rng.random() < 0.5:
        value = rng.sample(BUFFERS, rng.randint(1, len(BUFFERS)))
    if rng.random() < 0.15:
        names = rng.sample(list(all_keys()), rng.randint(1, 6))
        value = [{**rng.choice(BUFFERS), **{name: nasty(rng) for name in names}}]
    elif rng.random() < 0.9:
        value = mutated_tree(rng, value)
    if rng.random() < 0.5:
        value = repr(writable(value)) if rng.random() < 0.3 else json.dumps(writable(value))
        value = mutated_text(rng, value) if rng.random() < 0.5 else value

    def act() -> object:
        configs = parse_replay_parameters(value)
        assert parse_replay_parameters(json.loads(json.dumps(normal_form(configs)))) == configs
        return make_buffers(configs, 0.5)

    return act


def plans(rng: Random, place: Path) -> Action:
    """YAML files: load, check, and the folder that comes of it."""
    path = place / "plan.yaml"
    if rng.random() < 0.4:
        text = yaml.safe_dump(writable(mutated_tree(rng, PLAN)), allow_unicode=True)
    else:
        source = rng.choice(sorted(SHIPPED.glob("*.yaml")))
        text = mutated_text(rng, source.read_text() if rng.random() < 0.5 else yaml.safe_dump(PLAN))
    data = text.encode("utf-8", errors="surrogatepass")
    path.write_bytes(bytes(reversed(data)) if rng.random() < 0.03 else data)
    typed = ["--lr=0.1"] if rng.random() < 0.5 else command_line(rng)

    def act() -> object:
        given = check_typed(typed)
        plan = load_plan(str(path))
        check_flags(plan, Flags.model_fields, check_values)
        check_plan(plan.runs, given, "plan.yaml")
        folder = SequenceFolder.create(place / "results", plan, typed)
        again = SequenceFolder.open(folder.path)
        assert again.runs == folder.runs
        assert folder.path.parent == place / "results"
        return _commands(again)

    return act


def saved_sequences(rng: Random, place: Path) -> Action:
    """sequence.json: what --resume and --report make of it, short of starting anything."""
    tree = mutated_tree(rng, SAVED) if rng.random() < 0.95 else SAVED
    text = json.dumps(writable(tree))
    text = mutated_text(rng, text) if rng.random() < 0.25 else text
    (place / STATE_FILE).write_bytes(text.encode("utf-8", errors="surrogatepass"))
    run = place / "001_a_seed1" / "CartPole-v1_20240101-000000"
    (run / "checkpoints").mkdir(parents=True)
    (run / "metrics.jsonl").write_text(
        "".join(
            mutated_text(rng, line) if rng.random() < 0.3 else line
            for line in [json.dumps(stored.RECORD) + "\n"] * 3
        ),
        encoding="utf-8",
        errors="replace",
    )

    def act() -> object:
        folder = SequenceFolder.open(place)
        check_saved(place, folder.runs, folder.arguments, {}, trust_files=rng.random() < 0.3)
        _commands(folder)
        return list(rich_tables(write_report(folder)))

    return act


def _commands(folder: SequenceFolder) -> None:
    """Make every command line, and see that each writes into the folder of the sequence only."""
    for run in folder.runs:
        source = folder.source(run)
        if source is not None and not folder.run_folders(source):
            continue
        json.dumps(folder.resolved_flags(run))
        line = command(folder, run)
        results = [word for word in line if word.startswith("--results_dir=")][-1]
        inside = Path(results.partition("=")[2])
        assert inside.resolve().parent == folder.path.resolve(), inside
        assert inside.name == run.name


COMPARISON = ("table.csv", "table.md", "comparison.png")  # of a sequence
TARGETS = (
    Target("command_lines", 3200, parsed_commands),
    Target("replay_parameters", 2000, replay_parameters),
    Target("plans", 1500, plans, leaves=("results/*/sequence.json",)),
    Target("sequence_json", 1500, saved_sequences, leaves=COMPARISON),
    Target("checkpoint_bytes", 700, stored.damaged_checkpoints),
    Target("checkpoint_trees", 500, stored.strange_checkpoints),
    Target("run_folders", 200, stored.strange_run_folders, leaves=("run/*",)),
    Target("prepared", 100, stored.prepared_commands),
)
assert sum(target.share for target in TARGETS) == 10_000
