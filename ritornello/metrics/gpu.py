"""The GPU that the learner uses, as its driver sees it: use, memory, power, temperature, clock.

The driver is asked through NVIDIA's library NVML (package nvidia-ml-py, extra gpu). It is imported
when torch has begun to use a GPU and not before. What a GPU does not tell is left out, and said
once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from ritornello.core.project import install_extra

ENERGY = "energy"  # of a reading; the sum since the driver was loaded, in joules


def load_nvml() -> Any:
    """Return the library; ImportError if it is not installed."""
    return importlib.import_module("pynvml")


def uuid_in_use() -> str | None:
    """Return the driver's name of the GPU that torch computes on in this process, if any."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"


class Gpu:
    """Measures one GPU, from the moment at which one is in use. One thread reads it."""

    def __init__(
        self,
        nvml: Callable[[], Any] = load_nvml,
        in_use: Callable[[], str | None] = uuid_in_use,
    ) -> None:
        """Look at nothing yet; `in_use` returns the name of the used GPU once there is one."""
        self.is_used = False
        self.notes: list[str] = []  # what cannot be measured, each once
        self._load, self._in_use = nvml, in_use
        self._ask: dict[str, Callable[[], float]] = {}  # by name of the metric
        self._last_j: float | None = None  # the driver's counter at the last reading

    def read(self) -> tuple[dict[str, float], float | None]:
        """Return (values for a Record, joules since the last reading or None)."""
        if not self.is_used:
            self._find()
        values = {}
        for name, ask in list(self._ask.items()):
            try:
                values[name] = float(ask())
            except Exception as error:  # one that this GPU or driver does not tell
                del self._ask[name]
                self.notes.append(f"the GPU does not tell {name.split('/')[-1]}: {error}")
        before_j, self._last_j = self._last_j, values.pop(ENERGY, None)
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            values["system/gpu_memory_mb"] = torch.cuda.memory_allocated() / 1e6
        if before_j is None or self._last_j is None or self._last_j < before_j:
            return values, None  # the first reading, or its driver was loaded anew
        return values, self._last_j - before_j

    def _find(self) -> None:
        """Find out what can be asked of the GPU, once one is used."""
        uuid = self._in_use()
        if uuid is None:
            return
        self.is_used = True
        try:
            nvml = self._load()
            nvml.nvmlInit()
            gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
            core = nvml.NVML_TEMPERATURE_GPU
        except ImportError:
            why = f"the package nvidia-ml-py is missing ({install_extra('gpu')})"
            self.notes.append(f"the GPU is not measured: {why}")
            return
        except Exception as error:  # whatever the driver says: training needs none of it
            self.notes.append(f"the GPU is not measured: its driver says {error}")
            return
        self._ask = {
            "system/gpu_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
            "system/gpu_used_mb": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used / 1e6,
            "system/gpu_power_w": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,
            "system/gpu_temperature_c": lambda: nvml.nvmlDeviceGetTemperature(gpu, core),
            "system/gpu_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            ENERGY: lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3,
        }
