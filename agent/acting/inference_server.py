"""The inference server: one process that chooses the actions of all workers' environments.

It owns the only acting copy of the model, on the learner's device, and answers whatever questions
lie in the mailboxes (transport/mailbox.py) with one forward pass. While it computes, the next
questions come in, so batches grow by themselves when it is the bottleneck, and nobody ever waits
for a batch to fill. Workers ask for half of their environments at a time and step the other half
meanwhile (agent/acting/rollout.py).

`RemoteActor` is the worker's side, `InferenceServer` the server's. A dead server is replaced
(agent/pools/pool.py). With it goes what a recurrent model remembers of each environment: until its
next reset the agent plays from the initial state, and worse. What is learned stays right, because
unrolls hold the state before their row 0 and the logits that acted; V-trace corrects the rest.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import numpy as np
import torch

from ritornello.agent.acting.acting_model import ActingModel, FlatWeights
from ritornello.agent.acting.actor import Action, Actor, Observation
from ritornello.agent.acting.config import ServerConfig
from ritornello.agent.acting.recorded_actor import RecordedActor
from ritornello.agent.machine import give_way
from ritornello.agent.models.factory import make_model
from ritornello.core.errors import Closed, TransportError
from ritornello.core.process_death import ignore_interrupts
from ritornello.core.rng import child_seed
from ritornello.transport.channel import Failed, last_words
from ritornello.transport.lifeline import LifelineEnd, Phase, no_beat
from ritornello.transport.mailbox import QUESTION, Bell, Letter, Mailbox
from ritornello.transport.weights import NO_VERSION, WeightBoard
from ritornello.wrappers.trusted_modules import trust_modules_of

WAIT_S = 1.0  # how often an idle server looks up; it wakes at once when it is asked
# A worker waits so long before it fails: a server may be starting, or be started anew.
ANSWER_LIMIT_S = 300.0
# Weights are copied at most so often: a worker that acts for itself renews them once an unroll,
# which is rarer, and a copy of a few MB takes as long as acting does.
REFRESH_INTERVAL_S = 0.02


class RemoteActor:
    """An ActionSource at the other end of a mailbox: the server answers it."""

    def __init__(
        self, mailbox: Mailbox, group: int, beat: Callable[[Phase], None] = no_beat
    ) -> None:
        """Take over a group's letter, after the answer to a predecessor if one is pending.

        `beat` is called now and then while this worker only waits.
        """
        self.version = NO_VERSION
        self._beat = beat
        self._mailbox = mailbox
        self._group = group
        self._wait()

    def ask(self, observation: Observation) -> None:
        """Post an observation of the n environments (a copy)."""
        self._mailbox.post(self._group, *observation)

    def answer(self) -> Action:
        """Wait for the answer; its arrays lie in shared memory and are valid until `ask`.

        Raises:
          Closed: the learner's process is gone.
          TransportError: the server does not answer.
        """
        self._wait()
        letter = self._mailbox.letter(self._group)
        self.version = int(letter["version"][0])
        return Action(
            letter["action"], letter["params"], letter["value"], letter.get("features"),
            letter.get("state"),
        )  # fmt: skip

    def _wait(self) -> None:
        deadline = time.monotonic() + ANSWER_LIMIT_S
        self._beat(Phase.ASKING)
        while not self._mailbox.wait(self._group, min(WAIT_S, ANSWER_LIMIT_S)):
            self._beat(Phase.ASKING)
            if time.monotonic() >= deadline:
                raise TransportError(
                    f"the inference server has not answered for {ANSWER_LIMIT_S:g} s, expected "
                    "milliseconds: it hangs, or the machine is overloaded. Its log may say more; "
                    "--inference=worker does without it."
                )


class InferenceServer:
    """Answers the questions of all mailboxes. Single thread; `server_main` runs it in a process."""

    def __init__(
        self,
        config: ServerConfig,
        mailboxes: Sequence[Mailbox],
        doorbell: Bell,
        board: WeightBoard,
        beat: Callable[[Phase], None] = no_beat,
    ) -> None:
        """Build the model on its device; `beat` is called with the present phase, at each change.

        Workers wake the server through `doorbell`.
        """
        self._beat = beat
        spec, device = config.env_spec, config.device
        model = make_model(config.model_config, spec, popart=config.popart).eval()
        self._acting = ActingModel(
            model,
            FlatWeights(model, config.acting_format),
            board,
            device=device,
            torso_dtype=config.torso_dtype,
        )
        make_actor = RecordedActor if device.type == "cuda" else Actor
        self._actor = make_actor(
            model,
            child_seed(config.seed, "server", "life", config.life, "actor"),
            with_features=config.feature_count > 0,
            device=device,
        )
        self._mailboxes = tuple(mailboxes)
        self._doorbell = doorbell
        self._next_refresh = 0.0  # time.monotonic
        env_count = sum(sum(box.group_sizes) for box in mailboxes)
        self._states: dict[tuple[int, int], torch.Tensor] = {  # (mailbox, group) -> its memory
            (index, group): model.initial_state(count)
            for index, box in enumerate(self._mailboxes)
            for group, count in enumerate(box.group_sizes)
        }
        if isinstance(self._actor, RecordedActor):
            self._actor.prepare(spec, env_count)
        # Pinned, so that the copy to the GPU is one transfer without a detour.
        self._staging = torch.empty(
            (env_count, spec.frames_stacked, *spec.frame_shape),
            dtype=getattr(torch, spec.frame_dtype),
            pin_memory=device.type == "cuda",
        )

    def serve(self, timeout_s: float) -> int:
        """Answer all questions in the mailboxes, waiting at most `timeout_s` for the first.

        Returns:
          The number of observations answered.

        Raises:
          Closed: the process that started this one is gone, or wants it to stop.
        """
        # A question may lie there without the bell: asked before this server's life, or by a worker
        # that was killed before it could ring.
        self._beat(Phase.IDLE)
        self._doorbell.wait(0.0 if self._asked() else timeout_s)
        asked = self._asked()
        if not asked:
            return 0
        self._beat(Phase.ANSWERING)
        if time.monotonic() >= self._next_refresh:
            self._acting.refresh()
            self._next_refresh = time.monotonic() + REFRESH_INTERVAL_S
        letters = [self._mailboxes[index].letter(group) for index, group in asked]
        state = torch.cat([self._states[who] for who in asked])
        action, state = self._actor.decide(self._observation(letters), state)
        stop = 0
        for who, letter in zip(asked, letters, strict=True):
            own = slice(stop, stop + len(letter["stacks"]))
            stop = own.stop
            for name in ("action", "params", "value", "features", "state"):
                if name in letter:
                    letter[name][...] = getattr(action, name)[own]
            letter["version"][...] = self._acting.version
            self._states[who] = state[own]
            index, group = who
            self._mailboxes[index].answer(group)
        return stop

    def _observation(self, letters: Sequence[Letter]) -> Observation:
        """Return the questions of some letters as one; the stacks lie in pinned memory."""
        stacks = self._staging.numpy()[: sum(len(letter["stacks"]) for letter in letters)]
        np.concatenate([letter["stacks"] for letter in letters], out=stacks)
        rest = [name for name in QUESTION[1:] if name in letters[0]]  # mostly there is no mask
        return Observation(
            stacks, *(np.concatenate([letter[name] for letter in letters]) for name in rest)
        )

    def _asked(self) -> list[tuple[int, int]]:
        """Return (index of the mailbox, group) of all open questions."""
        return [(i, group) for i, box in enumerate(self._mailboxes) for group in box.asked()]


def server_main(
    config: ServerConfig,
    mailboxes: Sequence[Mailbox],
    doorbell: Bell,
    board: WeightBoard,
    connection: Connection,
    lifeline: LifelineEnd,
) -> None:
    """Entry point of the process. Returns when the other end of `connection` is closed."""
    ignore_interrupts()
    lifeline.hold()
    trust_modules_of(config.model_config.name)  # the learner's process has checked it
    if config.device.type == "cpu":  # with a GPU it computes little, and everybody waits for it
        give_way()
    torch.set_num_threads(1)
    try:
        doorbell.hang_up_with(connection.fileno())
        server = InferenceServer(config, mailboxes, doorbell, board, lifeline.pulse.beat)
        while True:
            server.serve(WAIT_S)
    except Closed:
        pass  # told to stop, or the learner's process is gone
    except BaseException:
        with contextlib.suppress(OSError):
            connection.send(Failed(last_words(traceback.format_exc())))
        sys.exit(1)
    finally:
        connection.close()
