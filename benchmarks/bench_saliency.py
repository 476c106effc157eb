"""How many saliency maps per second `python -m analysis saliency` makes, against the direct way.

    python benchmarks/bench_saliency.py

The direct way is the formula as it stands: for every point of the grid a mask made with SciPy, a
blurred picture, and one forward pass (policy and value are both read off it). The batched way makes
masks and blurred picture once, and takes all points through the network together. Ours is
analysis/saliency_maps.py, in fp32 and in bf16 (the default of the command where the processor has
it). All see the same frames of a real game, in turn and for equally
long, so that a busy machine slows all of them; processor time is given besides, which other
programs hardly change. Prints one line of JSON, with the largest difference of the maps too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ritornello.agent.models.base import ActorCritic, Inputs  # noqa: E402
from ritornello.agent.models.torsos import PixelConv2d  # noqa: E402
from ritornello.analysis.playing import Moment, load_agent, play  # noqa: E402
from ritornello.analysis.saliency_maps import BLUR_SIGMA, Grid, Perturbation, Saliency  # noqa: E402
from ritornello.live.json_text import json_text  # noqa: E402

OURS = {"ours": "fp32", "ours_bf16": "bf16"}  # name -> precision
FIRST_STEP = 50  # the ball is in play


def parse() -> argparse.Namespace:
    """Read the options of the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--load_model_url", default=str(ROOT / "models" / "pong"))
    parser.add_argument("--frames", type=int, default=9, help="of the game")
    parser.add_argument("--radius", type=float, default=5.0)
    parser.add_argument("--density", type=int, default=5)
    return parser.parse_args()


def scaled(layer: PixelConv2d, pixels: np.ndarray) -> torch.Tensor:
    """Return pixels as the first layer takes floats: normalised, as it does with uint8 itself."""
    if layer.statistics is None:
        return torch.from_numpy((pixels / 255).astype(np.float32))
    mean, scale = layer.statistics.mean.round().numpy(), layer.statistics.scale().numpy()
    return torch.from_numpy(((pixels - mean) * scale).astype(np.float32))


def scores(model: ActorCritic, moment: Moment, obs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return (policy, value) saliency [N] of perturbed observations [N, C, H, W]."""
    count = len(obs)
    others = [None if x is None else x.expand(count, *x.shape[1:]) for x in moment.inputs[1:]]
    heads, _ = model(Inputs(obs, *others), moment.state.expand(count, -1))
    policy = 0.5 * (heads.params - moment.heads.params).square().sum(-1)
    return policy, 0.5 * (heads.value - moment.heads.value).square()


@torch.inference_mode()
def direct(model: ActorCritic, layer: PixelConv2d, grid: Grid, moment: Moment) -> Saliency:
    """Return the maps of one moment, point by point."""
    pixels = moment.inputs.obs[0].numpy().astype(np.float64)
    maps = np.zeros((2, len(grid.rows), len(grid.columns)), np.float32)
    for i, row in enumerate(grid.rows):
        for j, column in enumerate(grid.columns):
            mask = np.zeros(pixels.shape[1:])
            mask[row, column] = 1
            mask = ndimage.gaussian_filter(mask, grid.radius)
            mask /= mask.max()
            blurred = ndimage.gaussian_filter(pixels, (0, BLUR_SIGMA, BLUR_SIGMA))
            obs = scaled(layer, pixels * (1 - mask) + blurred * mask)[None]
            for what, score in enumerate(scores(model, moment, obs)):
                maps[what, i, j] = score
    return Saliency(*maps)


@torch.inference_mode()
def batched(
    model: ActorCritic, layer: PixelConv2d, masks: torch.Tensor, moment: Moment
) -> Saliency:
    """Return the maps of one moment from one forward pass; masks are [I, J, H, W] float32."""
    pixels = moment.inputs.obs[0].numpy().astype(np.float64)
    blurred = ndimage.gaussian_filter(pixels, (0, BLUR_SIGMA, BLUR_SIGMA))
    seen, changed = scaled(layer, pixels), scaled(layer, blurred)
    obs = seen + (changed - seen) * masks.flatten(0, 1)[:, None]
    policy, value = (score.view(masks.shape[:2]) for score in scores(model, moment, obs))
    return Saliency(policy.numpy(), value.numpy())


def timed(work: Callable[[], Saliency], at_least_s: float = 0.0) -> tuple[float, float, Saliency]:
    """Return (mean seconds, mean processor seconds of all threads, what it made).

    Repeats the work until the time is filled.
    """
    began, cpu_began, repetitions = time.perf_counter(), time.process_time(), 0
    while True:
        made = work()
        repetitions += 1
        elapsed = time.perf_counter() - began
        if elapsed >= at_least_s:
            cpu_s = time.process_time() - cpu_began
            return elapsed / repetitions, cpu_s / repetitions, made


def main() -> None:
    """Measure, and print one line of JSON."""
    options = parse()
    agent = load_agent(options.load_model_url)
    model = agent.model
    (layer,) = [m for m in model.torso_net.modules() if isinstance(m, PixelConv2d)]
    grid = Grid(*agent.env_spec.frame_shape[1:], options.radius, options.density)
    masks = torch.from_numpy(grid.masks()).float()
    perturbations = {}
    for name, precision in OURS.items():
        model.set_precision(precision)
        perturbations[name] = Perturbation(model, grid)
    model.set_precision("fp32")
    moments = list(play(agent, steps=FIRST_STEP + options.frames))[FIRST_STEP:]
    seconds: dict[str, list[float]] = {name: [] for name in ("direct", "batched", *OURS)}
    cpu: dict[str, list[float]] = {name: [] for name in seconds}
    differences = dict.fromkeys(OURS, 0.0)

    def ours(moment: Moment, name: str) -> Saliency:
        model.set_precision(OURS[name])
        with torch.inference_mode():
            heads, _ = model(moment.inputs, moment.state)
        maps = perturbations[name].maps(moment.inputs, moment.state, heads)
        model.set_precision("fp32")
        return maps

    batched(model, layer, masks, moments[0])  # warm-up
    for name in OURS:
        ours(moments[0], name)
    for moment in moments:
        ways: dict[str, Callable[[], Saliency]] = {
            "direct": lambda m=moment: direct(model, layer, grid, m),
            "batched": lambda m=moment: batched(model, layer, masks, m),
            **{name: lambda m=moment, n=name: ours(m, n) for name in OURS},
        }
        made, fill_s = {}, 0.0
        for name, work in ways.items():
            wall_s, cpu_s, made[name] = timed(work, fill_s)
            seconds[name].append(wall_s)
            cpu[name].append(cpu_s)
            fill_s = seconds["direct"][-1]  # so that a disturbance weighs the same in all
        plain = made["batched"].policy
        for name in OURS:
            share = float(abs(made[name].policy - plain).max() / plain.max())
            differences[name] = max(differences[name], share)

    def ratios(times: dict[str, list[float]], name: str) -> np.ndarray:
        """Frame by frame; a wide range says that the machine was busy with something else."""
        return np.array(times["direct"]) / np.array(times[name])

    report = {
        "benchmark": "saliency",
        "points": masks.shape[0] * masks.shape[1],
        "frames": len(moments),
        "frames_per_s": {
            name: round(1 / statistics.median(values), 2) for name, values in seconds.items()
        },
        "cpu_ms_per_frame": {
            name: round(1e3 * statistics.median(values), 2) for name, values in cpu.items()
        },
        "times_as_fast_as_direct": {
            name: round(float(np.median(ratios(seconds, name))), 1) for name in OURS
        },
        "range": {
            name: [round(float(bound(ratios(seconds, name))), 1) for bound in (np.min, np.max)]
            for name in OURS
        },
        "times_less_processor_time": {
            name: round(float(np.median(ratios(cpu, name))), 1) for name in OURS
        },
        "largest_difference_to_batched": differences,  # in shares of the frame's peak
        "threads": torch.get_num_threads(),
    }
    print(json_text(report))


if __name__ == "__main__":
    main()
