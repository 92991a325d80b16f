"""What ONNX operators cost in MACs, from the shapes in a profile of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

Shapes = list[list[int]]


def _convolution(entering: Shapes, left: Shapes) -> int:
    return prod(left[0]) * prod(entering[1][1:])


def _product(entering: Shapes, left: Shapes) -> int:
    return prod(left[0]) * entering[0][-1]


PRODUCTS: Mapping[str, Callable[[Shapes, Shapes], int]] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": lambda entering, left: prod(entering[0]) * prod(entering[1][1:]),
    "Gemm": _product,
    "MatMul": _product,
    "MatMulInteger": _product,
}
"""MACs of the operators that count (see `costs`)."""

_FREE = """
Abs Add And ArgMax AveragePool BatchNormalization Cast Ceil Clip Concat Constant ConstantOfShape DequantizeLinear Div
DynamicQuantizeLinear Elu Equal Erf Exp Expand Flatten Floor Gather Gelu GlobalAveragePool GlobalMaxPool Greater
GreaterOrEqual GroupNormalization HardSigmoid HardSwish Identity If InstanceNormalization IsNaN LayerNormalization
LeakyRelu Less LessOrEqual Log LogSoftmax Max MaxPool Min Mish Mul Neg Not Or PRelu Pad Pow QuantizeLinear Range
Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Selu Shape Sigmoid Sign Slice Softmax Softplus Split
Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose Trilu Unsqueeze Where
"""

KNOWN = PRODUCTS.keys() | frozenset(_FREE.split())
"""Operators that can be counted: those above, and those whose work counts as none: element by element, pooling,
normalisation, moving numbers."""


def macs_of(kernel: Mapping[str, Any]) -> int:
    """Count the MACs of a kernel that ran, as a profile notes it."""
    count = PRODUCTS.get(kernel["op_name"])
    return 0 if count is None else count(_shapes(kernel["input_type_shape"]), _shapes(kernel["output_type_shape"]))


def _shapes(noted: Sequence[Mapping[str, list[int]]]) -> Shapes:
    return [shape for each in noted for shape in each.values()]
