"""The paper's text network, against torch's own layers; padding changes nothing."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tests.models.builders import batch, build, small
from xfed.components import validate
from xfed.errors import InputError
from xfed.models.layout import Layout
from xfed.models.network import EarlyExitNetwork
from xfed.models.parts import Parts
from xfed.models.transformer import Transformer, sinusoids


def _logits(network: EarlyExitNetwork, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack(list(network.eval()(ids).logits.values()))


def test_parameters_of_the_papers_network() -> None:
    layout = Layout.of(build("transformer", (200,), 4))
    # Embedding 32000·192; a layer: query, key, value and output 4·(192² + 192), feed-forward
    # 192·768 + 768 + 768·192 + 192, two norms of 2·192. Positions are constants.
    layer = 4 * (192**2 + 192) + 2 * 192 * 768 + 768 + 192 + 4 * 192
    assert layout.count(Parts.BACKBONE) == 32_000 * 192 + 4 * layer
    assert layout.count(Parts.EXITS) == 4 * (192 * 4 + 4)
    assert layout.count(Parts.STATISTICS) == 0


def test_positions_are_no_parameter_and_not_stored() -> None:
    network = small("transformer")
    assert not any("positions" in key for key in network.state_dict())


def test_sinusoids_by_hand() -> None:
    table = sinusoids(4, 6)
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1]
    for column, (function, power) in enumerate([(math.sin, 0), (math.cos, 0), (math.sin, 2 / 6), (math.cos, 2 / 6)]):
        assert table[3, column].item() == pytest.approx(function(3 / 10_000**power), abs=1e-6)
    assert sinusoids(5, 3).shape == (5, 3)


def test_the_vector_of_the_padding_token_changes_no_logit() -> None:
    network, ids = small("transformer"), batch("transformer")
    before = _logits(network, ids)
    network.stages[0][0].tokens.weight.data[0] = 1e3
    assert torch.equal(_logits(network, ids), before)


def test_what_padded_positions_hold_between_stages_changes_no_logit() -> None:
    network, ids = small("transformer").eval(), batch("transformer")
    with torch.no_grad():
        vectors, present = network.stage(0, ids)
        assert torch.equal(present, ids != 0)
        disturbed = torch.where(present[:, :, None], vectors, torch.randn_like(vectors) * 100)
        plain = network.exits[2](network.stage(2, network.stage(1, (vectors, present))))
        other = network.exits[2](network.stage(2, network.stage(1, (disturbed, present))))
    assert torch.equal(plain[1], other[1])


def test_tokens_change_logits() -> None:
    network, ids = small("transformer"), batch("transformer")
    before = _logits(network, ids)
    ids[0, 2] = 49 if ids[0, 2] != 49 else 48
    changed = (_logits(network, ids) != before).any(dim=2)
    assert changed[:, 0].all()  # at every exit
    assert not changed[:, 1:].any()  # and for no other text


def test_amount_of_padding_does_not_matter() -> None:
    network, ids = small("transformer"), batch("transformer", 1)  # three tokens, six of padding
    for length in (3, 6):
        assert torch.allclose(_logits(network, ids[:, :length]), _logits(network, ids), atol=1e-6)


def test_only_padding_gives_finite_logits() -> None:
    assert torch.isfinite(_logits(small("transformer"), torch.zeros(2, 9, dtype=torch.long))).all()


def test_dropout_acts_in_training_only_and_follows_the_seed() -> None:
    network, ids = small("transformer", dropout=0.3), batch("transformer")
    assert torch.equal(_logits(network, ids), _logits(network, ids))
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(network.train()(ids).logits[2])
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_a_layer_equals_torchs_own() -> None:
    network = small("transformer", heads=3).eval()
    ours = network.stages[1]
    theirs = nn.TransformerEncoderLayer(12, 3, 20, 0.1, batch_first=True).eval()
    pairs = {
        "self_attn.in_proj_": ours.attention.into,
        "self_attn.out_proj.": ours.attention.out,
        "linear1.": ours.feedforward[0],
        "linear2.": ours.feedforward[3],
        "norm1.": ours.attention_norm,
        "norm2.": ours.feedforward_norm,
    }
    theirs.load_state_dict({name + kind: getattr(m, kind) for name, m in pairs.items() for kind in ("weight", "bias")})
    vectors, present = torch.randn(4, 9, 12), batch("transformer") != 0
    with torch.no_grad():
        result, _ = ours((vectors, present))
        expected = theirs(vectors, src_key_padding_mask=~present)
    assert torch.allclose(result[present], expected[present], atol=1e-5)


def test_embeddings_start_with_the_size_of_the_positions() -> None:
    weight = build("transformer", (20,), 4).stages[0][0].tokens.weight
    assert weight.std().item() * math.sqrt(192) == pytest.approx(1, rel=0.01)


def test_numbers_with_a_fraction_are_refused() -> None:
    with pytest.raises(InputError, match="takes text"):
        small("transformer")(torch.zeros(2, 9))


def test_heads_must_share_the_width() -> None:
    with pytest.raises(InputError, match=r"transformer.width 192 is no multiple of transformer.heads 5"):
        validate(Transformer.Settings, {"heads": 5}, prefix="transformer.")
