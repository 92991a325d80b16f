"""Words between processes: tensors through shared memory, everything else as bytes through a pipe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from xfed.engines.workers.segments import Segment, create_segment, open_segment
from xfed.engines.workers.signals import undisturbed
from xfed.protocol.words import Word, frame, unframe

ALIGNMENT = 64


@dataclass(frozen=True)
class Slot:
    """Where one tensor lies in a segment."""

    offset: int
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor, offset: int) -> Slot:
        """Make room for a tensor."""
        return cls(offset, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))

    def view(self, segment: Segment) -> Tensor:
        """Look at the tensor in place."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        count = torch.Size(self.shape).numel()
        if count == 0:
            return torch.empty(self.shape, dtype=dtype)
        flat = torch.frombuffer(segment.buf, dtype=dtype, count=count, offset=self.offset)
        return flat.view(self.shape)


class Outbox:
    """The sender's segment. It grows as needed; a tensor that several words hold, or that already lies in its
    place, is not copied again."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._present: dict[Slot, Tensor] = {}

    def put(self, words: Sequence[Word]) -> bytes:
        """Lay words out, and give the letter that tells where; what the last letter showed is overwritten."""
        plain, tensors = frame(words)
        slots = []
        size = 0
        for tensor in tensors:
            slots.append(Slot.of(tensor, size))
            size += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        segment = self._room(size)
        for slot, tensor in zip(slots, tensors, strict=True):
            if self._present.get(slot) is not tensor:
                slot.view(segment).copy_(tensor)
        self._present = dict(zip(slots, tensors, strict=True))
        where = [[slot.offset, slot.dtype, slot.shape] for slot in slots]
        return json.dumps({"segment": segment.name, "slots": where, "words": plain}).encode()

    def forget(self) -> None:
        """Hold on to no tensor: what was put will not be put again."""
        self._present = {}

    def _room(self, size: int) -> Segment:
        if self._segment is None or self._segment.size < size:
            with undisturbed():
                self.close()
                self._segment = create_segment(max(size, ALIGNMENT))
        return self._segment

    def close(self) -> None:
        """Free the segment."""
        with undisturbed():
            if self._segment is not None:
                self._segment.unlink()
                _close(self._segment)
                self._segment, self._present = None, {}


class Inbox:
    """The receiver's side: opens the sender's segment, anew when it has grown."""

    def __init__(self) -> None:
        self._segment: Segment | None = None

    def read(self, letter: bytes, copy: bool = False) -> list[Word]:
        """Show the words in place, valid until the sender puts the next ones; or copy their tensors out."""
        told = json.loads(letter)
        if self._segment is None or self._segment.name != told["segment"]:
            with undisturbed():
                self.close()
                self._segment = open_segment(told["segment"])
        views = [Slot(offset, dtype, tuple(shape)).view(self._segment) for offset, dtype, shape in told["slots"]]
        return unframe(told["words"], [view.clone() for view in views] if copy else views)

    def close(self, unlink: bool = False) -> None:
        """Let go of the segment; `unlink` frees it too, in the place of a sender that died."""
        with undisturbed():
            if self._segment is not None:
                if unlink:
                    self._segment.unlink()
                _close(self._segment)
                self._segment = None


def _close(segment: Segment) -> None:
    """Unmap a segment; one that a tensor still looks at is unmapped when that tensor goes."""
    try:
        segment.close()
    except BufferError:
        segment.close = lambda: None  # type: ignore[method-assign]
