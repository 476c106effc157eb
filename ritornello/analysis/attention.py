"""Where does an attention agent look? A film of a game beside the maps of its heads.

An agent of --model=attention (agent/models/attention.py) sees the game through a few soft
spotlights that it points itself, from its memory of the step before. On the left are all heads in
their colours, on the right one picture for each, dark where it does not look. Written are film.mp4,
maps.npz (the weights, [moment, head, h, w], each map sums to 1), settings.json, actions.json and
still.png.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from ritornello.agent.testing.player import Step
from ritornello.analysis import films
from ritornello.metrics.film import enlarged, side_by_side

EXAMPLES = """  python -m ritornello.analysis attention --load_model_url=results/<run>
  python -m ritornello.analysis attention --load_model_url=results/<run> --start=200

Look for a head that stays on the agent itself, one that runs ahead of what comes next, one that
watches the score. A head that is gray all over is not used.
"""
# One per head, then again from the start.
HEAD_COLOURS = (films.BLUE, films.ORANGE, films.YELLOW, films.PINK)
DARKEST = 0.2  # of a pixel's brightness, where a head does not look
PANELS_PER_ROW = 2


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = films.film_parser("attention", __doc__, EXAMPLES).parse_args(arguments)
    filming = films.Filming("attention", options)
    model = filming.agent.model

    @torch.inference_mode()
    def look(step: Step) -> dict[str, np.ndarray]:
        return {"maps": model.attention_maps(step.inputs, step.state)[0].numpy()}

    maps = filming.play(look)["maps"]  # [N, heads, h, w]
    scales = np.array([films.full_colour(head) for head in maps.swapaxes(0, 1)], np.float32)

    def draw(frame: np.ndarray, number: int) -> np.ndarray:
        return drawn(frame, (maps[number] / scales[:, None, None]).clip(0, 1))

    settings = {
        "heads": maps.shape[1],
        "cells": list(maps.shape[2:]),
        "full_light_at": scales.tolist(),
    }
    return filming.write(draw, int(maps.max((1, 2, 3)).argmax()), settings)


def drawn(frame: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Return one picture of the film: all heads over the frame, and each by itself.

    `frame` is the picture of the game, [H, W, 3] uint8. `heat` says where each head looks, [heads,
    h, w] float32 in [0, 1]; 1 is full light.
    """
    stretched = F.interpolate(torch.from_numpy(heat)[None], frame.shape[:2], mode="bilinear")[0]
    lights = stretched.numpy()[..., None]  # [heads, H, W, 1]
    colours = [HEAD_COLOURS[head % len(HEAD_COLOURS)] for head in range(len(heat))]
    tints = [x * np.array(c, np.float32) for x, c in zip(lights, colours, strict=True)]
    together = films.tinted(frame, np.max(tints, axis=0))
    panels = []
    for light, colour in zip(lights, colours, strict=True):
        panel = (frame * (DARKEST + (1 - DARKEST) * light)).astype(np.uint8)
        panel[:2] = 255 * np.array(colour)  # a bar that says which head it is
        panels.append(panel)
    panels += [np.zeros_like(frame)] * (-len(panels) % PANELS_PER_ROW)
    rows = [
        side_by_side(panels[start : start + PANELS_PER_ROW], gap=0)
        for start in range(0, len(panels), PANELS_PER_ROW)
    ]
    picture = side_by_side([enlarged(together, films.ENLARGEMENT), np.concatenate(rows)])
    return films.with_legend(picture, {f"head {n}": c for n, c in enumerate(colours, start=1)})
