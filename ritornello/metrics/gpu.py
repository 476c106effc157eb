"""The GPU that the learner uses, as its driver sees it: use, memory, power, temperature, clock.

The driver is asked through NVIDIA's library NVML (package nvidia-ml-py, extra gpu). It
is imported when torch has begun to use a GPU and not before. What a GPU does not tell is left out,
and said once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from ritornello.core.project import install_extra

MILLI = 1e-3  # the library counts in milliwatts and millijoules


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
        """Look at nothing yet.

        Args:
          nvml: returns the library.
          in_use: returns the name of the GPU that is used, None as long as none is.
        """
        self.is_used = False
        self.notes: list[str] = []  # what cannot be measured, each once
        self._load, self._in_use = nvml, in_use
        self._nvml: Any = None
        self._handle: Any = None
        self._untold: set[str] = set()
        self._last_j: float | None = None  # the driver's counter at the last reading

    def read(self) -> tuple[dict[str, float], float | None]:
        """Return (values for a Record, joules since the last reading or None)."""
        if not self.is_used:
            self._find()
        if self._handle is None:
            return {}, None
        nvml, handle = self._nvml, self._handle
        asked: dict[str, Callable[[], float]] = {
            "system/gpu_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "system/gpu_used_mb": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 1e6,
            "system/gpu_power_w": lambda: MILLI * nvml.nvmlDeviceGetPowerUsage(handle),
            "system/gpu_temperature_c": lambda: nvml.nvmlDeviceGetTemperature(
                handle, nvml.NVML_TEMPERATURE_GPU
            ),
            "system/gpu_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        }
        values = {}
        for name, ask in asked.items():
            value = self._ask(name, ask)
            if value is not None:
                values[name] = value
        return values, self._used_energy()

    def _find(self) -> None:
        uuid = self._in_use()
        if uuid is None:
            return
        self.is_used = True
        try:
            self._nvml = self._load()
            self._nvml.nvmlInit()
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        except ImportError:
            self.notes.append(
                "the GPU is not measured: the package nvidia-ml-py is missing "
                f"({install_extra('gpu')})"
            )
        except Exception as error:  # whatever the driver says: training needs none of it
            self.notes.append(f"the GPU is not measured: its driver says {error}")
        self._used_energy()

    def _used_energy(self) -> float | None:
        """Return joules since the last call, None if they are not known."""
        if self._handle is None:
            return None
        now_j = self._ask(
            "energy", lambda: MILLI * self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        )
        before_j, self._last_j = self._last_j, now_j
        if now_j is None or before_j is None or now_j < before_j:  # its driver was loaded anew
            return None
        return now_j - before_j

    def _ask(self, name: str, ask: Callable[[], float]) -> float | None:
        if name in self._untold:
            return None
        try:
            return float(ask())
        except Exception as error:  # one that this GPU or driver does not tell
            self._untold.add(name)
            self.notes.append(f"the GPU does not tell {name.split('/')[-1]}: {error}")
            return None
