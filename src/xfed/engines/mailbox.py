"""Messages between processes: tensors through shared memory, everything else through a pipe."""

from __future__ import annotations

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
    """What goes through the pipe: where the tensors are, and the plain values themselves."""

    segment: str
    slots: dict[str, Slot]
    values: dict[str, Plain]


class Outbox:
    """The sender's segment. It grows as needed, and a tensor that already lies in it is not copied again."""

    def __init__(self) -> None:
        self._segment: SharedMemory | None = None
        self._slots: dict[str, Slot] = {}
        self._present: dict[str, Tensor] = {}

    def put(self, message: Message) -> Letter:
        """Lay a message out; what the last letter showed is overwritten."""
        slots, size = {}, 0
        for name, tensor in message.tensors.items():
            slots[name] = Slot(size, tensor.dtype, tuple(tensor.shape))
            size += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        segment = self._room(size)
        if slots != self._slots:
            self._present = {}
        for name, tensor in message.tensors.items():
            if self._present.get(name) is not tensor:
                slots[name].view(segment).copy_(tensor)
        self._slots, self._present = slots, dict(message.tensors)
        return Letter(segment.name, slots, dict(message.values))

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
            self._segment, self._slots, self._present = None, {}, {}


class Inbox:
    """The receiver's side: opens the sender's segment, anew when it has grown."""

    def __init__(self) -> None:
        self._segment: SharedMemory | None = None

    def read(self, letter: Letter) -> Message:
        """Show a message in place: valid until the sender puts the next one."""
        if self._segment is None or self._segment.name != letter.segment:
            self.close()
            self._segment = SharedMemory(letter.segment)
        segment = self._segment
        return Message({name: slot.view(segment) for name, slot in letter.slots.items()}, letter.values)

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
