"""Replies are weighed while they come in, before Flower puts them together.

A reply crosses as many small objects, and an array may name one of them a million times over: what arrives, and what it
would grow to, is counted here. A reply that is too large, or that cannot be put together, becomes an error of its
sender; left to Flower it would take the server's memory, or end the run for everyone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flwr.app import Array
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_type_from_object_content,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, inflate_object_from_contents
from flwr.superlink.grid import http_grid

REFUSED = "xfed refused "
"""Marks the reason of an error that was raised here; what the reply is follows."""


@contextmanager
def weighed(limit: Callable[[], int]) -> Iterator[None]:
    """Let no reply in that has, or grows to, more bytes than the limit at that time."""
    names = vars(http_grid)
    pull = names["pull_objects"]

    def pull_within(object_ids: list[str], pull_object_fn: Callable[[str], bytes], **options: Any) -> dict[str, bytes]:
        most, lock, arrived = limit(), threading.Lock(), [0]

        def one(object_id: str) -> bytes:
            content = pull_object_fn(object_id)
            with lock:
                arrived[0] += len(content)
                if arrived[0] > most:
                    raise _refused(object_id, f"more than {most:,} bytes")
            return content

        contents: dict[str, bytes] = pull(object_ids, one, **options)
        root = object_ids[-1]  # children come before what they are part of
        try:
            if sum(map(_grown(contents), contents.values())) > most:
                raise _refused(root, f"arrays that grow to more than {most:,} bytes")
            inflate_object_from_contents(root, contents, keep_object_contents=True)
        except ObjectPullError:
            raise
        except Exception as error:
            raise _refused(root, f"what cannot be put together ({type(error).__name__})") from None
        return contents

    names["pull_objects"] = pull_within
    try:
        yield
    finally:
        names["pull_objects"] = pull


def _refused(object_id: str, what: str) -> ObjectPullError:
    return ObjectPullError(object_id, REFUSED + what)


def _grown(contents: Mapping[str, bytes]) -> Callable[[bytes], int]:
    """Tell how many bytes an object of a reply has once it is put together; only arrays grow."""

    def size(content: bytes) -> int:
        if get_object_type_from_object_content(content) != Array.__qualname__:
            return 0
        children = get_object_children_ids_from_object_content(content)
        used = json.loads(get_object_body(content, Array))["arraychunk_ids"]
        return sum(len(contents[children[place]]) for place in used)

    return size
