"""Sinks for services that collect runs: Weights & Biases, MLflow and Trackio.

Each is optional: its package is imported by the first record, on the sink's own output thread
(metrics/output_thread.py), where everything else happens as well: logging in, sending, waiting for
a network that does not answer. What is sent is the flags of the run (flags.json), the name of its
folder and its records. Environment variables, the host's name and the source code are not.

A resumed run goes on in the same run of the service: `trackers.json` in the run folder has the
names under which the services know it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import logging
import os
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError, PlatformError
from ritornello.core.plain_data import parse_json, read_text
from ritornello.core.project import install_extra
from ritornello.core.run_layout import FLAGS
from ritornello.metrics.record import Record
from ritornello.metrics.sinks import Sink

PROJECT = "ritornello"  # unless `project_variable` of the environment says otherwise
IDS = "trackers.json"
MAX_BATCH = 100  # parameters that MLflow takes at once
MAX_PARAM = 500  # characters of a parameter, in every version of MLflow

_WRITING_IDS = threading.Lock()  # several services begin at the same time, on their threads

log = logging.getLogger(__name__)


class TrackerError(PlatformError):
    """A service cannot be used as things are."""


class TrackerSink(Sink):
    """Sends records to one service, from the first one on. Its methods may block, and may raise.

    A failed operation is tried again with the next record; the caller counts what is lost.
    """

    package: ClassVar[str]  # package that is imported
    title: ClassVar[str]
    project_variable: ClassVar[str]  # environment variable with the project of the runs

    def __init__(self, folder: Path) -> None:
        """Send and import nothing yet; before the first record, `folder` gets flags.json."""
        self._folder = folder
        self._run: Any = None  # of the service, from the first record on

    @classmethod
    def check_installed(cls) -> None:
        """Raise ConfigError, with what to install, unless the package is there."""
        package = cls.package
        with contextlib.suppress(ImportError, ValueError):
            if importlib.util.find_spec(package) is not None:
                return
        raise ConfigError(
            f"--sink={package} sends records to {cls.title}, but the package {package} is not "
            f"installed: {install_extra(package)}, or leave it out."
        )

    def write(self, record: Record) -> None:
        """Send a record; before the first one, announce the run."""
        if self._run is None:
            flags = parse_json(read_text(self._folder / FLAGS, FLAGS), FLAGS)
            project = os.environ.get(self.project_variable, PROJECT)
            known = self._names().get(self.package)
            self._run, name = self._begin(project, flags, known if isinstance(known, str) else None)
            with _WRITING_IDS:
                write_json(self._folder / IDS, {**self._names(), self.package: name})
        self._send(record)

    def close(self) -> None:
        """Announce the end of the run. May be called twice."""
        run, self._run = self._run, None
        if run is not None:
            self._end(run)

    @abstractmethod
    def _begin(self, project: str, flags: Mapping[str, Any], known: str | None) -> tuple[Any, str]:
        """Announce the run, which continues `known`; return the service's run, and its name."""

    def _send(self, record: Record) -> None:
        self._run.log(_values(record), step=record.agent_steps)

    def _end(self, run: Any) -> None:
        run.finish()

    def _names(self) -> dict[str, Any]:
        """Return the names under which services know this run; {} if they cannot be read."""
        with contextlib.suppress(ConfigError):
            names = parse_json(read_text(self._folder / IDS, IDS), IDS)
            return names if isinstance(names, dict) else {}
        return {}


class WandbSink(TrackerSink):
    """Weights & Biases. Nobody is asked for a key: `wandb login` comes before the training."""

    package, title = "wandb", "Weights & Biases"
    project_variable = "WANDB_PROJECT"

    def _begin(self, project: str, flags: Mapping[str, Any], known: str | None) -> tuple[Any, str]:
        wandb = importlib.import_module("wandb")
        settings = wandb.Settings(
            silent=True,  # it would print into the live panel
            console="off",  # and take over stdout
            disable_git=True,
            disable_code=True,
            save_code=False,
            disable_job_creation=True,
            x_disable_meta=True,  # host, user, command, environment
            x_disable_machine_info=True,
            x_disable_stats=True,  # the records have what the machine does
            x_save_requirements=False,
            host="-",
        )
        offline = wandb.setup().settings.mode in ("offline", "disabled", "dryrun")
        if not offline and not wandb.login(prompt=False):
            raise TrackerError(
                "there is no key for Weights & Biases: run `wandb login` before the training, or "
                "set WANDB_MODE=offline and send the runs later with `wandb sync`"
            )
        run = wandb.init(
            project=project,
            name=self._folder.resolve().name,
            id=known,
            resume="allow" if known else None,
            dir=str(self._folder),
            config=dict(flags),
            settings=settings,
        )
        # A resumed run counts on from its checkpoint, so the horizontal axis is a metric.
        run.define_metric("*", step_metric="agent_steps")
        if not offline and run.url:
            log.info("Weights & Biases: %s", run.url)
        return run, str(run.id)

    def _send(self, record: Record) -> None:
        self._run.log(_values(record))  # a step of its own would have to grow, also at a resume


class MlflowSink(TrackerSink):
    """MLflow: the server of MLFLOW_TRACKING_URI, or what MLflow takes without that."""

    package, title = "mlflow", "MLflow"
    project_variable = "MLFLOW_EXPERIMENT_NAME"

    def _begin(self, project: str, flags: Mapping[str, Any], known: str | None) -> tuple[Any, str]:
        # Else it tells its makers of each use (mlflow.org/docs/latest/community/usage-tracking).
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # The client only: MLflow's other interface notes the user, the host and the source.
        client = importlib.import_module("mlflow.tracking").MlflowClient()
        self._entities = importlib.import_module("mlflow.entities")
        self._client = client
        if known is not None:
            client.update_run(known, status="RUNNING")  # raises if it is not there any more
            return known, known
        found = client.get_experiment_by_name(project)
        number = client.create_experiment(project) if found is None else found.experiment_id
        run = client.create_run(number, run_name=self._folder.resolve().name)
        name = str(run.info.run_id)
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in flags.items()}
        params = [self._entities.Param(key, text[:MAX_PARAM]) for key, text in texts.items()]
        for start in range(0, len(params), MAX_BATCH):
            client.log_batch(name, params=params[start : start + MAX_BATCH])
        return name, name

    def _send(self, record: Record) -> None:
        now = int(time.time() * 1000)
        metrics = []
        for name, value in _values(record).items():
            # What MLflow refuses in a name, which is the name of a file there, becomes "_".
            taken = "".join(x if x.isalnum() or x in "_-. /" else "_" for x in name)
            metrics.append(self._entities.Metric(taken, value, now, record.agent_steps))
        self._client.log_batch(self._run, metrics=metrics)

    def _end(self, run: Any) -> None:
        self._client.set_terminated(run)


class TrackioSink(TrackerSink):
    """Trackio: a local database that `trackio show` draws, or the Space of TRACKIO_SPACE_ID."""

    package, title = "trackio", "Trackio"
    project_variable = "TRACKIO_PROJECT"

    def _begin(self, project: str, flags: Mapping[str, Any], known: str | None) -> tuple[Any, str]:
        trackio = importlib.import_module("trackio")
        name = known or f"{self._folder.resolve().name}-{int(time.time())}"
        run = trackio.init(
            project=project,
            name=name,
            config=dict(flags),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return run, name


TRACKERS: Mapping[str, type[TrackerSink]] = {
    each.package: each for each in (WandbSink, MlflowSink, TrackioSink)
}


def _values(record: Record) -> dict[str, float]:
    counters = {name: each for name, each in vars(record).items() if name != "values"}
    return counters | dict(record.values)
