"""The page in the folder of an exported network: what it is, and a script that plays with it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ritornello.agent.deployed import graph

PAGE = "README.md"
# A line "onnx| ..." is of that format alone, and words such as START stand for blocks of lines.
TEMPLATE = Path(__file__).with_name("page.md")


def page(about: Mapping[str, Any], kind: str) -> str:
    """Return the page; `about` is the content of preprocessing.json, `kind` one of NETWORKS."""
    game, ports = about["games"][0], about["inputs"]
    world = "atari" if "rules" in game else "gymnasium"
    following = {
        graph.STATE: f'outputs["{graph.NEXT_STATE}"]',
        graph.FIRST: "np.array([False])",
        graph.LAST_ACTION: "action",
        graph.LAST_REWARD: "np.array([reward], np.float32)",
    }
    start, before, after = [], [], []
    for name, port in ports.items():
        shape, place = (1, *port["shape"][1:]), f'inputs["{name}"] = '
        zeros = f'np.zeros({shape}, "{port["dtype"]}")'
        if name.startswith("obs"):
            start += [place + zeros] * (about["frame_stack"]["count"] > 1 and world != "atari")
            before.append(place + _observed(about, name))
        elif name == graph.MASK:
            before.append(f"{place}np.hstack({game[graph.MASK]}).astype(bool)[None]")
        elif name in graph.NOISE.values():
            before.append(f"{place}rng.standard_{name.split('_')[0]}({shape}, np.float32)")
        else:
            start.append(place + ("np.array([True])" if name == graph.FIRST else zeros))
        after += [place + value for known, value in following.items() if known == name]
    blocks = {
        "GAMES": [f"# An agent of {', '.join(each['env_id'] for each in about['games'])}"],
        "START": start,
        "BEFORE": before,
        "DONE": [f"done = {_decoded(game['action'])}"] if "action" in game else [],
        "AFTER": after,
    }
    lines: list[str] = []
    for tagged in TEMPLATE.read_text("utf-8").splitlines():
        tag, _, line = tagged.rpartition("| ")
        if tag not in ("", kind, world):
            continue
        name = line.strip()
        lines += [line.replace(name, own) for own in blocks.get(name, [name])]
    return "\n".join(lines) + "\n"


def _observed(about: Mapping[str, Any], name: str) -> str:
    """Return the expression of an input that is part of the observation."""
    game, port, count = about["games"][0], about["inputs"][name], about["frame_stack"]["count"]
    shape = port["shape"][1:]
    if "rules" in game:
        frames = "observation" if shape[0] == count else "np.moveaxis(observation, -1, 2)"
        return f"{frames}.reshape({', '.join(map(str, (1, *shape)))})"
    parts = [_encoded(leaf) for leaf in game["observation"] if leaf["input"] == name]
    frame = parts[0] if len(parts) == 1 else f"np.concatenate([{', '.join(parts)}])"
    frame = f'np.asarray({frame}, "{port["dtype"]}")[None]'
    if count == 1:
        return frame
    return f'np.concatenate([inputs["{name}"][:, {shape[0] // count}:], {frame}], 1)'


def _encoded(leaf: Mapping[str, Any]) -> str:
    """Return the expression that converts one leaf of `observation` for the network."""
    value = f"observation{leaf['path']}"
    if leaf["kind"] == "image":
        axes = leaf["channel_axes"]
        size = [n for axis, n in enumerate(leaf["shape"]) if axis not in axes]
        moved = f"np.moveaxis({value}, {axes}, {list(range(len(axes)))})" if axes else value
        return f"{moved}.reshape(-1, {size[0]}, {size[1]})"
    if leaf["kind"] == "numbers":
        return f"np.ravel({value})"
    chosen = f"np.ravel({value}) - {leaf['starts']}"
    return f"np.concatenate([np.eye(n)[v] for n, v in zip({leaf['counts']}, {chosen})])"


def _decoded(leaves: Sequence[Mapping[str, Any]]) -> str:
    """Return the expression that converts `action` for the environment."""
    return _joined({_keys(leaf["path"]): _chosen(leaf) for leaf in leaves}) if leaves else "..."


def _keys(path: str) -> tuple[Any, ...]:
    """Return the keys in a path of `wrappers.spaces.leaves`, such as ['hand'][0]."""
    node, keys = ast.parse(f"action{path}", mode="eval").body, []
    while isinstance(node, ast.Subscript):
        keys.append(ast.literal_eval(node.slice))
        node = node.value
    return tuple(reversed(keys))


def _joined(parts: Mapping[tuple[Any, ...], str]) -> str:
    """Return the expression of dicts and tuples that hold the parts at these keys."""
    if () in parts:
        return parts[()]
    inner: dict[Any, dict[tuple[Any, ...], str]] = {}
    for (key, *rest), text in parts.items():
        inner.setdefault(key, {})[tuple(rest)] = text
    if isinstance(next(iter(inner)), int):
        return f"({' '.join(_joined(part) + ',' for part in inner.values())})"
    return f"{{{', '.join(f'{key!r}: {_joined(part)}' for key, part in inner.items())}}}"


def _chosen(leaf: Mapping[str, Any]) -> str:
    """Return the expression of one leaf of the environment's action, of the dtype of its space."""
    path, shape = leaf["path"], leaf["shape"]
    first, end = leaf["columns"]
    own = f"np.ravel(action[0])[{first}:{end}]" if path else "action[0]"
    start = f" + {leaf['start']}" if np.any(leaf.get("start", 0)) else ""
    if leaf["kind"] == "choice" and not shape:
        return f"int({own}{'[0]' * bool(path)}){start}"
    own, space = f"{own}.reshape({tuple(shape)})", f"env.action_space{path}"
    if leaf["kind"] == "numbers":
        own = f"np.clip({own}, {space}.low, {space}.high)"
    return f"np.asarray({own}{start}, {space}.dtype)"
