"""Counts operations while a network runs, from the shapes that each kernel is called with.

It watches kernels rather than layers, so that a matrix product counts whoever calls it: attention, a user's own
layer or a plain function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class Counter(TorchDispatchMode):
    """Operations since the last `reset`, in both conventions (see `costs`).

    `thop` is None as soon as something ran that thop's convention, as used here, does not cover: it is for
    image networks.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reset()

    def reset(self) -> None:
        """Start again from zero."""
        self.products: list[int] = []
        self.thop: int | None = 0

    @property
    def macs(self) -> int:
        """Exact multiply-accumulates."""
        return sum(self.products)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch loads its compiler, which takes two seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a kernel and count it."""
        output = func(*args, **(kwargs or {}))
        kernel = func.overloadpacket
        if kernel in MATRIX_PRODUCTS:
            self.products.append(MATRIX_PRODUCTS[kernel](output, *args))
            self._add(self.products[-1])
        elif kernel in THOP_ONLY:
            self._add(THOP_ONLY[kernel](output, *args))
        elif kernel in NOT_IN_THOP:
            self.products.append(NOT_IN_THOP[kernel](output, *args))
            self.thop = None
        return output

    def _add(self, operations: int) -> None:
        if self.thop is not None:
            self.thop += operations


_counted: ContextVar[bool] = ContextVar("counted", default=False)


def being_counted() -> bool:
    """Tell whether operations are being counted, so that layers which hide theirs run in the open."""
    return _counted.get()


@contextmanager
def counting() -> Iterator[Counter]:
    """Count what runs inside, with the fused kernels for attention switched off: they hide its products."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    token = _counted.set(True)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), Counter() as counter:
            yield counter
    finally:
        _counted.reset(token)
        torch.backends.mha.set_fastpath_enabled(fast)


def _convolution(output: Tensor, maps: Tensor, weight: Tensor, *rest: Any) -> int:
    transposed = rest[4]  # after bias, stride, padding and dilation
    return (maps if transposed else output).numel() * weight[0].numel()


def _product(output: Tensor, left: Tensor, right: Tensor, *_: Any) -> int:
    return output.numel() * left.shape[-1]


def _sum_and_product(output: Tensor, _: Tensor, left: Tensor, right: Tensor, *__: Any) -> int:
    return output.numel() * left.shape[-1]


def _lstm(_: Any, steps: Tensor, into: Tensor, onwards: Tensor, *__: Any) -> int:
    return steps.shape[0] * steps.shape[1] * (into.numel() + onwards.numel())


def _batch_norm(output: tuple[Tensor, ...], *_: Any) -> int:
    return 4 * output[0].numel()


def _mean(output: Tensor, values: Tensor, *_: Any) -> int:
    return values.numel() + output.numel()  # k additions and one division for each output


Rule = Callable[..., int]

MATRIX_PRODUCTS: dict[Any, Rule] = {
    aten.convolution: _convolution,
    aten.mm: _product,
    aten.mv: _product,
    aten.addmm: _sum_and_product,
    aten.addmv: _sum_and_product,
}
THOP_ONLY: dict[Any, Rule] = {
    aten.native_batch_norm: _batch_norm,
    aten.mean: _mean,
}
NOT_IN_THOP: dict[Any, Rule] = {
    aten.bmm: _product,
    aten.baddbmm: _sum_and_product,
    aten.mkldnn_rnn_layer: _lstm,
    aten.embedding: lambda *_: 0,
}
