"""Early-exit inference on a device, with numpy and ONNX Runtime: open a bundle that xfed exported, choose a client,
then a policy, a budget or a deadline, and predict. ONNX Runtime is loaded with the first bundle."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xfed_runtime.bundle import Bundle, BundleError
    from xfed_runtime.device import Device
    from xfed_runtime.inputs import InputsError
    from xfed_runtime.measuring import measure
    from xfed_runtime.policy import Policy, PolicyError
    from xfed_runtime.runtime import Predictions, Runtime

FORMATS = ("onnx-stages", "onnx-if", "executorch")
"""Forms that a network can have in a bundle: a graph per stage, one graph with nested `If`s, an ExecuTorch program."""

__all__ = [
    "FORMATS",
    "Bundle",
    "BundleError",
    "Device",
    "InputsError",
    "Policy",
    "PolicyError",
    "Predictions",
    "Runtime",
    "measure",
]

_HOMES = {
    "bundle": ("Bundle", "BundleError"),
    "device": ("Device",),
    "inputs": ("InputsError",),
    "measuring": ("measure",),
    "policy": ("Policy", "PolicyError"),
    "runtime": ("Predictions", "Runtime"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"xfed_runtime.{module}"), name)
    raise AttributeError(f"module 'xfed_runtime' has no attribute {name!r}")
