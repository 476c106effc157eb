"""Every option of the platform: one frozen, typed, documented pydantic-settings model.

How a command line becomes one is in flag_parsing.py, what `--help` says of it in flag_help.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from agent.algorithms.catalogue import ALGORITHMS
from agent.flag_values import (
    AdvantageNormalisation,
    LossReduction,
    Optimiser,
    Precision,
    RewardTransform,
    Schedule,
    TrustRegion,
)
from agent.models.networks import AUTO, NETWORKS, checked_model
from core.errors import ConfigError
from core.faults import plan_text
from core.plain_data import shown_text
from replay.kinds import normal_form, parse_replay_parameters
from replay.mixing import DiscardingStrategy
from wrappers.config import BackendName
from wrappers.env_kwargs import kwargs_text
from wrappers.games import expand_games

DEFAULT_REPLAY = (
    '[{"type": "queue", "capacity": 4, "sample_ratio": 0.5}, '
    '{"type": "standard", "capacity": 1000, "sample_ratio": 0.5}]'
)

MIN_SCHEDULE_STEPS = 2_500_000  # see --lr_scheduler_steps


def _resolution(value: Any) -> Any:
    """Accept 84,84 and [84, 84], as height,width in pixels."""
    if isinstance(value, str):
        return [part.strip() for part in value.strip("[]() ").split(",")]
    return value


def _games(value: Any) -> Any:
    """Replace names of sets of games by their ids; what is not text is left to pydantic."""
    if not isinstance(value, str):
        return value
    try:
        return expand_games(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _shares(value: Any) -> Any:
    """Accept 2,1,1 and [2, 1, 1]."""
    if isinstance(value, str):
        return [part.strip() for part in value.strip("[]() ").split(",") if part.strip()]
    return value


def _replay(value: Any) -> Any:
    """Validate the list of buffers and bring it to its normal form (JSON types only)."""
    return normal_form(parse_replay_parameters(value))


def _fault_plan(value: Any) -> Any:
    """Check a plan of faults; of a file, keep the content, so that the run can be repeated."""
    if not isinstance(value, str) or not value:
        return value
    try:
        return plan_text(value)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _told(check: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a check, or a normal form, whose ConfigError pydantic tells with the flag's name."""

    def checked(value: Any) -> str:
        try:
            return check(value)
        except ConfigError as error:
            raise ValueError(str(error)) from error

    return checked


def _in_range(low: float, high: float) -> AfterValidator:
    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"must be from {low:g} to {high:g}")
        return value

    return AfterValidator(check)


def _printable(text: str) -> str:
    """Refuse what no path, id or name holds, and what a terminal or a file could not take."""
    if not text.isprintable() or len(text) > MAX_TEXT_LENGTH:
        raise ValueError(
            f"must be one line of printable text of at most {MAX_TEXT_LENGTH:,} characters, got "
            f"{shown_text(text)}"
        )
    return text


def _path(text: str) -> str:
    """Refuse a path that no file system would take, before anything asks one."""
    if len(text) > MAX_PATH_LENGTH or any(len(part.encode()) > 255 for part in text.split("/")):
        raise ValueError(f"must be a path, of names of at most 255 bytes, got {shown_text(text)}")
    return text


MAX_CACHED_BATCHES = 1_000
# Far beyond all that makes sense, and near enough that sums and products of them stay exact.
MAX_COUNT = 10**15
MAX_TEXT_LENGTH = 100_000  # all ids of Gymnasium, with commas
MAX_PATH_LENGTH = 4_000  # Linux takes 4,096 bytes

# The upper bound is no `le`, because that would take the place of a flag's own.
Count = Annotated[int, Field(ge=1), _in_range(1, MAX_COUNT)]
CountOrAuto = Annotated[int, Field(ge=0), _in_range(0, MAX_COUNT)]
BoolOrAuto = Annotated[bool | Literal["auto"], Field(union_mode="left_to_right")]
Fraction01 = Annotated[float, _in_range(0.0, 1.0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]
Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Bound = Annotated[float, Field(gt=0.0)]  # may be inf: nothing is clipped
Number = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, AfterValidator(_printable)]
PathText = Annotated[Text, AfterValidator(_path)]
# Brought to the form by which every process finds the part.
ModelName = Annotated[Text, AfterValidator(_told(checked_model))]
AlgorithmName = Annotated[Text, AfterValidator(_told(ALGORITHMS.full_name))]
Pixels = Annotated[int, Field(ge=1, le=4096)]
Resolution = Annotated[tuple[Pixels, Pixels], BeforeValidator(_resolution)]
EnvIds = Annotated[Text, BeforeValidator(_games)]
EnvKwargs = Annotated[Text, BeforeValidator(_told(kwargs_text))]
AlgorithmKwargs = Annotated[
    Text, BeforeValidator(_told(lambda value: kwargs_text(value, "algorithm_kwargs")))
]
Shares = Annotated[tuple[Positive, ...], BeforeValidator(_shares)]
FaultPlan = Annotated[str, BeforeValidator(_fault_plan)]
ReplayParameters = Annotated[list[dict[str, Any]], BeforeValidator(_replay)]


def _flag(group: str, default: Any, text: str, **more: Any) -> Any:
    return Field(default, description=text, json_schema_extra={"group": group}, **more)


class Flags(BaseSettings):
    """All options, resolved. Frozen: a run never changes its own flags."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        protected_namespaces=(),
        cli_implicit_flags=False,
        ser_json_inf_nan="constants",  # the default writes null, which is no bound when read again
    )

    # --- run -------------------------------------------------------------------------------------
    op_mode: Literal["train", "train_w_load", "test"] = _flag(
        "run",
        "train",
        "train: a new run (from the weights at --load_model_url, if given); train_w_load: resume the run at --load_model_url; test: play whole games with it",
    )
    preset: Text | None = _flag(
        "run",
        None,
        "recipe, a named set of flags (see presets below), or several separated by commas; what you say besides wins",
    )
    load_model_url: PathText | None = _flag(
        "run",
        None,
        "run folder, checkpoint file or model folder (models/<name>) to resume or to test; with --op_mode=train a new run starts from its weights, in the same games or in others; a run folder means its latest checkpoint",
    )
    load_replay: bool = _flag(
        "run",
        True,
        "on resume, also restore the replay contents where they were saved (--save_replay)",
    )
    load_optimizer_save: bool = _flag("run", True, "on resume, also restore the optimiser's state")
    new_run_folder: bool = _flag(
        "run", False, "on resume, write to a new run folder instead of going on in the old one"
    )
    results_dir: PathText = _flag("run", "results", "folder in which run folders are made")
    environment_max_steps: Count = _flag(
        "run",
        2_500_000,
        "stop after this many agent steps over all environments (1 step = --skipped_frames simulator frames; the default is 10 M frames of Atari)",
    )
    training_seconds: Number | None = _flag(
        "run", None, "also stop after this many seconds of wall-clock in this session", gt=0
    )
    stop_at_mean_return: Number | None = _flag(
        "run",
        None,
        "also stop when the mean raw return of the last --avg_buff_size games reaches this; with several games: when episode/score_mean does, the mean over them, human-normalised (0 is random play, 1 is human) where known",
    )
    auto_restart: CountOrAuto = _flag(
        "run",
        0,
        "how often a small parent process resumes the newest good checkpoint after the learner was killed (out of memory, a crash), or failed later than the time before; on the command line only; 0: never",
    )
    seed: int | None = _flag(
        "run",
        None,
        "root seed of every random stream; drawn from the system when not given, and recorded",
        ge=0,
    )
    reproducible: bool = _flag(
        "run",
        False,
        "one process, no threads, deterministic operators: two runs with the same flags, or a run and its resume, are bit-identical",
    )
    debug: bool = _flag(
        "run",
        False,
        "more checks and a verbose log: every unroll is validated and torch's anomaly detection is on",
    )
    debug_faults: FaultPlan = _flag(
        "run",
        "",
        "for tests of the platform itself, with --debug=True: a plan of what is to go wrong where in this run, as JSON or as the name of a file of it (core/faults.py)",
    )

    trust_env_module: bool = _flag(
        "run",
        False,
        "also import the module of an environment, network or algorithm named module:Id whose name comes from a file (checkpoint, flags.json, model.json, sequence) and was not typed as --env, --model or --algorithm: that runs any code in it, so give this only for files of your own; never taken from a file itself",
    )

    # --- environment -----------------------------------------------------------------------------
    env: EnvIds = _flag(
        "environment",
        "PongNoFrameskip-v4",
        "environment id: <Game>NoFrameskip-v4, ALE/<Game>-v5, or any Gymnasium id with discrete actions that shows vectors or images, e.g. CartPole-v1, or <module>:<id> for one of your own (docs/your_own.md). Several ids with commas: one agent for all these games; three = AirRaid, Carnival, DemonAttack; six = these, NameThisGame, Pong and SpaceInvaders; all = every game that ale-py can play (NoFrameskip-v4)",
    )
    env_kwargs: EnvKwargs = _flag(
        "environment",
        "",
        'arguments that environments are made with, a mapping in JSON, e.g. {"size": 8}; not for Atari, which has flags of its own; python -m wrappers.check <id> looks over an environment of yours',
    )
    env_shares: Shares = _flag(
        "environment",
        (),
        "with several games: the weight of each, in the order of --env, e.g. 2,1,1; environments and replay are dealt out accordingly; empty: all the same",
    )
    clip_rewards: bool = _flag(
        "environment",
        True,
        "transform rewards for learning by --reward_clipping_method; reported returns stay raw",
    )
    reward_clipping_method: RewardTransform = _flag(
        "environment",
        "abs_one_sign",
        "sign(r); clip to [-1, 1]; or 5 tanh(r/5), negative part times 0.3",
    )
    skipped_frames: Count = _flag(
        "environment", 4, "simulator frames per agent step (action repeat)", le=10_000
    )
    frames_stacked: Count = _flag(
        "environment", 4, "newest frames that the model sees at once", le=64
    )
    noop_threshold: CountOrAuto = _flag(
        "environment",
        30,
        "a game starts after a random number of simulator frames without action, below this; 0 for none",
        le=1_000_000,
    )
    grayscaling_frames: bool = _flag(
        "environment", True, "gray frames (1 channel) instead of RGB (3)"
    )
    frame_scale_resolution: Resolution = _flag(
        "environment", (84, 84), "height,width of a frame, pixels"
    )
    episodic_life: bool = _flag(
        "environment",
        True,
        "in training, the loss of a life ends the agent's episode (not the game)",
    )
    fire_reset: bool = _flag(
        "environment", True, "press FIRE after a reset in games that wait for it"
    )
    repeat_action_probability: Number | None = _flag(
        "environment",
        None,
        "sticky actions: probability that the simulator repeats the previous action; default 0 for NoFrameskip-v4 and 0.25 for ALE/...-v5",
    )
    full_action_space: bool = _flag(
        "environment", False, "all 18 Atari actions instead of the game's own"
    )
    action_set: Text = _flag(
        "environment",
        "",
        "names of the Atari actions that the agent chooses from, e.g. NOOP,FIRE,LEFT,RIGHT; empty: all that the games use (--full_action_space). A run that starts from another's weights keeps the other's actions",
    )
    max_episode_frames: Count = _flag(
        "environment",
        108_000,
        "a game is cut (truncated, not terminated) after this many simulator frames; 108 000 is 30 minutes",
    )
    env_backend: BackendName = _flag(
        "environment",
        "auto",
        "ale_vector: the fast C++ one; gymnasium: the readable wrappers; auto: the fast one where it honours every flag",
    )

    # --- workers ---------------------------------------------------------------------------------
    worker_count: CountOrAuto = _flag(
        "workers", 0, "worker processes; 0 chooses by the number of CPU cores", le=1_024
    )
    envs_per_worker: CountOrAuto = _flag(
        "workers",
        0,
        "environments per worker, stepped together with one forward pass; 0 chooses",
        le=8_192,
    )
    inference: Literal["auto", "worker", "server"] = _flag(
        "workers",
        "auto",
        "who chooses actions: each worker, on the CPU; or one server for all workers, on the learner's device (meant for a GPU); auto: the workers",
    )
    r_f_steps: Count = _flag("workers", 20, "T, unroll length in agent steps", le=100_000)
    shared_queue_size: Count = _flag(
        "workers",
        2,
        "slots of shared memory per worker, each one unroll of all its environments; 1 is being written, the rest wait",
        ge=2,
        le=1_024,
    )
    multiprocessing_backend: Literal["python_native"] = _flag(
        "workers", "python_native", "transport between workers and learner: shared memory and pipes"
    )
    max_worker_restarts: CountOrAuto = _flag(
        "workers",
        10,
        "how many workers (or inference servers) that died within the last hour are replaced, all together; one more ends the run, and so does the same failure from every worker before the first unroll",
    )
    worker_timeout: Annotated[float, Field(ge=0.0)] = _flag(
        "workers",
        120.0,
        "seconds after which a worker (or inference server) that does nothing is reported with its Python stack, killed and replaced: longer than the slowest step of all its environments; at its start it has 5 times as long, at least 600 s; waiting for the learner does not count; 0: never",
    )

    # --- replay ----------------------------------------------------------------------------------
    batch_size: Count = _flag(
        "replay", 8, "B, unrolls per update, all buffers together", le=100_000
    )
    replay_parameters: ReplayParameters = _flag(
        "replay",
        DEFAULT_REPLAY,
        "JSON list of buffers; each {type: queue|standard|attentive|elite|custom, capacity: unrolls, sample_ratio: share of the batch, ...}; ratios sum to 1; see docs/replay.md",
    )
    training_fill_in_factor: Fraction01 = _flag(
        "replay", 0.05, "part of each replay buffer's capacity to fill before training starts"
    )
    discarding_strategy: DiscardingStrategy = _flag(
        "replay",
        "block",
        "what a full queue does with a new unroll: make the worker wait, drop the oldest, drop the new one, or drop every other one",
    )
    max_draws_per_unroll: Number | None = _flag(
        "replay",
        None,
        "upper limit of draws per new unroll; needed when no queue sets the pace",
        gt=0,
    )
    use_replay_compression: bool = _flag(
        "replay",
        False,
        "keep unrolls LZ4-compressed in memory: about 5 times smaller, costs processor time",
    )
    lz4_compression_level: int = _flag("replay", 0, "LZ4 frame level; 0 is fastest", ge=0, le=16)
    caching: bool = _flag(
        "replay", True, "compose batches in background threads ahead of the learner"
    )
    caching_threads: Count = _flag("replay", 1, "background threads that compose batches", le=64)
    cache_output_buffer_size: Annotated[
        int | Literal["auto"], Field(union_mode="left_to_right")
    ] = _flag(
        "replay",
        "auto",
        "batches composed ahead; auto adapts it to the learner's waiting and to the age of the data",
    )

    # --- model -----------------------------------------------------------------------------------
    model: ModelName = _flag(
        "model",
        AUTO,
        f"network: auto, {', '.join(NETWORKS.shipped)}, or <module>:<name> for one of your own (docs/your_own.md); auto: impala_shallow for images (resnet below 20 pixels), mlp for vectors; attention: the Attention-Augmented Agent, which shows where it looks",
    )
    feature_out_layer_size: CountOrAuto = _flag(
        "model",
        0,
        "F, width of the feature layer; 0 is the network's own (512 nature, 256 impala); for attention the channels of its map (32; the paper has 128)",
        le=16_384,
    )
    use_lstm: bool = _flag(
        "model",
        False,
        "an LSTM between features and heads: the agent remembers (attention has one)",
    )
    lstm_size: Count = _flag("model", 256, "units in each layer of the LSTM", le=4_096)
    lstm_layers: Count = _flag("model", 1, "layers of the LSTM; attention has one", le=16)
    use_last_action: BoolOrAuto = _flag(
        "model",
        "auto",
        "the last action is an input of the model; auto: with --use_lstm or --model=attention",
    )
    use_last_reward: BoolOrAuto = _flag(
        "model",
        "auto",
        "the last reward, clamped to [-1, 1], is an input of the model; auto: with --use_lstm or --model=attention",
    )
    clamp_last_reward: bool = _flag(
        "model",
        True,
        "clamp the last reward that is an input of the model; False only for agents that were trained without (python -m agent.torchbeast)",
    )
    use_task_id: bool = _flag(
        "model",
        False,
        "which game it is, is an input of the model; otherwise the policy tells games apart by what it sees",
    )
    normalise_pixels: bool = _flag(
        "model",
        True,
        "subtract the mean image and divide by the deviation, both of the first 200 batches of each game: the network sees what moves",
    )
    use_popart: bool = _flag(
        "model", True, "PopArt: adaptive normalisation of value targets, outputs preserved"
    )
    popart_beta: Fraction01 = _flag(
        "model",
        3e-3,
        "step size of the PopArt statistics, per update (of each game: per update that has something of it)",
    )
    popart_sigma_min: Positive = _flag(
        "model",
        1e-4,
        "lower bound of PopArt's sigma, in points: a game in which no reward is found is not blown up beyond it",
    )
    popart_sigma_max: Positive = _flag("model", 1e6, "upper bound of PopArt's sigma, in points")

    # --- algorithm -------------------------------------------------------------------------------
    algorithm: AlgorithmName = _flag(
        "algorithm",
        "impala",
        "what makes a loss of a batch: impala, V-trace actor-critic, or <module>:<name> for one of your own (docs/your_own.md)",
    )
    algorithm_kwargs: AlgorithmKwargs = _flag(
        "algorithm",
        "",
        'what an algorithm of your own has no flag for, a mapping in JSON, e.g. {"clip": 0.2}',
    )
    gamma: Fraction01 = _flag("algorithm", 0.99, "discount per agent step")
    rho_const: Bound = _flag(
        "algorithm", 1.0, "V-trace: clip of rho, which decides what the value converges to"
    )
    c_const: Bound = _flag(
        "algorithm", 1.0, "V-trace: clip of c, which decides how far corrections travel back"
    )
    pg_rho_const: Bound = _flag(
        "algorithm", 1.0, "V-trace: clip of the importance weight in the policy gradient"
    )
    burn_in_steps: CountOrAuto = _flag(
        "algorithm",
        0,
        "with a recurrent model: first rows of replayed unrolls that only bring the stored state up to date; no loss there, no gradient into them; below --r_f_steps",
    )
    vtrace_lambda: Fraction01 = _flag(
        "algorithm", 0.95, "V-trace: factor of c, as lambda in TD(lambda)"
    )
    policy_gradient_loss_weight: Weight = _flag(
        "algorithm", 1.0, "weight of the policy-gradient loss"
    )
    value_loss_weight: Weight = _flag(
        "algorithm", 0.5, "weight of the value loss, 0.5 (target - value)^2"
    )
    entropy_loss_weight: Weight = _flag(
        "algorithm",
        0.025,
        "weight of the entropy bonus, beside advantages as --advantage_normalisation leaves them",
    )
    entropy_end_weight: Weight | None = _flag(
        "algorithm",
        None,
        "weight of the entropy bonus at the end of --lr_scheduler_steps, reached in a straight line; none: it stays",
    )
    entropy_on: Literal["all", "online"] = _flag(
        "algorithm", "all", "entropy bonus on all data, or on new data only (as LASER)"
    )
    loss_reduction: LossReduction = _flag(
        "algorithm",
        "mean",
        "sum over time and batch (as IMPALA; sets the scale of lr and clip), or mean over valid steps",
    )
    advantage_normalisation: AdvantageNormalisation = _flag(
        "algorithm",
        "rms",
        "divide advantages by their root mean square over the batch, those of each game by its own",
    )
    use_policy_cloning_loss: bool = _flag(
        "algorithm", False, "CLEAR: keep the policy near the stored one, on replayed data"
    )
    policy_cloning_loss_weight: Weight = _flag(
        "algorithm", 0.01, "CLEAR: weight of KL(behaviour || policy)"
    )
    use_value_cloning_loss: bool = _flag(
        "algorithm", False, "CLEAR: keep the value near the stored one, on replayed data"
    )
    value_cloning_loss_weight: Weight = _flag(
        "algorithm", 0.005, "CLEAR: weight of the squared difference"
    )
    use_kl_mask: bool = _flag(
        "algorithm",
        False,
        "LASER trust region: leave out states where behaviour and policy differ too much",
    )
    kl_div_threshold: Bound = _flag(
        "algorithm", 0.3, "LASER: largest divergence of a trusted state, nats"
    )
    kl_mask_kind: TrustRegion = _flag(
        "algorithm",
        "implied",
        "LASER: KL(pi || implied policy) as the paper, KL(pi || mu), or KL(mu || pi)",
    )

    # --- optimiser -------------------------------------------------------------------------------
    optimizer: Optimiser = _flag(
        "optimiser",
        "adam",
        "adam; rmsprop with epsilon outside the square root (torch) or inside it (rmsprop_tf, as the paper)",
    )
    lr: Positive = _flag("optimiser", 2.5e-4, "initial learning rate")
    lr_schedule: Schedule = _flag(
        "optimiser",
        "linear",
        "how the learning rate goes to --lr_end_value over --lr_scheduler_steps",
    )
    lr_schedule_power: Positive = _flag("optimiser", 2.0, "exponent of the polynomial schedule")
    lr_end_value: Weight = _flag("optimiser", 1e-5, "final learning rate")
    lr_scheduler_steps: CountOrAuto = _flag(
        "optimiser",
        0,
        "agent steps over which the learning rate and the replay's lambda anneal; 0: --environment_max_steps, but at least 2 500 000, so that a short run is the beginning of a longer one",
    )
    rmsprop_eps: Positive = _flag("optimiser", 0.01, "epsilon of RMSprop")
    rmsprop_alpha: Decay = _flag("optimiser", 0.99, "RMSprop: decay of the mean squared gradient")
    adam_eps: Positive = _flag("optimiser", 1e-5, "epsilon of Adam")
    adam_beta1: Decay = _flag("optimiser", 0.9, "Adam: decay of the mean gradient")
    adam_beta2: Decay = _flag("optimiser", 0.999, "Adam: decay of the mean squared gradient")
    gradient_clip_by_norm_threshold: Bound = _flag(
        "optimiser", 0.5, "clip of the global gradient norm (40 goes with --loss_reduction=sum)"
    )
    max_bad_updates: Count = _flag(
        "optimiser",
        10,
        "an update whose loss or gradient is not finite is skipped, and its batch kept in bad_updates/ of the run; this many in a row end the run",
    )

    # --- machine ---------------------------------------------------------------------------------
    device: Literal["auto", "cpu", "cuda"] = _flag(
        "machine",
        "auto",
        "where the learner runs; auto: cuda if there is one, else cpu. See --inference for where actions are chosen",
    )
    precision: Precision | Literal["auto"] = _flag(
        "machine",
        "auto",
        "of the networks' torsos; auto: bf16 where the processor computes it natively. Losses are always fp32",
    )
    learner_thread_count: CountOrAuto = _flag(
        "machine",
        0,
        "CPU threads that compute shares of each batch side by side, one learner, one set of weights; 0 chooses all cores",
        le=1_024,
    )
    background: bool = _flag(
        "machine",
        False,
        "the whole run gives way to everything else on the machine, its learner too (niceness 19, on Linux of its whole session where it has one of its own); beside other work it is slow, and its learner no longer goes before its workers",
    )
    compile: bool = _flag(
        "machine",
        False,
        "torch.compile the torso of the learner (needs a C++ compiler; slow start, then faster)",
    )

    # --- output ----------------------------------------------------------------------------------
    save_model_period: Count = _flag("output", 1000, "updates between checkpoints")
    keep_checkpoints: Count = _flag(
        "output", 3, "latest checkpoints kept; the best is kept besides"
    )
    save_model_every_nsteps: CountOrAuto = _flag(
        "output", 0, "also keep a checkpoint for ever every n agent steps; 0: none"
    )
    save_replay: bool = _flag(
        "output",
        False,
        "save the contents of the replay buffers with each checkpoint (counters are always saved)",
    )
    log_interval_s: Positive = _flag("output", 5.0, "seconds between records of all metrics")
    gradient_metrics: bool = _flag(
        "output",
        False,
        "measure the gradient of each layer in one update per --log_interval_s: norm, size of the step, share of zeros (python -m analysis gradients draws them)",
    )
    avg_buff_size: Count = _flag("output", 100, "games in the moving average of the return")
    basic_verbose: bool = _flag("output", True, "show progress on the terminal")
    tensorboard: bool = _flag("output", True, "write TensorBoard event files")
    charts: bool = _flag("output", True, "draw PNG curves at the end")

    # --- test ------------------------------------------------------------------------------------
    test_episode_count: Count = _flag("test", 100, "whole games to play in --op_mode=test")
    render: bool = _flag(
        "test",
        False,
        "in test mode, show the first game in a window, or record it as MP4 where there is no display",
    )
    greedy: bool = _flag(
        "test", False, "in test mode, take the most probable action instead of sampling"
    )
    test_all_checkpoints: bool = _flag(
        "test",
        False,
        "in test mode, play --test_episode_count games with every checkpoint of the run, oldest first, into scores.csv (whole games) and scores_per_life.csv; goes on where it was interrupted",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take values from `parse` only: never from environment variables or files."""
        return (init_settings,)

    @model_validator(mode="after")
    def _check_debug(self) -> Flags:
        if self.debug_faults and not self.debug:
            raise ValueError("--debug_faults hurts a run on purpose: it needs --debug=True besides")
        return self

    @model_validator(mode="after")
    def _check_together(self) -> Flags:
        problems = []
        if self.op_mode != "train" and not self.load_model_url:
            problems.append(
                f"--op_mode={self.op_mode} needs --load_model_url=<run folder or checkpoint file>"
            )
        has_queue = any(buffer["type"] == "queue" for buffer in self.replay_parameters)
        if not has_queue and self.max_draws_per_unroll is None:
            problems.append(
                "no buffer in --replay_parameters is a queue, so nothing sets the pace of learning: "
                "add a queue or give --max_draws_per_unroll, e.g. 4"
            )
        size = self.cache_output_buffer_size
        if isinstance(size, int) and not 1 <= size <= MAX_CACHED_BATCHES:
            problems.append(
                f"--cache_output_buffer_size={size} must be auto or from 1 to {MAX_CACHED_BATCHES}"
            )
        is_own = self.model != AUTO and self.model not in NETWORKS.shipped  # checked later
        has_memory = self.use_lstm or self.model == "attention"
        if self.burn_in_steps and not has_memory and not is_own:
            problems.append(
                f"--burn_in_steps={self.burn_in_steps} needs a model that remembers: "
                "--use_lstm=True or --model=attention"
            )
        if self.model == "attention" and self.lstm_layers > 1:
            problems.append(
                f"--lstm_layers={self.lstm_layers} must be 1 with --model=attention; "
                "raise --lstm_size instead"
            )
        if self.burn_in_steps >= self.r_f_steps:
            problems.append(
                f"--burn_in_steps={self.burn_in_steps} must be below --r_f_steps={self.r_f_steps}: "
                "nothing would be learned from replay"
            )
        sticky = self.repeat_action_probability
        if sticky is not None and not 0 <= sticky < 1:
            problems.append(f"--repeat_action_probability={sticky} must be from 0 to below 1")
        games = self.env.split(",")
        if self.env_shares and len(self.env_shares) != len(games):
            problems.append(
                f"--env_shares has {len(self.env_shares)} numbers and --env {len(games)} games: "
                "give one for each game"
            )
        if self.popart_sigma_min >= self.popart_sigma_max:
            problems.append(
                f"--popart_sigma_min={self.popart_sigma_min} must be below "
                f"--popart_sigma_max={self.popart_sigma_max}"
            )
        if self.lr_end_value > self.lr:
            problems.append(f"--lr_end_value={self.lr_end_value} is above --lr={self.lr}")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def schedule_steps(self) -> int:
        """Agent steps over which rates anneal (see --lr_scheduler_steps)."""
        return self.lr_scheduler_steps or max(self.environment_max_steps, MIN_SCHEDULE_STEPS)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types, as stored in flags.json and in checkpoints."""
        data: dict[str, Any] = json.loads(self.model_dump_json())
        return data
