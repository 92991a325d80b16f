"""What a round costs beyond the training itself, on every engine: `python -m benchmarks.engines`.

Clients that send back what they got, without training, take a round to what the engine costs: packing, moving, states,
aggregation, checkpoint. Beside it a real round of the ConvNet on random images, with the `processes` engine, of which
that is a share. Engines take turns; the first round, in which workers start, does not count.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import xfed.running
from xfed.experiment import Experiment

IMAGES = str(Path(__file__).with_name("random_images.py"))
ECHO = '''
from xfed.algorithms.fedavg import FedAvg
from xfed.protocol.algorithm import method
from xfed.protocol.message import Message


@method("echo")
class Echo(FedAvg):
    """FedAvg without training: what came goes back."""

    def train(self, client, received):
        model = client.model(client.state, received.tensors)
        client.state.update(client.pack(model, self.stays))
        return Message(client.pack(model, self.travelling), {"samples": client.samples})
'''
NETWORKS: dict[str, dict[str, Any]] = {
    "0.5 MB": {"model": "convnet", "convnet.width": 64},
    "45 MB": {"model": "resnet18"},
}
FEW = 8  # samples per client, about
MARKS = {"processes": 0.02, "ray": 0.10}


def settings(options: argparse.Namespace, plugin: Path, network: str, samples: int = FEW) -> dict[str, Any]:
    """Describe the run that all engines do; what does not train needs few samples."""
    return {
        "dataset": "random-images",
        "random-images.classes": 10,
        "random-images.samples": options.clients * samples * 2,
        "plugin": [IMAGES, str(plugin)],
        "clients": options.clients,
        "partition_by": "iid",
        "sample": 1.0,
        "eval_every": 10**6,
        "eval_clients": 1,
        "batch_size": 64,
        **NETWORKS[network],
    }


def seconds(values: dict[str, Any]) -> float:
    """Carry a run out; give the median seconds of its rounds after the first, evaluation left out."""
    with TemporaryDirectory() as folder:
        finished = xfed.running.run(Experiment.from_mapping({**values, "out": Path(folder) / "run"}), progress=False)
        return median(record.train_seconds for record in finished.records()[1:])


def flower_seconds(values: dict[str, Any], rounds: int, plugin: Path) -> float:
    """Do the same with a SuperLink and SuperNodes on loopback."""
    from xfed.flower.demo import Demo
    from xfed.flower.project import write_node

    names = ("model", "convnet.width", "sample", "clients", "eval_every", "batch_size")
    app = {name.replace("_", "-"): values[name] for name in names if name in values}
    app |= {"method": "echo", "plugin": str(plugin), "rounds": rounds, "federation.timeout": 600.0}
    data = {name: value for name, value in values.items() if name not in names}
    with TemporaryDirectory() as folder, Demo(Path(folder) / "demo", values["clients"], False, app, {}) as demo:
        for number in range(values["clients"]):
            here = {**data, "clients": values["clients"]}
            write_node(demo.node(number), data=here, client=number, plugins=True)
        demo.start()
        demo.submit()
        return median(record.train_seconds for record in demo.wait(3600).records()[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", default=["serial", "processes", "ray", "flower"])
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--samples", type=int, default=300, help="training and test samples per client, about")
    parser.add_argument("--epochs", type=int, default=5, help="of the real round")
    parser.add_argument("--rounds", type=int, default=6, help="rounds without training")
    parser.add_argument("--flower-rounds", type=int, default=3)
    parser.add_argument("--flower-clients", type=int, default=2)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        plugin = Path(folder) / "echo.py"
        plugin.write_text(ECHO, encoding="utf-8")
        real = settings(options, plugin, "0.5 MB", options.samples)
        round = seconds({**real, "method": "fedavg", "epochs": options.epochs, "rounds": 2, "workers": options.workers})
        print(f"a round of {options.clients} clients that trains the ConvNet: {round:.2f} s", flush=True)
        found: dict[tuple[str, str], list[float]] = {}
        for repetition in range(options.repetitions):
            for network in NETWORKS:
                for engine in options.engines:
                    values = settings(options, plugin, network)
                    if engine == "flower":
                        if repetition == 0:
                            values["clients"] = options.flower_clients
                            found[engine, network] = [flower_seconds(values, options.flower_rounds, plugin)]
                        continue
                    values |= {"method": "echo", "engine": engine, "rounds": options.rounds, "workers": options.workers}
                    found.setdefault((engine, network), []).append(seconds(values))
    missed = 0
    for (engine, network), each in found.items():
        clients = options.flower_clients if engine == "flower" else options.clients
        share = median(each) / round
        mark = MARKS.get(engine) if network == "0.5 MB" else None
        missed += mark is not None and share >= mark
        told = f", mark: below {mark:.0%}" if mark is not None else ""
        print(f"{engine:<9} {network:>6}, {clients} clients: {median(each):.3f} s, {share:.1%} of that round{told}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
