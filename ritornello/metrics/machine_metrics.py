"""The metrics of the machine, `system/...`: what each means. Part of METRICS (metrics/record.py).

metrics/hardware.py measures them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MetricInfo:
    """What a metric means."""

    unit: str
    doc: str  # one sentence
    healthy: str = ""  # what one hopes to see, where that can be said


def metric(unit: str, doc: str, healthy: str = "") -> MetricInfo:
    """Return what a metric means, as a row of a table."""
    return MetricInfo(unit, doc, healthy)


MACHINE_METRICS: dict[str, MetricInfo] = {
    "system/own_cpu_share": metric(
        "fraction",
        "Processor time of the learner's process and its workers, as a share of all time of the "
        "cores that they may use.",
        "near system/cpu_percent / 100: otherwise something else uses the machine",
    ),
    "system/cpu_percent": metric("%", "Use of these cores by all processes; 100 = all busy."),
    "system/core_percent_*": metric(
        "%", "Use of one core by all processes; on machines with more than 64 cores it is left out."
    ),
    "system/cores_*": metric(
        "cores",
        "Processor time per second of one part of the run: learner, workers, server, evaluation, "
        "and others (what environments start).",
    ),
    "system/memory_mb": metric(
        "MB",
        "Resident memory of the learner's process and its workers; what they share is counted in "
        "each of them.",
    ),
    "system/pss_mb": metric(
        "MB",
        "Memory of the same processes, with what they share counted once; measured every 15 "
        "seconds, on Linux.",
    ),
    "system/memory_available_mb": metric(
        "MB", "Memory of the machine that programs may still take.", "far from 0"
    ),
    "system/swap_mb": metric(
        "MB", "Use of the swap space by all processes.", "does not grow: swapping is slow"
    ),
    "system/disk_free_mb": metric("MB", "Room that is left on the disk of the run folder."),
    "system/cpu_temperature_c": metric(
        "°C", "Highest temperature that a sensor in the processor shows.", "below about 90"
    ),
    "system/cpu_power_w": metric(
        "W",
        "Mean power of the processor (and of memory that has a counter), for all programs and for "
        "idling, by the kernel's energy counters.",
    ),
    "system/energy_j": metric(
        "J",
        "Energy since the previous record: the processor's as above, and the GPU's if one is used. "
        "It is missing if one of them cannot be read.",
    ),
    "system/joules_per_million_steps": metric(
        "J",
        "Energy per million agent steps since the start, over the time in which it was measured.",
    ),
    "system/gpu_memory_mb": metric(
        "MB", "Memory that the learner holds on the GPU, if there is one."
    ),
    "system/gpu_percent": metric(
        "%",
        "Share of the time in which the GPU computed anything, for anybody (extra gpu).",
    ),
    "system/gpu_used_mb": metric("MB", "Memory of the GPU that is taken by all programs."),
    "system/gpu_power_w": metric("W", "Present power of the GPU."),
    "system/gpu_temperature_c": metric("°C", "Temperature of the GPU."),
    "system/gpu_clock_mhz": metric("MHz", "Clock of the GPU; it falls when the GPU is too hot."),
}
