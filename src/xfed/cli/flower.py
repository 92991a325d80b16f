"""`xfed flower init`, `demo`, `keys` and `export`: federations of real devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xfed.errors import InputError
from xfed.report.terminal import say

if TYPE_CHECKING:
    from xfed.runs.reader import Run


def flower_commands(arguments: Sequence[str]) -> list[click.Command]:
    """Build the group of commands."""
    group = click.Group(
        "flower", help="Federations of real devices over Flower: an app, a demo, keys, a node's export."
    )
    group.add_command(
        click.Command(
            "init",
            callback=_init,
            params=[
                click.Argument(["folder"], type=Path, metavar="DIR"),
                click.Option(
                    ["--address"],
                    default="127.0.0.1:8000",
                    show_default=True,
                    metavar="host:port",
                    help="where nodes find the server",
                ),
                click.Option(["--keys"], type=Path, metavar="folder", help="for TLS: what `xfed flower keys` made"),
            ],
            help="Write a Flower app that runs xfed, two example nodes, and how to start them.",
        )
    )
    group.add_command(
        click.Command(
            "demo",
            callback=_demo,
            params=[
                click.Option(
                    ["--clients"], type=click.IntRange(2), default=4, show_default=True, help="nodes to start"
                ),
                click.Option(["--rounds"], type=click.IntRange(1), default=3, show_default=True, help="rounds"),
                click.Option(["--method"], default="xfed", show_default=True, metavar="name", help="what to train"),
                click.Option(["--secure"], is_flag=True, help="with TLS and a key for every node"),
                click.Option(
                    ["--out"], type=Path, default=Path("runs/flower-demo"), show_default=True, help="folder for it all"
                ),
            ],
            help="Start a SuperLink and nodes on this machine, train on digits, show progress, end everything, report.",
        )
    )
    group.add_command(
        click.Command(
            "keys",
            callback=_keys,
            params=[
                click.Argument(["folder"], type=Path, metavar="DIR"),
                click.Option(
                    ["--host", "hosts"],
                    multiple=True,
                    default=["127.0.0.1", "localhost"],
                    metavar="name",
                    show_default=True,
                    help="what nodes call the server: names and addresses",
                ),
                click.Option(
                    ["--nodes"], type=click.IntRange(0), default=2, show_default=True, help="node keys to make"
                ),
                click.Option(["--add"], metavar="name", help="add one node's key to a folder that is there"),
            ],
            help="Make a certificate authority, the server's certificate and a key for every node.",
        )
    )
    group.add_command(
        click.Command(
            "export",
            callback=_export,
            params=[
                click.Argument(["folder"], type=Path, metavar="NODE"),
                click.Option(["--federation"], metavar="name", help="which one; default: the node's latest"),
                click.Option(
                    ["--budget"], metavar="60%", help="calibrate on the node's own samples to a mean cost before"
                ),
                click.Option(["-o", "--out"], type=Path, required=True, metavar="folder", help="where the bundle goes"),
            ],
            help="On a node, after training: write the bundle of its own model for xfed-runtime.",
        )
    )
    return [group]


def _require_flower() -> None:
    try:
        import flwr  # noqa: F401
    except ModuleNotFoundError:
        raise InputError("this needs the package flwr; install it with: pip install 'xfed[flower]'") from None


def _init(folder: Path, address: str, keys: Path | None) -> None:
    from xfed.flower.project import is_loopback, write_node, write_project

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InputError(f"--address is {address!r}; allowed: host:port, such as 127.0.0.1:8000")
    if keys is not None and not (keys / "ca.crt").is_file():
        raise InputError(f"{str(keys)!r} holds no keys of a federation (no ca.crt)")
    if keys is None and not is_loopback(address):
        say(
            f"xfed: without TLS anyone between a node and {address} can read and change what is exchanged; "
            "make keys with 'xfed flower keys' and give them with --keys",
            stderr=True,
        )
    write_project(folder, (folder / "run").absolute(), address=address, keys=keys and keys.absolute())
    for number in range(2):
        data = {"dataset": "digits", "clients": 2, "alpha": 1.0, "seed": 1}
        write_node(folder / "nodes" / str(number), data=data, client=number)
    say(f"app: {folder}; {folder / 'README.md'} says how to start it")


def _keys(folder: Path, hosts: Sequence[str], nodes: int, add: str | None) -> None:
    _require_flower()
    from xfed.flower.keys import add_node_key, make_keys

    if add is not None:
        if not (folder / "ca.crt").is_file():
            raise InputError(f"{str(folder)!r} holds no keys of a federation (no ca.crt)")
        add_node_key(folder, add)
    else:
        make_keys(folder, hosts, [f"node-{number}" for number in range(nodes)])
    say(f"keys: {folder}; *.key and the node keys are secret, ca.crt and *.pub are not")


def _demo(clients: int, rounds: int, method: str, secure: bool, out: Path) -> None:
    _require_flower()
    from xfed.cli import execute
    from xfed.flower.demo import Demo

    seen = {"rounds": 0}

    def watch(run: Run | None) -> None:
        records = [] if run is None else run.records()
        for record in records[seen["rounds"] :]:
            say(
                f"round {record.round} of {rounds}: {record.replies} of {record.clients} clients, "
                f"loss {record.loss:.4f}, {record.train_seconds:.0f} s"
            )
        seen["rounds"] = len(records)

    settings = {"method": method, "rounds": rounds, "federation.timeout": 300.0}
    with Demo(out, clients, secure, settings, {"alpha": 1.0, "seed": 1}) as demo:
        say(f"{clients} nodes on loopback, {'with' if secure else 'without'} TLS; logs: {out / 'logs'}")
        demo.start()
        demo.submit()
        finished = demo.wait(seconds=600 + 300 * rounds, watch=watch)
    execute(["show", str(finished.path)])
    execute(["report", str(finished.path), "-o", str(out / "report.html")])


def _export(folder: Path, federation: str | None, budget: str | None, out: Path) -> None:
    from xfed.cli import execute
    from xfed.flower.node import Node
    from xfed.flower.own_run import own_run

    run, client = own_run(Node.open(folder), federation)
    code = 0
    if budget is not None:
        code = execute(["calibrate", str(run.path), "--budget", budget])
    code = code or execute(["export", str(run.path), "--clients", str(client), "-o", str(out)])
    if code:
        raise click.exceptions.Exit(code)
