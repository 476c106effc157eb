"""Flags of earlier versions, in saved runs and old command lines: today's form of them.

Two flags that said one thing became one. Those that nobody had a use for are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ritornello.core.command_line import number_in
from ritornello.core.errors import ConfigError
from ritornello.wrappers.env_kwargs import kwargs_of, kwargs_text

KWARGS = "algorithm_kwargs"
# Passed over: what they said is fixed now.
GONE = frozenset(
    {
        *("lz4_compression_level", "popart_sigma_min", "popart_sigma_max", "learner_timeout"),
        *("worker_niceness", "lr_schedule_power", "tracker_project", "auto_restart"),
        "debug_faults",
    }
)


# What a switch has turned on, and the optimiser whose constants are meant, may be of a preset.
OF_PRESET = frozenset(
    {
        *("reward_clipping_method", "kl_mask_kind", "policy_cloning_loss_weight"),
        *("value_cloning_loss_weight", "action_set", "optimizer"),
    }
)


def modern(
    values: Mapping[str, Any], preset: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return flags of one source, flag -> value or text, in today's form.

    `preset` has those of the source's preset, which `values` override: `use_kl_mask=True` leaves it
    its kind of mask.
    """
    below = {name: preset[name] for name in OF_PRESET & preset.keys()}
    flags = below | {name: value for name, value in values.items() if name not in GONE}
    for name, convert in CONVERTED.items():
        if name in flags:
            convert(flags, flags.pop(name))
    return {
        name: value
        for name, value in flags.items()
        if name in values or name not in below or value != below[name]
    }


def is_earlier(name: str) -> bool:
    """Whether a name was a flag once, and is none now."""
    return name in GONE or name in CONVERTED


def _is_on(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes", "on", "t", "y")


def _switch(flag: str, **values: Any) -> Callable[[dict[str, Any], Any], None]:
    """Return the conversion of a switch: `off` and `on` are now values of `flag`.

    If one of them is left out, it was the default. A present value of `flag` wins over `on`.
    """

    def convert(flags: dict[str, Any], value: Any) -> None:
        if _is_on(value) and "on" in values:
            flags.setdefault(flag, values["on"])
        elif not _is_on(value) and "off" in values:
            flags[flag] = values["off"]

    return convert


def _of_optimiser(flag: str, optimiser: str) -> Callable[[dict[str, Any], Any], None]:
    """Return the conversion of a constant for which each optimiser had a flag of its own."""

    def convert(flags: dict[str, Any], value: Any) -> None:
        if str(flags.get("optimizer", "adam")).startswith(optimiser):
            flags.setdefault(flag, value)

    return convert


def _betas(flags: dict[str, Any], value: Any) -> None:
    if str(flags.get("optimizer", "adam")) == "adam":
        flags["optimizer_decay"] = f"{value},{flags.pop('adam_beta2', 0.999)}"


def _layers(flags: dict[str, Any], value: Any) -> None:
    if _is_on(flags.get("use_lstm", True)) and str(value) != "1":
        flags["use_lstm"] = value


def _argument(field: str, default: str) -> Callable[[dict[str, Any], Any], None]:
    """Return the conversion of a rarely used flag to an argument of the algorithm."""

    def convert(flags: dict[str, Any], value: Any) -> None:
        if str(value) in (default, "None", "none", "auto"):
            return  # a saved run has it, whether its algorithm knows it or not
        try:
            arguments = kwargs_of(kwargs_text(flags.get(KWARGS) or "", KWARGS))
        except ConfigError:
            return  # told with the other mistakes
        arguments[field] = number_in(value)
        flags[KWARGS] = json.dumps(arguments)

    return convert


def _updates(flags: dict[str, Any], value: Any) -> None:
    if str(value) != "0":
        flags["lr_scheduler_steps"] = f"{value}u"


def _share(flags: dict[str, Any], value: Any) -> None:
    if str(value) != "1":
        flags["machine_share"] = f"{flags.pop('agent_number', 0)}/{value}"


def _cuda_graph(flags: dict[str, Any], value: Any) -> None:
    if not _is_on(flags.get("compile", False)):
        flags["compile"] = "auto" if _is_on(value) else False


def _insecure(flags: dict[str, Any], value: Any) -> None:
    if _is_on(value) and flags.get("ray_address"):
        flags["ray_address"] = f"insecure:{flags['ray_address']}"


# Earlier flag -> what puts its value into today's flags. In this order.
CONVERTED: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "clip_rewards": _switch("reward_clipping_method", off="none", on="abs_one_sign"),
    "use_kl_mask": _switch("kl_mask_kind", off="none", on="implied"),
    "use_policy_cloning_loss": _switch("policy_cloning_loss_weight", off=0.0, on=0.01),
    "use_value_cloning_loss": _switch("value_cloning_loss_weight", off=0.0, on=0.005),
    "clamp_last_reward": _switch("use_last_reward", off="raw"),
    "full_action_space": _switch("action_set", on="all"),
    "basic_verbose": _switch("console", off="messages"),
    "caching": _switch("caching_threads", off=0),
    "lstm_layers": _layers,
    "rmsprop_eps": _of_optimiser("optimizer_eps", "rmsprop"),
    "adam_eps": _of_optimiser("optimizer_eps", "adam"),
    "rmsprop_alpha": _of_optimiser("optimizer_decay", "rmsprop"),
    "adam_beta1": _betas,
    "adam_beta2": lambda flags, value: None,
    "lr_scheduler_updates": _updates,
    "agent_count": _share,
    "agent_number": lambda flags, value: None,
    "policy_gradient_loss_weight": _argument("policy_cost", "1.0"),
    "entropy_end_share": _argument("entropy_end_share", "1.0"),
    "advantage_lambda": _argument("advantage_lambda", ""),
    "impact_clip": _argument("surrogate_clip", "0.3"),
    "impact_rho": _argument("ratio_bar", "2.0"),
    "impact_target_period": _argument("target_period", ""),
    "impact_values": _argument("value_source", "target"),
    "cuda_graph": _cuda_graph,
    "ray_insecure": _insecure,
}
