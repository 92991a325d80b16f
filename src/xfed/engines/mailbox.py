"""Messages between processes: tensors through shared memory, everything else through a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory

import torch
from torch import Tensor

from xfed.protocol.message import Message, Plain

ALIGNMENT = 64


@dataclass(frozen=True)
class Slot:
    """Where one tensor lies in a segment."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    def view(self, segment: SharedMemory) -> Tensor:
        """Look at the tensor in place."""
        count = torch.Size(self.shape).numel()
        if count == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        flat = torch.frombuffer(segment.buf, dtype=self.dtype, count=count, offset=self.offset)
        return flat.view(self.shape)


@dataclass(frozen=True)
class Letter:
    """What goes through the pipe: for each message where its tensors are, and the plain values themselves."""

    segment: str
    slots: tuple[dict[str, Slot], ...]
    values: tuple[dict[str, Plain], ...]


class Outbox:
    """The sender's segment. It grows as needed; a tensor that several messages hold, or that already lies in its
    place, is not copied again."""

    def __init__(self) -> None:
        self._segment: SharedMemory | None = None
        self._present: dict[Slot, Tensor] = {}

    def put(self, messages: Sequence[Message]) -> Letter:
        """Lay messages out; what the last letter showed is overwritten."""
        places: dict[int, Slot] = {}
        size = 0
        tensors = {id(tensor): tensor for message in messages for tensor in message.tensors.values()}
        for key, tensor in tensors.items():
            places[key] = Slot(size, tensor.dtype, tuple(tensor.shape))
            size += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        segment = self._room(size)
        for key, tensor in tensors.items():
            if self._present.get(places[key]) is not tensor:
                places[key].view(segment).copy_(tensor)
        self._present = {places[key]: tensor for key, tensor in tensors.items()}
        return Letter(
            segment.name,
            tuple({name: places[id(tensor)] for name, tensor in message.tensors.items()} for message in messages),
            tuple(dict(message.values) for message in messages),
        )

    def forget(self) -> None:
        """Hold on to no tensor: what was put will not be put again."""
        self._present = {}

    def _room(self, size: int) -> SharedMemory:
        if self._segment is None or self._segment.size < size:
            self.close()
            self._segment = SharedMemory(create=True, size=max(size, ALIGNMENT))
        return self._segment

    def close(self) -> None:
        """Free the segment."""
        if self._segment is not None:
            self._segment.unlink()
            _close(self._segment)
            self._segment, self._present = None, {}


class Inbox:
    """The receiver's side: opens the sender's segment, anew when it has grown."""

    def __init__(self) -> None:
        self._segment: SharedMemory | None = None

    def read(self, letter: Letter) -> list[Message]:
        """Show the messages in place: valid until the sender puts the next ones."""
        if self._segment is None or self._segment.name != letter.segment:
            self.close()
            self._segment = SharedMemory(letter.segment)
        segment = self._segment
        return [
            Message({name: slot.view(segment) for name, slot in slots.items()}, values)
            for slots, values in zip(letter.slots, letter.values, strict=True)
        ]

    def close(self, unlink: bool = False) -> None:
        """Let go of the segment; `unlink` frees it too, in the place of a sender that died."""
        if self._segment is not None:
            if unlink:
                self._segment.unlink()
            _close(self._segment)
            self._segment = None


def _close(segment: SharedMemory) -> None:
    """Unmap a segment; one that a tensor still looks at is unmapped when that tensor goes."""
    try:
        segment.close()
    except BufferError:
        segment.close = lambda: None  # type: ignore[method-assign]
