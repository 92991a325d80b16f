"""What the round loop asks of clients and what comes back: small typed words, and their bytes.

An engine moves these words and nothing else. None of them holds a path, and decoding executes nothing. Tensors that
several words of a frame share, such as a backbone for thirty clients, are encoded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from xfed.protocol.message import Message, WireError, pack, unpack
from xfed_runtime.answers import Answer

VERSION = 1
"""Of the words and their encoding; another version is refused by name."""

FailureKind = Literal["error", "input", "lost", "timeout", "rejected", "diverged"]


@dataclass(frozen=True)
class Word:
    """Something that is said between the loop and a client's place; `kind` names it on the wire."""

    kind: ClassVar[str]
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True, extra="forbid")


@dataclass(frozen=True)
class Briefing(Word):
    """What a place needs to know before it can do client work, wherever it is.

    The recipe (method, network, training), the source of plug-ins by file name, the data's card (which names the data
    by its digest), the common initial parameters, the kernels to compute with, and how many clients there are.
    """

    kind: ClassVar[str] = "briefing"
    recipe: Mapping[str, Any]
    plugins: Mapping[str, str]
    card: Mapping[str, Any]
    initial: Message
    kernels: Mapping[str, Any]
    population: int


@dataclass(frozen=True)
class TrainTask(Word):
    """Train on a message. `state` is the version of the client's own state to start from; nothing: it has none yet."""

    kind: ClassVar[str] = "train"
    client: int
    round: int
    message: Message
    state: int | None


@dataclass(frozen=True)
class EvaluateTask(Word):
    """Evaluate the model that a message and the client's own state make.

    What may come back is declared: counts per exit always; metrics per exit by their names, of the `answers` that
    count; per-sample traces, and the model itself, only where the run may have them. In the `final` evaluation a method
    may tune, and calibration samples are evaluated too.
    """

    kind: ClassVar[str] = "evaluate"
    client: int
    round: int
    message: Message
    state: int | None
    final: bool
    traces: bool
    model: bool
    metrics: tuple[str, ...] = ()
    answers: Answer = "own"


@dataclass(frozen=True)
class ClientState(Word):
    """A version of a client's own state, where it does not stay with the client but travels beside its task."""

    kind: ClassVar[str] = "state"
    client: int
    version: int
    tensors: Message


@dataclass(frozen=True)
class Trained(Word):
    """What comes back from training: the upload, and what the work cost (telemetry, no message).

    `remembers` says that the client now has a state of its own, whose version is the task's round.
    """

    kind: ClassVar[str] = "trained"
    client: int
    upload: Message
    loss: float
    macs: int
    remembers: bool


@dataclass(frozen=True)
class Evaluated(Word):
    """What comes back from evaluation: right answers per exit on the client's test samples, by kind of answer.

    `macs` is what tuning before the evaluation cost. `alone` says that the numbers depend on nobody else. `traces`
    (of `test` and `calibration` samples) and the client's `own` tensors are there where the task allowed them;
    `shared` then names the tensors of the task's message that belong to the model beside them.
    """

    kind: ClassVar[str] = "evaluated"
    client: int
    samples: int
    correct: Mapping[Answer, tuple[int, ...]]
    macs: int
    alone: bool
    traces: Mapping[str, Message] = field(default_factory=dict)
    own: Message | None = None
    shared: tuple[str, ...] = ()
    metrics: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Failed(Word):
    """A client that did not do its task; `reason` goes on where 'client 3 in round 2' stops."""

    kind: ClassVar[str] = "failed"
    client: int
    reason: str
    failure: FailureKind = "error"


Task = TrainTask | EvaluateTask
Result = Trained | Evaluated | Failed

KINDS: dict[str, type[Word]] = {
    word.kind: word for word in (Briefing, TrainTask, EvaluateTask, ClientState, Trained, Evaluated, Failed)
}
_ADAPTERS: dict[str, TypeAdapter[Any]] = {kind: TypeAdapter(word) for kind, word in KINDS.items()}


def frame(words: Sequence[Word]) -> tuple[dict[str, Any], list[Tensor]]:
    """Take words apart into plain values and tensors, each tensor once."""
    tensors: list[Tensor] = []
    numbers: dict[int, int] = {}

    def number(tensor: Tensor) -> int:
        if id(tensor) not in numbers:
            numbers[id(tensor)] = len(tensors)
            tensors.append(tensor)
        return numbers[id(tensor)]

    def plain(value: Any) -> Any:
        if isinstance(value, Message):
            return {
                "tensors": {name: number(tensor) for name, tensor in value.tensors.items()},
                "values": dict(value.values),
            }
        if isinstance(value, Mapping):
            return {name: plain(inner) for name, inner in value.items()}
        return value

    said = [{"word": word.kind, **{f.name: plain(getattr(word, f.name)) for f in fields(word)}} for word in words]
    return {"xfed": VERSION, "words": said}, tensors


def unframe(plain: Any, tensors: Sequence[Tensor]) -> list[Word]:
    """Put words together again; what does not fit is refused in one phrase."""
    try:
        if plain["xfed"] != VERSION:
            raise WireError(f"words of version {plain['xfed']!r}; this side speaks version {VERSION}")
        return [_word(said, tensors) for said in plain["words"]]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise WireError(f"words that cannot be understood ({type(error).__name__}: {error})") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise WireError(f"words that cannot be understood ({where}: {first['msg']})") from None


def _word(plain: Any, tensors: Sequence[Tensor]) -> Word:
    said = {str(name): value for name, value in plain.items()}
    kind = said.pop("word")
    if kind not in KINDS:
        raise WireError(f"the word {kind!r}, which is not known")

    for name in ("message", "tensors", "upload", "own", "initial"):
        if said.get(name) is not None:
            said[name] = Message.from_plain(said[name], tensors)
    if kind == Evaluated.kind:
        said["traces"] = {name: Message.from_plain(value, tensors) for name, value in said["traces"].items()}
    word: Word = _ADAPTERS[kind].validate_python(said)
    return word


def to_bytes(words: Sequence[Word]) -> bytes:
    """Encode words."""
    return pack(*frame(words))


def from_bytes(data: bytes, limit: int | None = None) -> list[Word]:
    """Decode words; more than `limit` bytes are refused before anything is read."""
    return unframe(*unpack(data, limit))
