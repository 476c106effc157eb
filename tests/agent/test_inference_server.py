"""The server beside the local path: same logits, same bytes, and nobody's death matters."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from ritornello.agent.acting import inference_server
from ritornello.agent.acting.actor import Action, Observation
from ritornello.agent.acting.config import group_sizes
from ritornello.agent.acting.inference_server import InferenceServer, RemoteActor
from ritornello.agent.acting.lane import Lane
from ritornello.agent.acting.rollout import Rollout
from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.models.factory import make_model
from ritornello.core.errors import TransportError
from ritornello.transport.mailbox import Bell, Mailbox
from ritornello.transport.weights import WeightBoard
from tests.agent.builders import batch_of, heads_of
from tests.agent.pools import (
    all_of,
    check_no_unroll_is_missed,
    first_block_of,
    gather_until,
)
from tests.agent.runs import make_blueprint
from tests.agent.test_rollout import (
    GAMES,
    LSTM,
    check_recomputed,
    check_rows,
    check_states,
    collect_records,
    make_board,
)
from tests.deadlines import HANGS_S
from tests.tolerances import rounding

ELITE = [
    {"type": "queue", "capacity": 4, "sample_ratio": 0.5},
    {"type": "elite", "capacity": 40, "sample_ratio": 0.5},
]
PONG = {
    "env": "PongNoFrameskip-v4", "model": "impala_shallow", "envs_per_worker": 2,
    "frame_scale_resolution": (84, 84),
}  # fmt: skip


class Served:
    """Workers of a blueprint in this process, and their server in a thread."""

    def __init__(self, blueprint, board):
        self.blueprint, self.board, self.errors = blueprint, board, []
        self.doorbell, self.bodies = Bell(), []
        self.mailboxes = [
            Mailbox(
                config.env_spec,
                group_sizes(config.num_envs),
                config.feature_count,
                self.doorbell,
                config.state_count,
            )
            for config in blueprint.workers()
        ]
        self.server = InferenceServer(blueprint.server(), self.mailboxes, self.doorbell, board)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self):
        try:
            while not self._stop.is_set():
                self.server.serve(0.05)
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self):
        self._thread.start()
        for config, box in zip(self.blueprint.workers(), self.mailboxes, strict=True):
            self.bodies.append(WorkerBody(config, self.board, box))
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(HANGS_S)
        for body in self.bodies:
            body.close()
        assert not self.errors

    def collect(self, blocks, worker=0):
        """The next blocks of a worker: records [blocks, E, nbytes], versions, games, steps."""
        schema, count = self.blueprint.schema, self.blueprint.choices.envs_per_worker
        records, versions, games, steps = [], [], [], 0
        for _ in range(blocks):
            block = schema.allocate(count)
            ended, stats = self.bodies[worker].collect(block)
            records.append(block)
            versions.append(int(schema.unroll(block).version.min()))
            games += ended
            steps += stats.steps
        return np.stack(records), versions, games, steps

    def collect_from_all(self, blocks):
        """The records of all workers, which ask at the same time."""
        workers = range(len(self.bodies))
        with ThreadPoolExecutor(len(workers)) as threads:
            return list(threads.map(lambda worker: self.collect(blocks, worker)[0], workers))


def make_served(board=None, **values):
    blueprint = make_blueprint(**{"inference": "server", "device": "cpu", **values})
    return Served(blueprint, board or make_board(blueprint))


def acted(served, blocks, **values):
    """A blueprint, and the records of a worker that acts itself or asks a server."""
    if served:
        with make_served(**values) as running:
            return running.blueprint, running.collect(blocks)[0]
    blueprint = make_blueprint(**values)
    return blueprint, collect_records(blueprint, blocks)[0]


@pytest.mark.parametrize("envs", [1, 3])
def test_actions_reach_the_environment_and_the_row_that_asked(envs):
    """The counting environment says in each observation which one it is, and what was done."""
    with make_served(envs_per_worker=envs, debug=True) as served:
        records, _, _, _ = served.collect(16)
    schema = served.blueprint.schema
    check_rows([[schema.unroll(r) for r in block] for block in records], envs, min_rows=75)
    env_ids = schema.unroll(records).env_id
    assert env_ids.tolist() == [list(range(envs))] * 16


@pytest.mark.parametrize("worker_count", [1, 2])
def test_the_server_acts_with_the_logits_of_the_same_weights(worker_count):
    """Also with features, and with the questions of two workers in one batch."""
    with make_served(worker_count=worker_count, replay_parameters=ELITE) as served:
        learner, schema = served.blueprint.learner(), served.blueprint.schema
        results = served.collect_from_all(4)
    assert len(results) == worker_count
    for records in results:
        for block in records:
            unroll, batch = schema.unroll(block), batch_of(schema, block)
            with torch.no_grad():
                features, heads = learner.model.torso(batch.obs), heads_of(learner.model, batch)
            params = heads.params[:-1].transpose(0, 1).numpy()
            for told, own in (
                (unroll.behaviour_params, params),
                (unroll.behaviour_value, heads.value[:-1].T.numpy()),
            ):
                size = max(1.0, float(np.abs(own).max()))
                close = rounding(torch.float32, 32, size)
                np.testing.assert_allclose(told, own, rtol=0, atol=close)
            features = features[:-1].transpose(0, 1).numpy()
            np.testing.assert_allclose(unroll.features, features, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("games", [{}, GAMES], ids=["one game", "two games"])
def test_the_server_keeps_the_memory_of_each_environment(games):
    """Of two workers with two groups each, asked in any order."""
    with make_served(worker_count=2, **LSTM, **games) as served:
        results = served.collect_from_all(6)
    resets = 0
    for worker in range(2):
        resets += check_recomputed(served.blueprint, results[worker])
        check_states(served.blueprint, results[worker])
        tasks = served.blueprint.schema.unroll(results[worker]).task_id
        assert tasks.tolist() == [list(served.blueprint.workers()[worker].tasks)] * 6
    assert resets > 10


def test_one_pass_answers_whoever_has_asked_each_with_actions_from_its_own_logits():
    """A policy so sure of itself that each draw is its most probable action."""
    blueprint = make_blueprint(inference="server", device="cpu")
    model = blueprint.learner().model
    with torch.no_grad():
        model.policy_head.weight *= 1e6
    board, doorbell = WeightBoard(blueprint.acting_weights.nbytes), Bell()
    with board.write(3) as block:
        blueprint.acting_weights.pack(model, block)
    boxes = [Mailbox(blueprint.env_spec, sizes, 0, doorbell) for sizes in ((20, 30), (25, 15))]
    server = InferenceServer(blueprint.server(), boxes, doorbell, board)
    assert server.serve(0.0) == 0
    asked = [(boxes[0], 1), (boxes[1], 0), (boxes[1], 1)]
    random = np.random.default_rng(0)
    for box, group in asked:
        shape = (box.group_sizes[group], 1, *blueprint.env_spec.frame_shape)
        stacks = random.standard_normal(shape).astype(np.float32)
        box.post(group, *Observation.at_start(stacks))
    boxes[0].letter(0)["action"][...] = -7
    assert server.serve(0.0) == 30 + 25 + 15
    assert server.serve(0.0) == 0
    assert (boxes[0].letter(0)["action"] == -7).all()  # nobody has asked
    for box, group in asked:
        assert box.wait(group, 0.0)
        letter = box.letter(group)
        with torch.no_grad():
            obs = torch.from_numpy(letter["stacks"].copy()).flatten(1, 2)
            expected = model.heads(model.torso(obs)).params.numpy()
        np.testing.assert_allclose(letter["params"], expected, rtol=1e-4, atol=0.1)
        best = letter["params"].argmax(1)
        assert len(set(best.tolist())) == 3
        low, high = np.sort(letter["params"], 1)[:, -2:].T
        sure = high - low > 30
        assert sure.mean() > 0.8
        np.testing.assert_array_equal(letter["action"][sure], best[sure])
        assert letter["version"].tolist() == [3]


class Replayed:
    """An ActionSource that says what a recorded group was answered."""

    def __init__(self, unrolls):
        self._rows = [
            (unroll, t) for unroll in unrolls for t in range(unroll.action.shape[1])
        ].__iter__()
        self.version = -1

    def ask(self, observation):
        pass

    def answer(self):
        unroll, t = next(self._rows)
        if t == 0:
            self.version = int(unroll.version[0])
        return Action(
            unroll.action[:, t],
            unroll.behaviour_params[:, t],
            unroll.behaviour_value[:, t],
            None if unroll.features is None else unroll.features[:, t],
            unroll.state,
        )


@pytest.mark.parametrize(
    "game", [{}, PONG, {**LSTM, **GAMES}], ids=["counting", "pong", "two games, with memory"]
)
def test_records_are_those_of_the_local_path_given_the_same_actions(game):
    """Two halves of environments write the very bytes that all of them together would."""
    with make_served(replay_parameters=ELITE, **game) as served:
        records, _, games, _ = served.collect(4)
    config, schema = served.blueprint.workers()[0], served.blueprint.schema
    local = WorkerBody(config, served.board)  # its environments, with all seeds as always
    source = Replayed([schema.unroll(block) for block in records])
    task_id = np.array(config.tasks)
    rollout = Rollout([Lane(local._lanes[0].env, source, task_id)], schema, config.worker_id)
    played = []
    for block in records:
        twin = np.zeros_like(block)
        played += rollout.collect(twin)
        for name in schema.fields:
            np.testing.assert_array_equal(
                schema.view(twin, name), schema.view(block, name), err_msg=name
            )
    local.close()
    stack = schema.env_spec.frames_stacked
    frames = schema.unroll(records).frames  # no game ends in so few steps of Pong: no stack is cut
    np.testing.assert_array_equal(frames[:-1, :, -stack:], frames[1:, :, :stack])
    assert sorted(played, key=repr) == sorted(games, key=repr)


def test_the_recorded_version_is_that_of_row_0_and_logits_are_those_that_acted(monkeypatch):
    """Weights change in the middle of unrolls."""
    monkeypatch.setattr(inference_server, "REFRESH_INTERVAL_S", 0.0)
    blueprint = make_blueprint(inference="server", device="cpu", r_f_steps=40)
    board = make_board(blueprint)
    models = {0: blueprint.learner().model}
    stop = threading.Event()

    def learn():
        for version in range(1, 400):
            if stop.wait(0.002):
                return
            models[version] = make_model(
                blueprint.workers()[0].model_config, blueprint.env_spec, seed=version
            )
            with board.write(version) as block:
                blueprint.acting_weights.pack(models[version], block)

    learner = threading.Thread(target=learn)
    with Served(blueprint, board) as served:
        learner.start()
        records, versions, _, _ = served.collect(12)
        stop.set()
        learner.join(HANGS_S)
    changed = 0
    for block in records:
        unroll = blueprint.schema.unroll(block)
        for env in range(3):
            newest = int(unroll.version[env])
            for t in range(40):
                frame = torch.from_numpy(unroll.frames[env, t : t + 1].copy())
                acted = unroll.behaviour_params[env, t]
                while True:  # versions only grow
                    with torch.no_grad():
                        heads = models[newest].heads(models[newest].torso(frame))
                    # The observations count up to 65,535, and their products cancel out: rows of a
                    # batch and rows alone differ by up to 2.6e-6 here, two versions by 1e-3.
                    if np.allclose(heads.params[0].numpy(), acted, rtol=0, atol=1e-5):
                        break
                    assert t > 0, "row 0 was not acted by the version that is recorded"
                    newest += 1
                    assert newest in models, "no weights that were ever published gave these logits"
            changed += newest > int(unroll.version[env])
    assert changed > 0, "the test is idle: no weights changed within an unroll"
    assert versions == sorted(versions)
    assert versions[-1] > 0


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_the_server_acts_with_the_logits_of_the_same_weights(precision):
    with make_served(**PONG, device="cuda", precision=precision) as served:
        records = served.collect(4)[0]
    unroll = served.blueprint.schema.unroll(records)
    learner = served.blueprint.learner()
    frames = torch.from_numpy(unroll.frames.copy()).flatten(0, 1)  # [n, T+S, 1, H, W]
    stacks = torch.stack([frames[:, t : t + 4, 0] for t in range(5)], 1)
    with torch.no_grad():
        heads = learner.model.heads(learner.model.torso(stacks.to("cuda")))
    for recorded, expected in (
        (unroll.behaviour_params, heads.params),
        (unroll.behaviour_value, heads.value),
    ):
        values = expected.cpu().numpy().reshape(recorded.shape)
        np.testing.assert_allclose(recorded, values, rtol=0.05, atol=0.02)


def test_a_server_that_does_not_answer_is_an_error_that_says_so(monkeypatch):
    monkeypatch.setattr(inference_server, "ANSWER_LIMIT_S", 0.02)
    blueprint = make_blueprint()
    box = Mailbox(blueprint.env_spec, (2,), 0, Bell())
    actor = RemoteActor(box, 0)
    actor.ask(Observation.at_start(np.zeros((2, 1, 4), np.float32)))
    with pytest.raises(TransportError, match="has not answered for 0.02 s.*--inference=worker"):
        actor.answer()


@pytest.mark.process
def test_a_killed_worker_and_a_killed_server_are_replaced_and_no_unroll_is_missed(
    make_process_pool, caplog
):
    blueprint = make_blueprint(inference="server", device="cpu", worker_count=2)
    pool = make_process_pool(blueprint)
    taken = gather_until(pool, all_of(0, 1))

    os.kill(pool._server.life.process.pid, signal.SIGKILL)
    taken += gather_until(pool, lambda blocks: pool.restarts == 1 and len(blocks) > 10)
    assert "inference server" in caplog.text
    assert "was killed by signal 9 (SIGKILL); restarting (1 of 3 in an hour)" in caplog.text
    assert pool._server.config.life == 1
    check_no_unroll_is_missed(blueprint.schema, taken)  # workers have only waited

    os.kill(pool.members[0].life.process.pid, signal.SIGKILL)
    taken += gather_until(pool, first_block_of(0, blueprint.schema))
    assert pool.restarts == 2
    assert "worker 0" in caplog.text
    check_no_unroll_is_missed(blueprint.schema, taken, died=0)
    blocks = [[blueprint.schema.unroll(r) for r in records] for w, records in taken if w == 1]
    check_rows(blocks, 3, min_rows=20)
