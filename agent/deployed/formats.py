"""The folder of a network that acts without this program, in one of two formats.

`network.onnx` is for onnxruntime and whatever else reads ONNX (extra onnx), `network.pt2` for
`torch.export.load`. Before either is written, it is compared with the model.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from ritornello.agent.deployed.graph import ActingGraph
from ritornello.agent.deployed.page import PAGE, page
from ritornello.agent.deployed.preprocessing import PREPROCESSING, preprocessing
from ritornello.agent.distributions import FORBIDDEN
from ritornello.agent.session import prepare
from ritornello.agent.stored.model_file import check_is_of_export, write_folder
from ritornello.core.atomic_file import as_json
from ritornello.core.errors import ConfigError, first_line
from ritornello.core.project import import_extra

NETWORKS = {"onnx": "network.onnx", "torch": "network.pt2"}  # the file of each format
TOLERANCE = 1e-4  # of the largest number of an output, or of 1; rounding gives 1e-6 to 1e-5

Tensors = dict[str, torch.Tensor]  # by name


def deploy(url: str, kind: str, output: Path, *, trust: bool = False) -> list[str]:
    """Write the folder of a network in one of the formats `NETWORKS`; return lines about it.

    `url` and `trust` are as --load_model_url and --trust_env_module of main.py.

    Raises:
      CheckpointError: if there is no sound agent.
      ConfigError: if this format cannot hold the agent, or the folder has other files.
    """
    check_is_of_export(output, PREPROCESSING, [*NETWORKS.values(), PAGE])
    session = prepare(["--op_mode=test", f"--load_model_url={url}", f"--trust_env_module={trust}"])
    blueprint, checkpoint = session.blueprint, session.checkpoint
    assert checkpoint is not None, "prepare loads the checkpoint of a test"
    model = blueprint.model()
    model.load_state_dict(checkpoint.state["learner"]["model"])
    graph = ActingGraph(model, blueprint.env_spec)
    content = network_file(graph, kind)
    difference = largest_difference(graph, runner(kind, content))
    if not difference <= TOLERANCE:
        raise ConfigError(
            f"the network as {kind} differs from the agent by {difference:.0e} of its outputs, "
            f"expected at most {TOLERANCE:g}: nothing is written."
        )
    about = preprocessing(blueprint, graph, NETWORKS[kind])
    files = {
        PREPROCESSING: as_json(about).encode(),  # first, see `check_is_of_export`
        NETWORKS[kind]: content,
        PAGE: page(about, kind).encode(),
    }
    write_folder(output, files)
    for name in set(NETWORKS.values()) - set(files):  # of an earlier export
        (output / name).unlink(missing_ok=True)
    return [
        f"{output}: {blueprint.env_spec.env_id}, {checkpoint.agent_steps:,} agent steps, "
        f"{NETWORKS[kind]} of {len(content) / 1e6:.1f} MB",
        f"  takes {', '.join(graph.inputs)}; says {', '.join(graph.outputs)}",
        f"  differs from the agent by at most {difference:.0e}; {PAGE} has a script that plays",
    ]


def network_file(graph: ActingGraph, kind: str) -> bytes:
    """Return the content of the file of a graph, in one of the formats `NETWORKS`.

    Raises:
      ConfigError: if this format cannot hold a user's own network, or a package is missing.
    """
    if kind == "onnx":
        _import_onnx()
    example = graph.example(2)
    shapes = ({name: {0: Dim("batch", min=1)} for name in example},)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(graph, (example,), dynamic_shapes=shapes, strict=False)
            if kind == "onnx":
                return _as_onnx(graph, program, shapes)
            for node in program.graph.nodes:
                node.meta.pop("stack_trace", None)  # paths of this machine
            content = io.BytesIO()
            torch.export.save(program, content)
            return content.getvalue()
    except Exception as error:  # of whatever the layers of a user's network do
        raise ConfigError(
            f"the network cannot be written as {kind}: {first_line(error)}. Expected layers that "
            "torch.export can follow: no decision in Python that depends on numbers in a tensor."
        ) from error


def _as_onnx(graph: ActingGraph, program: ExportedProgram, shapes: Any) -> bytes:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses packages nobody wants
    made = torch.onnx.export(
        program,
        dynamo=True,
        input_names=list(graph.inputs),
        output_names=list(graph.outputs),
        dynamic_shapes=shapes,
        verbose=False,
    )
    assert made is not None
    for node in made.model.graph:
        node.metadata_props.clear()  # paths of this machine
    content: bytes = made.model_proto.SerializeToString()
    return content


def runner(kind: str, content: bytes) -> Callable[[Tensors], Tensors]:
    """Return a function that runs the network in a file of this content, on the CPU."""
    if kind == "torch":
        return torch.export.load(io.BytesIO(content)).module()
    onnxruntime = _import_onnx()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: Tensors) -> Tensors:
        made = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        return dict(zip(names, map(torch.from_numpy, made), strict=True))

    return run


def _import_onnx() -> Any:
    """Return onnxruntime, or raise ConfigError if it or what writes ONNX is not installed."""
    import_extra("onnxscript", "onnx", "--format=onnx")
    return import_extra("onnxruntime", "onnx", "--format=onnx")


def largest_difference(graph: ActingGraph, run: Callable[[Tensors], Tensors]) -> float:
    """Return how far a written network is from its graph on random inputs, see TOLERANCE."""
    found = []
    for inputs in (graph.example(1), graph.example(5)):
        expected, got = graph(inputs), run(inputs)
        for name, value in expected.items():
            if value.is_floating_point():  # a choice between two that are alike may differ
                # Beside the logit of what is not allowed nothing else would count.
                known = value.masked_fill(value == FORBIDDEN, 0)
                found.append((got[name] - value).abs().max() / known.abs().max().clamp(min=1))
    return float(torch.stack(found).max())  # NaN if one is
