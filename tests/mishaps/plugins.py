"""Plug-ins that do what none may do, and training that does not stay finite."""

from __future__ import annotations

from tests.mishaps.mishap import SMALL, Mishap, folder, text

HEAD = "import sys, torch, xfed\n"
METHOD = "@xfed.method('clumsy')\nclass Mine(xfed.Algorithm):\n    travels = xfed.Parts.MODEL\n"
TRAIN = f"{HEAD}{METHOD}    def train(self, client, received):\n        "
RUN = f"run --plugin mine.py --method clumsy {SMALL} --out r"


def plugin(name: str, code: str | bytes, sentence: str, exit_code: int = 2) -> Mishap:
    """A plug-in of this code."""
    return Mishap(name, RUN, sentence, text("mine.py", code), exit_code)


TWO_LAYERS = """
import torch
import xfed


class Deep(xfed.Exit):
    def __init__(self):
        super().__init__(4, 10)
        self.before = torch.nn.Linear(4, 4)


@xfed.model("deep")
class Mine(xfed.ModelSource):
    def build(self, input_shape, classes, exits):
        stages = [torch.nn.Conv2d(1, 4, 3), torch.nn.Conv2d(4, 4, 3)]
        return xfed.EarlyExitNetwork.of(stages, [Deep(), Deep()], exits)
"""

CASES = [
    Mishap(
        "exits that FedRoD cannot add to",
        f"run --plugin mine.py --model deep --method fedrod {SMALL.replace(' --convnet.width 4', '')} --out r",
        r"method 'fedrod' needs exits that are one linear layer with bias, and those of this network are not",
        text("mine.py", TWO_LAYERS),
    ),
    Mishap("no plug-in", "run --plugin nothing.py", r"plug-in file 'nothing\.py' does not exist"),
    Mishap(
        "a folder", "run --plugin mine.py", r"plug-in file 'mine\.py' cannot be read: .*directory", folder("mine.py")
    ),
    plugin("binary", b"\xff\xfe\x00", r"plug-in file 'mine\.py' cannot be read: .*can't decode byte 0xff"),
    plugin("a syntax error", "def f(:", r"'mine\.py' does not import: SyntaxError: invalid syntax"),
    plugin("a missing module", "import nowhere_at_all", r"does not import: ModuleNotFoundError: .*nowhere_at_all"),
    plugin("an error", "1 / 0", r"'mine\.py' does not import: ZeroDivisionError: division by zero"),
    plugin(
        "sys.exit", "import sys\nsys.exit(0)", r"'mine\.py' calls sys\.exit\(0\) when it is imported; put what is not"
    ),
    plugin(
        "a function as method",
        f"{HEAD}@xfed.method('clumsy')\ndef f(): ...",
        r"method 'clumsy' is the function f; allowed",
    ),
    plugin(
        "a number as model", f"{HEAD}xfed.model('m')(3)", r"model 'm' is the int 3; allowed: a subclass of ModelSource"
    ),
    plugin(
        "a name that is taken",
        f"{HEAD}@xfed.method('fedavg')\nclass Mine(xfed.Algorithm): ...",
        r"method 'fedavg' exists already, from xfed\.algorithms\.fedavg; use another name",
    ),
    plugin(
        "sys.exit at work",
        f"{TRAIN}sys.exit(0)",
        r"client \d in round 1 failed: its work called sys\.exit\(0\), which nobody may do in a run\n"
        r"nothing is lost: 'xfed resume r' continues the run, and 'xfed resume r --plugin mine\.py' does so",
        1,
    ),
    plugin(
        "sys.exit on the server",
        f"{HEAD}{METHOD}    def aggregate(self, server, uploads): sys.exit(3)",
        r"the method called sys\.exit\(3\) after round 0; it may only raise",
        1,
    ),
    plugin(
        "an error on the server",
        f"{HEAD}{METHOD}    def aggregate(self, server, uploads): return uploads['mine']",
        r"plug-in 'mine\.py' failed after round 0 \(line 5, in aggregate\): TypeError: .*\n"
        r"nothing is lost: .*'xfed resume r --plugin mine\.py' does so with a mended plug-in",
        1,
    ),
    plugin(
        "an error at work",
        f"{TRAIN}raise KeyError('my bug')",
        r"client \d in round 1 failed:\n(.|\n)*KeyError: 'my bug'(.|\n)*--plugin mine\.py' does so with a mended",
        1,
    ),
    plugin(
        "an upload of another size",
        f"{TRAIN}return xfed.Message({{'backbone': torch.ones(3)}}, {{'samples': 1}})",
        r"client \d in round 1 was rejected: its upload lacks '\w+'",
        1,
    ),
    Mishap(
        "divergence",
        f"run {SMALL} --method fedavg --lr 1e20 --out r",
        r"client \d in round 1 diverged: its loss is nan\n"
        r"nothing is lost, but going on alike would diverge again: 'xfed resume r --lr 0\.1' goes on with a lower "
        r"learning rate; 'xfed resume r --on-failure drop' leaves such clients out\. The run records that\.",
        code=1,
    ),
    Mishap(
        "divergence at home",
        f"run {SMALL} --method local --lr 1e20 --out r --on-failure drop",
        r"round 1 has answers of 0 of \d clients, and min_replies is 1; the first to fail: client \d diverged: .*\n"
        r"nothing is lost, .*'xfed resume r --lr 0\.1' goes on with a lower learning rate\. The run",
        code=1,
    ),
]
