"""The systems that are compared: what to install for each, how to start it, what it is.

The aim is one task and one amount of work for all: the Nature network on 84x84 pixels of 4 stacked
frames, 16 games, unrolls of 20 steps, 320 steps for each update. `network` and `remark` say where a
system does otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

DRIVERS = Path(__file__).resolve().parent
GAMES = 16
# One version for all: the one that requirements.txt names, so that the operators are the same.
TORCH = "torch==2.13.0"
# Ours and the loop of our parts learn the mean image of the pixels in their first 200 updates, and
# report no update before: the speed after it is the one that lasts.
SETTLED = ("--from_update=200",)


@dataclass(frozen=True)
class System:
    """One row of the comparison."""

    name: str
    title: str
    driver: str  # file beside this one
    network: str
    remark: str  # what it does otherwise than the others
    arguments: tuple[str, ...] = ()
    package: str = ""  # whose version is reported; empty for ours
    requirements: tuple[str, ...] = ()  # of its own environment; empty: it runs in ours

    @property
    def version(self) -> str:
        """Version of `package` as it is pinned, or "this tree" for ours."""
        pinned = dict(requirement.split("==") for requirement in self.requirements)
        return pinned.get(self.package, "this tree")


_SB3 = (TORCH, "stable-baselines3==2.9.2", "gymnasium==1.4.0", "ale-py==0.12.1",
        "numpy==2.4.6", "opencv-python-headless==5.0.0.93")  # fmt: skip

SYSTEMS: tuple[System, ...] = (
    System(
        name="sample_factory",
        title="Sample Factory, APPO",
        driver="sample_factory_appo.py",
        network="nature (its convnet_atari)",
        remark="one epoch, GAE (its V-trace crashes in this version), Adam",
        package="sample-factory",
        # Newer ale-py does not register its games with this Gymnasium, which it asks for.
        requirements=(TORCH, "sample-factory==2.1.1", "gymnasium==0.29.1", "ale-py==0.10.1",
                      "numpy==1.26.4", "opencv-python==4.11.0.86"),
    ),
    System(
        name="rllib_impala",
        title="RLlib, IMPALA",
        driver="rllib_impala.py",
        network="nature, but a layer of 512 for each head",
        remark="new API stack, local learner; float32 observations from its own wrappers",
        package="ray[rllib]",
        # Gymnasium is the version that Ray itself asks for.
        requirements=(TORCH, "ray[rllib]==2.60.0", "gymnasium==1.2.2", "ale-py==0.12.1",
                      "numpy==2.4.6", "opencv-python-headless==5.0.0.93"),
    ),
    System(
        name="sb3_a2c",
        title="Stable-Baselines3, A2C",
        driver="sb3.py",
        network="nature",
        remark="synchronous; a process for each game",
        arguments=("--algorithm=a2c",),
        package="stable-baselines3",
        requirements=_SB3,
    ),
    System(
        name="sb3_ppo",
        title="Stable-Baselines3, PPO",
        driver="sb3.py",
        network="nature",
        remark="as A2C; one epoch of one batch (its default of 10 would be more work)",
        arguments=("--algorithm=ppo",),
        package="stable-baselines3",
        requirements=_SB3,
    ),
    System(
        name="sync_loop",
        title="one-process loop of our parts",
        driver="sync_loop.py",
        network="nature",
        remark="act, step and learn in turn; our environments, V-trace, precision and allocator",
        arguments=SETTLED,
    ),
    System(
        name="ours_queue",
        title="ours, queue",
        driver="ours.py",
        network="nature",
        remark="every step learned from once: the same work as the others",
        arguments=("--config=queue", *SETTLED),
    ),
    System(
        name="ours_mixed",
        title="ours, queue + standard 0.5",
        driver="ours.py",
        network="nature",
        remark="half of each batch is replayed: two steps learned from for each new one",
        arguments=("--config=mixed", *SETTLED),
    ),
    System(
        name="ours_elite",
        title="ours, queue + elite 0.5",
        driver="ours.py",
        network="nature",
        remark="as mixed, and 6 candidates scored for each replayed unroll",
        arguments=("--config=elite", *SETTLED),
    ),
)  # fmt: skip
OURS = tuple(system.name for system in SYSTEMS if system.driver == "ours.py")
BY_NAME = {system.name: system for system in SYSTEMS}

# Where learning is compared, each has the settings that its own authors give for Atari games.
AS_PUBLISHED = ("--as_published",)
LEARNERS: tuple[System, ...] = (
    replace(
        BY_NAME["sample_factory"],
        remark="its Atari example without further flags: 8 games, 4 epochs of 4 batches of 256",
        arguments=AS_PUBLISHED,
    ),
    replace(
        BY_NAME["rllib_impala"],
        network="4 convolutions of its own, 64x64 pixels",
        remark="its Pong example: 10 games, batches of 500; a local learner, for Ray counts 2 CPUs",
        arguments=AS_PUBLISHED,
    ),
    replace(
        BY_NAME["sb3_ppo"],
        remark="settings of its zoo: 8 games, 4 epochs of 4 batches of 256",
        arguments=(*AS_PUBLISHED, "--algorithm=ppo"),
    ),
    System(
        name="ours_default",
        title="ours, default command",
        driver="ours.py",
        network="impala_shallow",
        remark="python main.py --op_mode=train with no flag but the game and the seed",
        arguments=AS_PUBLISHED,
    ),
)


def driver_command(
    system: System, python: Path, env_id: str, cores: int, seed: int = 1
) -> list[str]:
    """Return the command that starts a system's driver, but for the folders of the run.

    Args:
      system: the system to be measured.
      python: the interpreter of its environment.
      env_id: id of the game, as Gymnasium has it.
      cores: CPU cores to be used; the games are dealt out to as many workers.
      seed: of the run.
    """
    workers = max(count for count in range(1, GAMES + 1) if GAMES % count == 0 and count <= cores)
    return [
        # Isolated: nothing of this repository, and no file beside the driver, can be imported.
        str(python), "-I", str(DRIVERS / system.driver), f"--env={env_id}",
        f"--workers={workers}", f"--envs_per_worker={GAMES // workers}",
        f"--seed={seed}", *system.arguments,
    ]  # fmt: skip
