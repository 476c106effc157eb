"""The flags of the group `model`."""

from __future__ import annotations

from flags.group import FlagGroup, flag
from flags.kinds import BoolOrAuto, Count, CountOrAuto, Fraction01, ModelName, Positive
from flags.parts import AUTO, NETWORKS


class ModelFlags(FlagGroup):
    """The network, its memory, its inputs and PopArt."""

    model: ModelName = flag(
        AUTO,
        f"network: auto, {', '.join(NETWORKS.shipped)}, or <module>:<name> for one of your own (docs/your_own.md); auto: impala_shallow for images (resnet below 20 pixels), mlp for vectors; attention: the Attention-Augmented Agent, which shows where it looks",
    )
    feature_out_layer_size: CountOrAuto = flag(
        0,
        "F, width of the feature layer; 0 is the network's own (512 nature, 256 impala); for attention the channels of its map (32; the paper has 128)",
        le=16_384,
    )
    use_lstm: bool = flag(
        False,
        "an LSTM between features and heads: the agent remembers (attention has one)",
    )
    lstm_size: Count = flag(256, "units in each layer of the LSTM", le=4_096)
    lstm_layers: Count = flag(1, "layers of the LSTM; attention has one", le=16)
    use_last_action: BoolOrAuto = flag(
        "auto",
        "the last action is an input of the model; auto: with --use_lstm or --model=attention",
    )
    use_last_reward: BoolOrAuto = flag(
        "auto",
        "the last reward, clamped to [-1, 1], is an input of the model; auto: with --use_lstm or --model=attention",
    )
    clamp_last_reward: bool = flag(
        True,
        "clamp the last reward that is an input of the model; False only for agents that were trained without (python -m agent.torchbeast)",
    )
    use_task_id: bool = flag(
        False,
        "which game it is, is an input of the model; otherwise the policy tells games apart by what it sees",
    )
    normalise_pixels: bool = flag(
        True,
        "subtract the mean image and divide by the deviation, both of the first 200 batches of each game: the network sees what moves",
    )
    use_popart: bool = flag(
        True, "PopArt: adaptive normalisation of value targets, outputs preserved"
    )
    popart_beta: Fraction01 = flag(
        3e-3,
        "step size of the PopArt statistics, per update (of each game: per update that has something of it)",
    )
    popart_sigma_min: Positive = flag(
        1e-4,
        "lower bound of PopArt's sigma, in points: a game in which no reward is found is not blown up beyond it",
    )
    popart_sigma_max: Positive = flag(1e6, "upper bound of PopArt's sigma, in points")
