"""The paper's text network: a transformer encoder with an exit after each layer."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from xfed.components import BaseSettings
from xfed.errors import InputError
from xfed.models.network import EarlyExitNetwork, Exit, ExitPlacement, ModelSource, StageState, hidden, model

PADDING = 0  # token id

State = tuple[Tensor, Tensor]
"""Hidden vectors (batch × length × width), and which positions hold a token (batch × length)."""


@model("transformer")
class Transformer(ModelSource):
    """Transformer encoder over token ids, an exit on the first token after each layer (the paper's AgNews network).

    Id 0 is padding, the first token is `<cls>`. Embeddings start from a normal distribution
    with variance 1 / width and are scaled by √width, so that they have the size of the sinusoidal positions
    (Vaswani et al., 2017); the weights of the layers start from Glorot's uniform distribution, biases from 0.
    """

    class Settings(BaseSettings):
        vocabulary: int = Field(32_000, ge=2, description="number of token ids, padding and <cls> included")
        width: PositiveInt = Field(192, description="size of a token's vector")
        depth: PositiveInt = Field(4, description="number of layers, each a stage with an exit")
        heads: PositiveInt = Field(2, description="attention heads; they share the width")
        feedforward: PositiveInt = Field(768, description="inner size of a layer's feed-forward part")
        dropout: float = Field(0.1, ge=0, lt=1, description="share of values dropped in training, in every layer")

        @model_validator(mode="after")
        def _divisible(self) -> Transformer.Settings:
            if self.width % self.heads:
                raise ValueError(f"transformer.width {self.width} is no multiple of transformer.heads {self.heads}")
            return self

    settings: Settings

    def build(self, input_shape: tuple[int, ...], classes: int, exits: ExitPlacement) -> EarlyExitNetwork:
        """Build the stages for sequences of at most `input_shape[0]` ids; the embedding belongs to the first stage."""
        if len(input_shape) != 1:
            raise InputError(f"model {self.name!r} takes text (token ids), not inputs of shape {input_shape}")
        s = self.settings
        stages: list[nn.Module] = [EncoderLayer(s.width, s.heads, s.feedforward, s.dropout) for _ in range(s.depth)]
        stages[0] = nn.Sequential(Embedding(s.vocabulary, s.width, input_shape[0], s.dropout), stages[0])
        return EarlyExitNetwork.of(stages, [TokenExit(s.width, classes) for _ in stages], exits)


class TokenExit(Exit):
    """One linear layer with bias on the first token."""

    def pool(self, state: StageState) -> Tensor:
        """Take the first token's vector."""
        return hidden(state)[:, 0]


class Embedding(nn.Module):
    """Token vectors plus sinusoidal positions, and the mask of what is no padding."""

    positions: Tensor

    def __init__(self, vocabulary: int, width: int, length: int, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        nn.init.normal_(self.tokens.weight, std=width**-0.5)
        self.scale = math.sqrt(width)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("positions", sinusoids(length, width), persistent=False)

    def forward(self, ids: Tensor) -> State:
        """Embed; the first position always counts as a token, so that attention never looks at nothing."""
        if ids.is_floating_point():
            raise InputError("model 'transformer' takes text (token ids), not numbers with a fraction")
        first = torch.arange(ids.shape[1], device=ids.device) == 0
        vectors = self.tokens(ids) * self.scale + self.positions[: ids.shape[1]]
        return self.dropout(vectors), (ids != PADDING) | first


def sinusoids(length: int, width: int) -> Tensor:
    """Give sin(p / 10000^(2i / width)) in column 2i of row p and the cosine in column 2i + 1."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :width]


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part; each is added to its input, then normalised (post-norm)."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.attention_norm = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(
            _linear(width, feedforward), nn.ReLU(), nn.Dropout(dropout), _linear(feedforward, width)
        )
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, state: State) -> State:
        """Transform the hidden vectors and hand the mask on."""
        vectors, present = state
        vectors = self.attention_norm(vectors + self.dropout(self.attention(vectors, present)))
        vectors = self.feedforward_norm(vectors + self.dropout(self.feedforward(vectors)))
        return vectors, present


class Attention(nn.Module):
    """Multi-head self-attention that never looks at padding.

    Torch's own layer has a fused path for inference that counters and exporters do not see.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.into = _linear(width, width, pieces=3)
        self.out = _linear(width, width)

    def forward(self, vectors: Tensor, present: Tensor) -> Tensor:
        """Mix each position with all that are present."""
        query, key, value = self.into(vectors).unflatten(2, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=present[:, None, None], dropout_p=self.dropout if self.training else 0.0
        )
        joined: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return joined


def _linear(inputs: int, outputs: int, pieces: int = 1) -> nn.Linear:
    """Build a linear layer, or several of the same kind side by side, each initialised as if alone."""
    layer = nn.Linear(inputs, outputs * pieces)
    for piece in layer.weight.chunk(pieces):
        nn.init.xavier_uniform_(piece)
    nn.init.zeros_(layer.bias)
    return layer
