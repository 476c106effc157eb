"""The flags of the group `model`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import (
    BoolOrAuto,
    Count,
    CountOrAuto,
    LayerNorm,
    ModelName,
    PixelKind,
    Share,
)
from ritornello.flags.parts import AUTO, NETWORKS


class ModelFlags(FlagGroup, effect="learning"):
    """The network, its memory, its inputs and PopArt."""

    model: ModelName = flag(
        AUTO,
        f"network: auto, {', '.join(NETWORKS.shipped)}, or <module>:<name> for your own (docs/your_own.md); auto: impala_shallow for images (resnet below 20 pixels), mlp for vectors; attention: the Attention-Augmented Agent, which shows where it looks",
        main=True,
    )
    feature_out_layer_size: CountOrAuto = flag(
        0,
        "F, number of features; 0: the default of the network (512 for nature, 256 for impala). For attention: channels of its map (default 32; the paper has 128)",
        le=16_384,
    )
    use_lstm: Annotated[
        bool | Annotated[int, Field(ge=1, le=16)], Field(union_mode="left_to_right")
    ] = flag(
        False,
        "put an LSTM between features and heads, so that the agent has a memory (attention always has one); a number: so many layers",
    )
    layer_norm: LayerNorm = flag(
        "none",
        "layers of a network that are normalised before their ReLU or tanh: none, features (the last one), or all",
    )
    lstm_size: Count = flag(256, "number of units in each layer of the LSTM", le=4_096)
    use_last_action: BoolOrAuto = flag(
        "auto",
        "give the last action to the model as an input; auto: only with --use_lstm or --model=attention",
    )
    use_last_reward: Annotated[bool | Literal["auto", "raw"], Field(union_mode="left_to_right")] = (
        flag(
            "auto",
            "give the last reward, clamped to [-1, 1], to the model as an input; auto: only with --use_lstm or --model=attention; raw: without clamping, for agents that were trained so (python -m ritornello.agent.torchbeast)",
        )
    )
    use_task_id: bool = flag(
        False,
        "give the number of the game to the model as an input; otherwise the policy recognises the game from the observations alone",
    )
    normalise_pixels: PixelKind = flag(
        "each",
        "subtract the mean image from each frame and divide by the standard deviation, both from the first 200 batches of each game, so that the network sees the moving parts; each: divide every pixel by its own standard deviation, and clip the result at 10; rare: the same, but divide by no more than the common deviation, so that only what rarely changes is amplified",
    )
    normalise_vectors: bool = flag(
        False,
        "normalise vector observations by their running mean and standard deviation, which are saved with the weights",
    )
    use_popart: bool = flag(
        True,
        "PopArt: normalise value targets adaptively, without a change to the values that the network predicts",
    )
    popart_beta: Share = flag(
        3e-3,
        "step size of the PopArt statistics, per update; with several games, per update with data of the game",
    )
