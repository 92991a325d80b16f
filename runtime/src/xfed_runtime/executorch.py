"""ExecuTorch at work: a program with one method per stage, one sample at a time."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

from xfed_runtime.device import Latencies
from xfed_runtime.manifest import BundleError
from xfed_runtime.policy import Policy
from xfed_runtime.walking import Answers, Array, walk


class ExecuTorchEngine:
    """Calls a method for each stage that a sample needs. Methods have memory of their own: one caller at a time."""

    together: int | None = 1

    def __init__(self, program: bytes, exits: int) -> None:
        try:
            from executorch.runtime import Runtime
        except ModuleNotFoundError as error:
            raise BundleError(
                f"the format executorch needs {error.name}; install it with: pip install 'xfed-runtime[executorch]'"
            ) from None
        names = [f"stage_{number}" for number in range(1, exits + 1)]
        try:
            self._program = Runtime.get().load_program(program)
            self._methods = [self._program.load_method(name) for name in names]
        except Exception as error:  # ExecuTorch raises kinds of its own
            raise BundleError(f"ExecuTorch does not load the program: {str(error).splitlines()[0]}") from error
        self.exits = exits
        self._lock = Lock()

    def step(self, exit_index: int, state: Any) -> tuple[Any, Array]:
        """Run one method: from the state before it to the next one and its exit's logits."""
        *after, logits = self._methods[exit_index].execute([state])
        return (after[0] if after else None), logits.numpy().copy()

    def run(self, inputs: Array, policy: Policy, latencies: Latencies | None, started: float) -> Answers:
        """Answer one sample."""
        import torch

        with self._lock:
            state = torch.from_numpy(inputs)
            return walk(state, 1, self.exits, self.step, lambda kept, _: kept, policy, latencies, started)

    def profiles(self) -> list[Path]:
        """There are none."""
        return []
